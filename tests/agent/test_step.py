"""Steps as an author uses them: done once, given back in a second run, refused when they have changed."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypedDict

import msgspec
import pydantic
import pytest

from tests.agent.drive import LIMIT_S, begin, drive, pieces, said, send, state, stream, text, until
from trunkline import Agent, Turn
from trunkline.agent.executor import SkillExecutor
from trunkline.agent.step import encoded, fitted
from trunkline.agent.sync_turn import SyncTurn
from trunkline.agent.testing import TestClient
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.run.executor import OnCrash


@dataclasses.dataclass
class Order:
    number: int
    names: tuple[str, ...] = ()


class Row(msgspec.Struct):
    number: int


class Model(pydantic.BaseModel):
    number: int


class Shape(TypedDict):
    number: int


class Likeness(Protocol):
    number: int


def test_what_becomes_of_a_crash_is_said_per_skill_or_per_agent() -> None:
    agent = Agent("a", on_crash="restart")

    @agent.skill
    def one(text: str) -> str:
        return text

    @agent.skill(on_crash="resume")
    def two(text: str) -> str:
        return text

    executor = SkillExecutor("a", agent.skills, agent.default, Settings())
    assert [executor.on_crash(skill) for skill in ("one", "two", "gone")] == [
        OnCrash.RESTART,
        OnCrash.RESUME,
        OnCrash.FAIL,
    ]


@pytest.mark.parametrize("value", ["retry", "", None, "FAIL"])
def test_another_word_for_it_is_refused_with_the_known_ones(value: Any) -> None:
    text = "on_crash is one of 'fail', 'restart', 'resume', not"
    with pytest.raises(Misuse, match=text):
        Agent("a", on_crash=value)
    with pytest.raises(Misuse, match=text):
        Agent("a").skill(on_crash=value)(lambda text: text)


def order() -> Order:
    return Order(1, ("a",))


def wrong() -> int:
    return "five"  # type: ignore[return-value]


def likeness() -> Likeness:
    return Row(1)


def row_later() -> Awaitable[Row]:
    raise AssertionError


def models() -> list[Model]:
    return [Model(number=1)]


def by_number() -> dict[int, Shape]:
    return {1: {"number": 2}}


class Callee:
    def __call__(self) -> Order:
        return Order(2)


@pytest.mark.parametrize(
    ("function", "result", "given"),
    [
        (lambda: None, (1, {"a": b"x"}), [1, {"a": "eA=="}]),
        (order, order(), order()),
        (functools.partial(order), order(), order()),
        (Callee(), Order(2), Order(2)),
        (Order, Order(3), Order(3)),
        (row_later, Row(4), Row(4)),
        (models, models(), models()),
        (by_number, by_number(), by_number()),
        (likeness, Row(1), {"number": 1}),
        (len, 5, 5),
    ],
)
def test_a_result_comes_back_as_its_function_promises(
    function: Callable[..., object], result: object, given: object
) -> None:
    read = msgspec.json.decode(encoded("s", result))
    assert fitted("s", read, function) == given


def test_an_annotation_that_only_type_checkers_see_says_nothing() -> None:
    space: dict[str, Any] = {}
    exec("def hidden() -> 'Nowhere': ...", space)
    assert fitted("s", [1], space["hidden"]) == [1]


def test_a_result_that_does_not_fit_names_the_step() -> None:
    with pytest.raises(
        Misuse, match="step 'count' gave back what its annotation does not allow: Expected `int`"
    ):
        fitted("count", "five", wrong)


@pytest.mark.parametrize("result", [object(), "\ud800", {(1, 2): 3}, {"x": threading.Lock()}])
def test_a_result_that_is_not_json_fails_and_names_the_step(result: object) -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> str:
        await turn.step("odd one", lambda: result)
        return "never"

    task = send(agent, "x", {"dev": True})
    assert state(task) == "failed"
    assert "step 'odd one' gave back" in said(task)


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_step_needs_a_name(name: Any) -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> str:
        await turn.step(name, order)
        return "never"

    assert "a step needs a name" in said(send(agent, "x", {"dev": True}))


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who")


def test_where_functions_run() -> None:
    agent = Agent("a")
    threads: dict[str, object] = {}

    def plain(name: str) -> str:
        threads[name] = threading.current_thread()
        return name + WHO.get("?")

    async def asynchronous(name: str) -> str:
        threads[name] = threading.current_thread()
        return name

    @agent.skill
    async def on_loop(turn: Turn) -> str:
        threads["loop"] = threading.current_thread()
        WHO.set("!")
        told = [await turn.step("1", plain, "a"), await turn.step("2", asynchronous, name="b")]
        told.append(await turn.step("3", lambda: asynchronous("c")))
        return " ".join(told)

    @agent.skill
    def in_thread(turn: SyncTurn) -> str:
        threads["thread"] = threading.current_thread()
        return " ".join([turn.step("1", plain, "d"), turn.step("2", asynchronous, name="e")])

    async def talk(client: TestClient) -> list[str]:
        first = await client.send("x")
        return [text(first), text(await client.send("x", metadata={"skill": "in_thread"}))]

    assert drive(agent, talk) == ["a! b c", "d? e"]
    assert threads["a"] is not threads["loop"]
    assert threads["b"] is threads["c"] is threads["e"] is threads["loop"]
    assert threads["d"] is threads["thread"]


def test_what_a_step_gives_may_be_changed_without_changing_the_log() -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> list[int]:
        found = await turn.step("list", lambda: [1])
        found.append(2)
        return found

    async def talk(client: TestClient) -> list[Any]:
        task = await client.send("x")
        app: Any = client._inside._app
        return [
            one.event.result for one in await app.host.store.log.read("default", task["id"]) if one.seq == 3
        ]

    assert drive(agent, talk) == [[1]]


def test_a_direct_answer_may_follow_a_step() -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> Any:
        return turn.message(await turn.step("look", lambda: "found"))

    assert send(agent, "x")["parts"] == [{"text": "found"}]


class Twice:
    """An agent whose first run stops at a gate, in a process that then goes away; the second runs through."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = f"sqlite:///{tmp_path / 'twice.db'}"
        self.runs = 0
        self.done: list[str] = []
        self.here = asyncio.Event()

    async def gate(self) -> None:
        if self.runs == 1:
            self.here.set()
            await asyncio.get_running_loop().create_future()

    def do(self, name: str) -> str:
        self.done.append(f"{name}{self.runs}")
        return self.done[-1]

    def client(self, agent: Agent) -> TestClient:
        return agent.test_client(store=self.store, drain_limit=0, cancel_limit=1)

    def play(self, agent: Agent, extensions: str = "") -> Any:
        async def main() -> Any:
            async with asyncio.timeout(LIMIT_S):
                async with self.client(agent) as client:
                    client.headers["A2A-Extensions"] = extensions
                    task = await begin(client, "go")
                    await self.here.wait()
                async with self.client(agent) as client:
                    return await until(client, task["id"], "completed", "failed")

        return asyncio.run(main())


