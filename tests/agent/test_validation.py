"""Whatever a skill says is refused at the call, or reads back from the log as it was recorded."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.drive import drive, send, state, text
from trunkline import Agent, Misuse, SyncTurn, Turn
from trunkline.agent.executor import complete, emit_piece, end_early
from trunkline.agent.testing import TestClient
from trunkline.agent.turn import VerdictGiven
from trunkline.clock import Ids
from trunkline.config import Settings
from trunkline.log.encoding import decode, encode
from trunkline.log.events import AnyEvent, Chunk, Status
from trunkline.run.executor import Work
from trunkline.run.hops import Bounds
from trunkline.wire.types import Artifact, Message, Part, TaskState


class Text(str):
    """What a template engine gives."""

    __slots__ = ()


class Word(StrEnum):
    """What a model's library gives."""

    A = "a"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Recorder:
    """Keeps what a turn records, as an owner would be given it."""

    def __init__(self) -> None:
        self.ids = Ids()
        self.loop = asyncio.get_running_loop()
        self.state = SimpleNamespace(task_id="t", context_id="c", extensions=None)
        self.elapsed_ms = 1
        self.events: list[AnyEvent] = []

    def put(self, event: AnyEvent) -> None:
        self.events.append(event)

    async def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    async def drain(self) -> None: ...

    async def ask(self, status: Status) -> Message:
        self.events.append(status)
        return Message("answer", parts=(Part(text="yes"),))

    def recorded_step(self, place: int, name: str) -> None: ...


def recorded(say: Callable[[Turn], Any]) -> list[AnyEvent]:
    """All that a run leaves behind whose skill does this and then ends."""

    async def run() -> list[AnyEvent]:
        work = Recorder()
        turn = Turn(cast("Work", work), "skill", Settings(), Bounds())
        try:
            made = say(turn)
            verdict = await complete(turn, await made if inspect.isawaitable(made) else made)
        except VerdictGiven as ended:
            verdict = await end_early(turn, ended)
        return [*work.events, verdict]

    return asyncio.run(run())


SURROGATE = "\ud800"
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from([SURROGATE, "", Text("x"), Word.A, object(), 1j, ..., Part(), Part(text="p"), Artifact("a"), 2**70])
)  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Part, text=inner, data=inner, metadata=inner, media_type=inner)
        | st.builds(Artifact, inner, name=inner, parts=inner, metadata=inner)
        | st.builds(Message, inner, parts=inner, metadata=inner)
        | st.builds(Chunk, inner, append=inner)
    ),
    max_leaves=6,
) | st.sampled_from([nested(100), nested(101), nested(970), {"a": nested(970)}])
artifact_words = st.fixed_dictionaries(
    {},
    optional={
        name: values
        for name in (
            "text", "data", "file", "name", "filename", "media_type", "description", "artifact_id", "append",
            "last", "metadata",
        )
    },
)  # fmt: skip
CALLS: list[Callable[[Turn, Any, Any], Any]] = [
    lambda turn, one, two: turn.write(one),
    lambda turn, one, two: turn.status(one, two),
    lambda turn, one, two: turn.ask(one),
    lambda turn, one, two: turn.need_auth(one),
    lambda turn, one, two: turn.fail(one),
    lambda turn, one, two: turn.reject(one),
    lambda turn, one, two: turn.finish(one),
    lambda turn, one, two: turn.message(one, two),
    lambda turn, one, two: turn.usage(input_tokens=one, cost_usd=two),
    lambda turn, one, two: turn.confidence(one, two),
    lambda turn, one, two: turn.effect("shop", "orders", one, "set"),
    lambda turn, one, two: turn.effect(one, two, 1, "inc"),
    lambda turn, one, two: turn.step(one, lambda: two),
    lambda turn, one, two: turn.emit(one),
    lambda turn, one, two: emit_piece(turn, one),
    lambda turn, one, two: one,
]


@given(st.integers(0, len(CALLS) - 1), values, values)
def test_whatever_a_skill_says_reads_back_or_is_misuse(call: int, one: Any, two: Any) -> None:
    try:
        events = recorded(lambda turn: CALLS[call](turn, one, two))
    except Misuse:
        return
    assert decode(encode(events)) == events


