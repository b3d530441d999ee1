"""How functions are called: on the loop, in a thread, as generators; and what they may do there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest

from tests.agent.drive import begin, drive, parts, pieces, refusal, said, send, state, stream, text
from trunkline import Agent, Artifact, Misuse, Part, SyncTurn, Turn, TurnOver
from trunkline.agent.executor import SkillExecutor
from trunkline.agent.testing import TestClient
from trunkline.config import Settings
from trunkline.errors import RouteNotFound


@pytest.fixture
def agent() -> Agent:
    return Agent("under test")


def test_async_function_runs_on_the_loop(agent: Agent) -> None:
    @agent.skill
    async def where(text: str) -> str:
        asyncio.get_running_loop()
        return f"{text} on {threading.current_thread() is threading.main_thread()}"

    assert text(send(agent, "runs")) == "runs on True"


def test_sync_function_runs_in_a_thread(agent: Agent) -> None:
    @agent.skill
    def where(text: str) -> str:
        return f"{text} on {threading.current_thread() is threading.main_thread()}"

    assert text(send(agent, "runs")) == "runs on False"


def test_a_blocking_function_blocks_nobody_else(agent: Agent) -> None:
    opened = threading.Event()

    @agent.skill
    def wait(text: str) -> str:
        return f"{text} {opened.wait(60)}"

    @agent.skill
    async def release(text: str) -> str:
        opened.set()
        return text

    async def talk(client: TestClient) -> Any:
        first = asyncio.get_running_loop().create_task(client.send("waited"))
        await client.send("go", metadata={"skill": "release"})
        return await first

    assert text(drive(agent, talk)) == "waited True"


def test_async_generator_streams(agent: Agent) -> None:
    @agent.skill
    async def words(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield word + " "

    frames = stream(agent, "one two three", {"coalesce_characters": 1})
    assert pieces(frames)[:3] == ["one ", "two ", "three "]
    assert "statusUpdate" in frames[-1]


def test_sync_generator_streams(agent: Agent) -> None:
    @agent.skill
    def words(text: str) -> Iterator[str]:
        for word in text.split():
            yield word + " "

    frames = stream(agent, "one two three", {"coalesce_characters": 1})
    assert pieces(frames)[:3] == ["one ", "two ", "three "]
    assert state(frames[-1]["statusUpdate"]) == "completed"


def test_a_generator_may_yield_more_than_text(agent: Agent) -> None:
    @agent.skill
    async def mixed(text: str) -> AsyncIterator[object]:
        yield "written"
        yield {"number": 1}
        yield Artifact("mine", parts=(Part(text="as it is"),))
        yield b"bytes"

    task = send(agent, "go")
    assert [artifact["artifactId"] for artifact in task["artifacts"]] == [
        "answer",
        "artifact-1",
        "mine",
        "artifact-2",
    ]
    assert [artifact["parts"][0] for artifact in task["artifacts"]] == [
        {"text": "written"},
        {"data": {"number": 1}},
        {"text": "as it is"},
        {"raw": "Ynl0ZXM=", "mediaType": "application/octet-stream"},
    ]


def test_a_generator_that_raises_keeps_what_it_said(agent: Agent) -> None:
    @agent.skill
    async def breaks(text: str) -> AsyncIterator[str]:
        yield "so far"
        raise ValueError("no further")

    task = send(agent, "go")
    assert (state(task), text(task)) == ("failed", "so far")


class Adder:
    """A skill that is an object."""

    def __init__(self, much: str) -> None:
        self.much = much

    def __call__(self, text: str) -> str:
        return text + self.much


class Waiter(Adder):
    async def __call__(self, text: str) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return text + self.much


def test_objects_that_can_be_called(agent: Agent) -> None:
    agent.skill(id="now")(Adder("!"))
    agent.skill(id="later")(Waiter("?"))
    assert text(send(agent, "well", metadata={"skill": "now"})) == "well!"
    assert text(send(agent, "well", metadata={"skill": "later"})) == "well?"


def test_a_partial_function(agent: Agent) -> None:
    async def join(left: str, text: str) -> str:
        return left + text

    agent.skill(id="join")(partial(join, "left "))
    assert text(send(agent, "right")) == "left right"


def test_a_wrapper_that_hides_a_coroutine(agent: Agent) -> None:
    def traced(function: Callable[[str], Awaitable[str]]) -> Callable[[str], Awaitable[str]]:
        @wraps(function)
        def wrapper(text: str) -> Awaitable[str]:
            return function(text)

        return wrapper

    @agent.skill
    @traced
    async def echo(text: str) -> str:
        return text

    assert text(send(agent, "hidden")) == "hidden"


def test_a_function_that_hands_out_a_coroutine(agent: Agent) -> None:
    async def inner(text: str) -> str:
        await asyncio.sleep(0)
        return text

    agent.skill(id="lazy")(lambda text: inner(text))
    assert text(send(agent, "unawaited")) == "unawaited"


def test_a_blocking_turn_does_not_block_the_loop_of_the_agent(agent: Agent) -> None:
    caught: list[Misuse] = []

    async def inner(turn: SyncTurn) -> str:
        try:
            turn.write("from the loop")
        except Misuse as misuse:
            caught.append(misuse)
        return "went on"

    agent.skill(id="lazy")(lambda turn: inner(turn))
    assert text(send(agent, "go")) == "went on"
    assert "make the skill an async function" in str(caught[0])


def test_a_sync_function_may_run_a_loop_of_its_own(agent: Agent) -> None:
    @agent.skill
    def work(turn: SyncTurn) -> str:
        async def inside() -> None:
            turn.write("from a loop ")
            await asyncio.sleep(0)
            turn.write("of its own")

        asyncio.run(inside())
        return turn.written

    assert text(send(agent, "go")) == "from a loop of its own"


def test_a_wrapper_that_hides_an_async_generator(agent: Agent) -> None:
    async def words() -> AsyncIterator[str]:
        yield "one "
        yield "two"

    @agent.skill
    def hidden(text: str) -> object:
        return words()

    assert text(send(agent, "go")) == "one two"


def test_blocking_turn_in_a_sync_function(agent: Agent) -> None:
    @agent.skill
    def work(turn: SyncTurn) -> str:
        turn.status("reading")
        turn.write("some text, ")
        turn.artifact(data={"n": 1}, name="numbers")
        turn.usage(input_tokens=3)
        answer = turn.ask("And then?")
        turn.write(answer)
        return turn.written

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        assert (state(asked), said(asked)) == ("input-required", "And then?")
        return await client.send("the end", taskId=asked["id"])

    task = drive(agent, talk)
    assert state(task) == "completed"
    assert text(task) == "some text, the end"
    assert {"data": {"n": 1}} in parts(task)
    assert any(uri.endswith("cost-v1") for one in task["artifacts"] for uri in one.get("metadata", {}))


@pytest.mark.parametrize(
    ("verdict", "expected"), [("fail", "failed"), ("reject", "rejected"), ("finish", "completed")]
)
def test_verdicts_of_a_sync_function(agent: Agent, verdict: str, expected: str) -> None:
    @agent.skill
    def work(turn: SyncTurn) -> None:
        getattr(turn, verdict)("because")

    task = send(agent, "go")
    assert (state(task), said(task)) == (expected, "because")


def test_a_hung_sync_function_is_canceled(agent: Agent) -> None:
    entered, let_go = threading.Event(), threading.Event()

    @agent.skill
    def hang(text: str) -> str:
        entered.set()
        let_go.wait(60)
        return "too late"

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await asyncio.to_thread(entered.wait, 10)
        canceled = await client.cancel(task["id"])
        let_go.set()
        return canceled, await client.get(task["id"])

    canceled, later = drive(agent, talk)
    assert state(canceled) == "canceled"
    assert later == canceled
    assert "artifacts" not in later


def test_a_canceled_sync_function_is_stopped_at_its_next_word(agent: Agent) -> None:
    entered, let_go, ended = threading.Event(), threading.Event(), threading.Event()
    heard: list[BaseException] = []

    @agent.skill
    def work(turn: SyncTurn) -> None:
        entered.set()
        let_go.wait(60)
        try:
            turn.write("too late")
        except BaseException as error:
            heard.append(error)
            raise
        finally:
            ended.set()

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await asyncio.to_thread(entered.wait, 10)
        await client.cancel(task["id"])
        let_go.set()
        assert await asyncio.to_thread(ended.wait, 10)
        return await client.get(task["id"])

    task = drive(agent, talk)
    assert state(task) == "canceled"
    assert "artifacts" not in task
    assert [type(error) for error in heard] == [TurnOver]


@pytest.mark.parametrize("how", ["canceled", "server stops"])
def test_a_sync_function_does_not_wait_for_an_answer_that_cannot_come(agent: Agent, how: str) -> None:
    ended = threading.Event()
    heard: list[BaseException] = []

    @agent.skill
    def work(turn: SyncTurn) -> None:
        try:
            turn.ask("Anybody?")
        except BaseException as error:
            heard.append(error)
            raise
        finally:
            ended.set()

    async def talk(client: TestClient) -> None:
        task = await client.send("go")
        if how == "canceled":
            assert state(await client.cancel(task["id"])) == "canceled"
            assert await asyncio.to_thread(ended.wait, 10)

    drive(agent, talk)
    assert ended.wait(60), "the thread still waits"
    assert [type(error) for error in heard] == [TurnOver]


def test_a_thread_is_let_out_even_if_it_was_only_just_going_to_wait(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    heard: list[BaseException] = []
    really = asyncio.run_coroutine_threadsafe

    @agent.skill
    def work(turn: SyncTurn) -> None:
        def released_meanwhile(waited: Any, loop: Any) -> Any:
            wait = really(waited, loop)
            turn.release()
            return wait

        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", released_meanwhile)
        try:
            turn.ask("Anybody?")
        except TurnOver as over:
            heard.append(over)
        ended.set()

    async def talk(client: TestClient) -> bool:
        await begin(client, "go")
        return await asyncio.to_thread(ended.wait, 10)

    assert drive(agent, talk), "the thread still waits"
    assert len(heard) == 1


def test_an_executor_that_ignores_its_cancellation(agent: Agent) -> None:
    started, through = asyncio.Event(), asyncio.Event()
    stubborn: list[str] = []

    @agent.skill
    async def work(turn: Turn) -> str:
        started.set()
        while len(stubborn) < 50:
            try:
                await asyncio.sleep(0.01)
                stubborn.append("still here")
            except asyncio.CancelledError:
                stubborn.append("never mind")
        through.set()
        await turn.write("late words")
        return "late result"

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await started.wait()
        canceled = await client.cancel(task["id"])
        await through.wait()
        return canceled, await client.get(task["id"])

    canceled, later = drive(agent, talk, cancel_limit=0.05)
    assert "never mind" in stubborn
    assert state(canceled) == "canceled"
    assert later == canceled


def test_a_cancellation_that_is_answered_with_a_result(agent: Agent) -> None:
    started = asyncio.Event()

    @agent.skill
    async def work(turn: Turn) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await turn.write("cleaned up")
            raise
        return "not reached"

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await started.wait()
        return await client.cancel(task["id"])

    task = drive(agent, talk)
    assert (state(task), text(task)) == ("canceled", "cleaned up")


def test_what_the_card_says_is_taken_from_the_function(agent: Agent) -> None:
    @agent.skill
    def count_words(text: str) -> int:
        """Count the words
        of a text.

        More than that is not said.
        """
        return len(text.split())

    skill = agent.skills["count_words"]
    assert (skill.name, skill.description, skill.tags) == (
        "Count words",
        "Count the words of a text.",
        ("count_words",),
    )
    assert (skill.input_modes, skill.output_modes) == (("text/plain",), ("text/plain", "application/json"))
    assert parts(send(agent, "one two")) == [{"data": 2}]


def test_what_the_author_says_goes_before_it(agent: Agent) -> None:
    @agent.skill(
        id="wc",
        name="Words",
        description="Counts",
        tags=["a"],
        examples=["b"],
        input_modes=["text/*"],
        output_modes=["application/json"],
    )
    def count_words(text: str) -> int:
        """Say nothing."""
        return 0

    skill = agent.skills["wc"]
    assert (skill.name, skill.description, skill.tags, skill.examples) == ("Words", "Counts", ("a",), ("b",))
    assert (skill.input_modes, skill.output_modes) == (("text/*",), ("application/json",))


@pytest.mark.parametrize("place", ["metadata", "agent_id"])
def test_a_skill_that_is_not_public_is_not_named_to_who_guesses(place: str) -> None:
    agent = Agent("shop")

    @agent.skill
    def buy(text: str) -> str:
        return text

    @agent.skill(public=False)
    def refund_all(text: str) -> str:
        return text

    executor = SkillExecutor("shop", agent.skills, agent.default, Settings())
    if place == "metadata":
        told = refusal(agent, "x", metadata={"skill": "guess"})["message"]
        assert send(agent, "x", metadata={"skill": "refund_all"})["status"]["state"] == "TASK_STATE_COMPLETED"
    else:
        with pytest.raises(RouteNotFound) as caught:
            executor.named("guess")
        told = caught.value.message
        assert executor.named("refund_all") == "refund_all"
    assert "buy" in told and "refund" not in told