def test_a_resumed_run_takes_recorded_steps_and_does_the_rest(tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill(on_crash="resume")
    async def skill(turn: Turn) -> None:
        twice.runs += 1
        await turn.write("began, ")
        first = await turn.step("first", twice.do, "a")
        await turn.write(f"{first}, ")
        await turn.status("waiting")
        await turn.artifact(data={"first": first}, name="facts")
        await asyncio.gather(turn.step("second", twice.do, "b"), turn.step("third", twice.do, "c"))
        await turn.step("gate", twice.gate)
        await turn.write(await turn.step("fourth", twice.do, "d"))

    task = twice.play(agent)
    assert text(task) == "began, a1, d2"
    assert task["artifacts"][1]["parts"] == [{"data": {"first": "a1"}}]
    assert sorted(twice.done) == ["a1", "b1", "c1", "d2"]


def test_a_restarted_run_does_everything_again(tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a", on_crash="restart")

    @agent.skill
    def skill(turn: SyncTurn) -> None:
        twice.runs += 1
        turn.write(f"run {twice.runs}: ")
        turn.write(turn.step("first", twice.do, "a"))
        turn.step("gate", twice.gate)

    task = twice.play(agent)
    assert text(task) == "run 2: a2"
    assert twice.done == ["a1", "a2"]


def test_without_a_word_a_crash_fails_the_task(tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> None:
        twice.runs += 1
        await twice.gate()

    assert state(twice.play(agent)) == "failed"
    assert twice.runs == 1


@pytest.mark.parametrize("swallow", [False, True])
def test_a_step_of_another_name_fails_the_task_whatever_the_skill_makes_of_it(
    swallow: bool, tmp_path: Path
) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill(on_crash="resume")
    async def skill(turn: Turn) -> str:
        twice.runs += 1
        try:
            await turn.write("before ")
            await turn.step("charge" if twice.runs == 1 else "refund", twice.do, "x")
            await twice.gate()
        except Exception:
            if not swallow:
                raise
        return "after"

    task = twice.play(agent)
    assert (state(task), text(task)) == ("failed", "before ")
    assert "step 1 is recorded as 'charge' and is now 'refund'" in said(task)
    assert twice.done == ["x1"]


@pytest.mark.parametrize("extensions", ["", "https://elsewhere.example/ext"])
def test_a_step_that_is_left_out_fails_the_task(extensions: str, tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill(on_crash="resume")
    async def skill(turn: Turn) -> str:
        twice.runs += 1
        if twice.runs == 1:
            await turn.step("charge", twice.do, "x")
        await twice.gate()
        # Its caller may not want to know, which is a step of its own.
        turn.usage(input_tokens=1)
        return "done"

    task = twice.play(agent, extensions)
    assert state(task) == "failed"
    assert "step 1 is recorded as 'charge' and " in said(task)


@pytest.mark.parametrize("word", ["fail", "reject"])
def test_a_failure_before_the_recorded_steps_keeps_its_reason(word: str, tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill(on_crash="resume")
    async def skill(turn: Turn) -> str:
        twice.runs += 1
        if twice.runs == 2:
            getattr(turn, word)("the shop is closed")
        await turn.step("charge", twice.do, "x")
        await twice.gate()
        return "done"

    task = twice.play(agent)
    assert state(task) == "failed"
    assert ("the shop is closed" if word == "fail" else "step 1 is recorded as 'charge'") in said(task)


def test_steps_are_not_on_the_wire() -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> str:
        return await turn.step("secret name", lambda: "shown")

    frames = stream(agent, "x")
    assert pieces(frames) == ["shown"]
    assert "secret name" not in str(frames)
    assert [next(iter(frame)) for frame in frames] == [
        "task",
        "statusUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]


def test_an_exception_in_a_step_is_raised_and_not_recorded(tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    def fails() -> str:
        if twice.runs == 1:
            raise LookupError("not there")
        return "there"

    @agent.skill(on_crash="resume")
    async def skill(turn: Turn) -> str:
        twice.runs += 1
        try:
            found = await turn.step("look", fails)
        except LookupError:
            found = "nothing"
        await twice.gate()
        return found

    assert text(twice.play(agent)) == "there"


def test_steps_and_answers_outlive_the_process_in_every_mode(tmp_path: Path) -> None:
    twice, agent = Twice(tmp_path), Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> str:
        twice.runs += 1
        first = await turn.step("first", twice.do, "a")
        name = await turn.ask("Which one?")
        return f"{first} {name} {await turn.step('second', twice.do, 'b')}"

    async def main() -> Any:
        async with asyncio.timeout(LIMIT_S):
            async with twice.client(agent) as client:
                task = await client.send("go")
            async with twice.client(agent) as client:
                return await client.send("that", taskId=task["id"])

    assert text(asyncio.run(main())) == "a1 that b2"


def test_threads_that_come_to_their_steps_together_get_places_of_their_own() -> None:
    places: list[int] = []

    def step_of_another_thread(turn: Turn) -> None:
        other = threading.Thread(target=lambda: places.append(turn.next_step("other")))
        other.start()
        other.join()

    def interrupted(turn: Turn) -> None:
        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code is not Turn.next_step.__code__:
                return None
            if event == "line":
                # Between any two lines another thread may come.
                step_of_another_thread(turn)
            return trace

        sys.settrace(trace)
        try:
            places.append(turn.next_step("mine"))
        finally:
            sys.settrace(None)

    agent = Agent("a")

    @agent.skill
    async def act(turn: Turn) -> str:
        thread = threading.Thread(target=interrupted, args=(turn,))
        thread.start()
        await asyncio.to_thread(thread.join)
        return "done"

    send(agent, "go")
    assert len(places) > 2
    assert sorted(places) == list(range(len(places)))