@given(artifact_words, st.sampled_from(["text", "data", "file"]), values)
def test_whatever_an_artifact_is_made_of_reads_back_or_is_misuse(
    words: dict[str, Any], kind: str, content: Any
) -> None:
    given = {name: word for name, word in words.items() if name not in ("text", "data", "file")}
    try:
        events = recorded(lambda turn: turn.artifact(**{kind: content}, **given))
    except Misuse:
        return
    assert decode(encode(events)) == events


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda turn: turn.fail(["a"]), "reason is text, not list"),
    (lambda turn: turn.reject(5), "reason is text, not int"),
    (lambda turn: turn.finish({"a": 1}), "closing is text, not dict"),
    (lambda turn: turn.ask(["a"]), "question is text or parts, not a list with a str"),
    (lambda turn: turn.need_auth(5), "what is text or parts, not int"),
    (lambda turn: turn.status(["a"]), "text is text or parts, not a list with a str"),
    (lambda turn: turn.status("a", ["b"]), "metadata is a dict, not list"),
    (lambda turn: turn.message("a", ["b"]), "metadata is a dict, not list"),
    (lambda turn: turn.message(Part(text=5)), "content is a Part that does not fit"),  # type: ignore[arg-type]
    (lambda turn: turn.write(5), "text is text, not int"),
    (lambda turn: turn.write(SURROGATE), "text cannot be written as UTF-8"),
    (lambda turn: turn.artifact(text="a", append="artifact-1"), "append is True or False, not str"),
    (lambda turn: turn.artifact(text="a", last=1), "last is True or False, not int"),
    (lambda turn: turn.artifact(text="a", metadata=["b"]), "metadata is a dict, not list"),
    (lambda turn: turn.artifact(text="a", metadata={"b": object()}), "metadata is not JSON"),
    (lambda turn: turn.artifact(text="a", name=5), "name is text, not int"),
    (lambda turn: turn.artifact(text="a", media_type=b"b"), "media_type is text, not bytes"),
    (lambda turn: turn.artifact(data=1, filename=5), "filename is text, not int"),
    (lambda turn: turn.artifact(text="a", artifact_id=5), "artifact_id is text, not int"),
    (lambda turn: turn.artifact(text=5), "text is text, not int"),
    (lambda turn: turn.artifact(file=5), "file is bytes or a URL, not int"),
    (lambda turn: turn.artifact(data=object()), "data is not JSON"),
    (lambda turn: turn.artifact(data=nested(101)), "data is nested deeper than 100 levels"),
    (lambda turn: turn.artifact(text="a", metadata={"a": nested(100)}), "metadata is nested deeper than 100"),
    (lambda turn: turn.usage(input_tokens="5"), "input_tokens is a number, not str"),
    (lambda turn: turn.usage(cost_usd="5"), "cost_usd is a number, not str"),
    (lambda turn: turn.confidence("high"), "value is a number, not str"),
    (lambda turn: turn.confidence(1, 5), "explanation is text, not int"),
    (lambda turn: turn.effect("shop", "a", nested(101), "set"), "value is nested deeper than 100 levels"),
    (lambda turn: turn.effect("shop", "a", object(), "set"), "value is not JSON"),
    (lambda turn: turn.step("s", lambda: nested(101)), "is nested deeper than 100 levels"),
    (lambda turn: turn.step(SURROGATE, lambda: 1), "name cannot be written as UTF-8"),
    (lambda turn: turn.emit(Status(TaskState.WORKING, metadata=["a"])), "does not fit"),  # type: ignore[arg-type]
]


@pytest.fixture(params=["async", "sync"])
def agent_doing(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[Any], Any]], Agent]]:
    """An agent whose only skill, on the loop or in a thread, says this."""

    def make(say: Callable[[Any], Any]) -> Agent:
        agent = Agent("under test")
        if request.param == "async":

            @agent.skill
            async def work(turn: Turn) -> object:
                made = say(turn)
                return await made if inspect.isawaitable(made) else made

        else:

            @agent.skill(id="work")
            def plain(turn: SyncTurn) -> object:
                return say(turn)

        return agent

    yield make


@pytest.mark.parametrize(("say", "told"), REFUSED, ids=[told[:40] for _, told in REFUSED])
def test_it_is_refused_at_the_call_with_its_argument_and_type(
    say: Callable[[Any], Any], told: str, agent_doing: Callable[[Callable[[Any], Any]], Agent]
) -> None:
    caught: list[Misuse] = []

    def note(misuse: Misuse) -> None:
        caught.append(misuse)

    def body(turn: Any) -> Any:
        if isinstance(turn, SyncTurn):
            try:
                return say(turn)
            except Misuse as misuse:
                note(misuse)
                raise
        return _watched(say, turn, note)

    async def talk(client: TestClient) -> Any:
        task = await client.send("go")
        await client.list()
        return await client.get(task["id"])

    assert state(drive(agent_doing(body), talk)) == "failed"
    assert told in str(caught[0])


async def _watched(say: Callable[[Any], Any], turn: Any, note: Callable[[Misuse], None]) -> Any:
    try:
        made = say(turn)
        return await made if inspect.isawaitable(made) else made
    except Misuse as misuse:
        note(misuse)
        raise


def test_text_of_a_subclass_is_text() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        await turn.write(Text("one "))
        await turn.write(Word.A)
        await turn.artifact(text=Text(" two"), name=Text("n"))
        return turn.written

    assert text(send(agent, "go")) == "one a two"


@pytest.mark.parametrize("result", [object(), {(1, 2): 3}, {"x": threading.Lock()}, nested(101)])
@pytest.mark.parametrize("form", ["async", "sync"])
@pytest.mark.parametrize("end", ["return", "finish"])
def test_a_step_that_cannot_be_recorded_fails_the_task_whoever_catches_it(
    result: object, form: str, end: str
) -> None:
    agent = Agent("a")

    @agent.skill(id="async")
    async def on_loop(turn: Turn) -> str:
        try:
            await turn.step("odd one", lambda: result)
        except Misuse:
            if end == "finish":
                turn.finish("all is well")
        return "all is well"

    @agent.skill(id="sync")
    def in_thread(turn: SyncTurn) -> str:
        try:
            turn.step("odd one", lambda: result)
        except Misuse:
            if end == "finish":
                turn.finish("all is well")
        return "all is well"

    task = send(agent, "x", {"dev": True}, metadata={"skill": form})
    assert state(task) == "failed"
    assert "step 'odd one' gave back" in task["status"]["message"]["parts"][0]["text"]
