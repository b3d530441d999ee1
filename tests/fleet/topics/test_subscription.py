"""A subscriber of topics over both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.fleet.health.given import append, submitted
from tests.fleet.stores import AT, Replicas
from trunkline.fleet.topics import subscription as module
from trunkline.fleet.topics.frame_writers import SseWriter
from trunkline.fleet.topics.patterns import read_pattern
from trunkline.fleet.topics.place import FeedPlace, read_place
from trunkline.fleet.topics.reader import TopicReader, TopicSource
from trunkline.fleet.topics.subscription import TopicSubscription
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.store.base import Store
from trunkline.wire.sse import SseEvent, SseParser
from trunkline.wire.types import Artifact, Message, Part, TaskState

ASKS = ev.Status(TaskState.INPUT_REQUIRED, Message("q", parts=(Part(text="Which?"),)))
DONE = ev.Status(TaskState.COMPLETED)


class Listener:
    """A subscriber that leaves when it has heard enough."""

    def __init__(self, store: Store, pattern: str = "#", after: str | None = None, **members: Any) -> None:
        self.store = store
        self.pattern = read_pattern(pattern)
        self.after = after
        self.members = members
        self.sent: list[bytes] = []
        self.heard = asyncio.Event()

    @property
    def events(self) -> list[SseEvent]:
        return SseParser().feed(b"".join(self.sent))

    @property
    def topics(self) -> list[str]:
        return [msgspec.json.decode(one.data)["topic"] for one in self.events]

    @property
    def last_id(self) -> str:
        """The id that a browser would come back with."""
        lines = b"".join(self.sent).decode().splitlines()
        return [line for line in lines if line.startswith("id: ")][-1].removeprefix("id: ")

    async def run(self, count: int) -> None:
        end = await self.store.log.end()
        place = FeedPlace("") if self.after is None else read_place(self.after, end, 0, "after")

        async def answer_of(_tenant: str, task_id: str) -> str:
            await asyncio.sleep(0)
            return f"answer of {task_id}"

        reader = TopicReader(TopicSource(self.store.log, answer_of, "desk"), "north", self.pattern)

        async def receive() -> Any:
            await self.heard.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await asyncio.sleep(0)
            self.sent.append(message.get("body", b""))
            if len(self.events) >= count:
                self.heard.set()

        members: dict[str, Any] = {"keep_alive_s": 60.0, **self.members}
        await TopicSubscription(self.store.log, reader, "north", place, **members).serve(
            receive, SseWriter(send)
        )


async def two_tasks(store: Store) -> tuple[State, State]:
    one, other = State("t1"), State("t2")
    await append(store, other, submitted(), at=AT, tenant="south")
    await append(store, one, submitted(), ev.Claimed("n1"), at=AT)
    await append(store, one, ASKS, at=AT)
    return one, other


def test_D_17_every_subscriber_hears_everything_of_its_tenant(replicas: Replicas) -> None:
    async def work(store: Store, other_store: Store) -> None:
        task, _ = await two_tasks(store)
        whole, some = Listener(store), Listener(other_store, "hitl.*.*")
        # One that leaves in the midst of a page, and one that fails, are nobody else's business.
        leaves = Listener(store)
        running = [asyncio.create_task(each.run(count)) for each, count in ((whole, 5), (some, 2))]
        await leaves.run(1)
        await append(store, task, ev.FollowUp(Message("m", parts=(Part(text="red"),)), "bob"), at=AT)
        await append(store, task, DONE, at=AT)
        await asyncio.gather(*running)
        names = ["agent.skill.request", "hitl.request.t1", "hitl.response.t1", "agent.skill.response.t1"]
        assert whole.topics == [*names, "autonomous.outcome.desk.work"]
        assert some.topics == names[1:3]
        frame = msgspec.json.decode(whole.events[3].data)
        assert frame.keys() == {"topic", "correlationId", "timestamp", "payload"}
        assert frame["payload"]["textPreview"] == "answer of t1"

    replicas.run(work, 2)


def test_it_goes_on_behind_what_was_told_wherever_it_was_cut(replicas: Replicas) -> None:
    async def work(store: Store) -> None:
        task, _ = await two_tasks(store)
        for number in range(5):
            said = Message("m", parts=(Part(text=f"step {number}"),))
            await append(store, task, ev.Status(TaskState.WORKING, said), at=AT)
        await append(store, task, ASKS, at=AT)
        whole = Listener(store)
        await whole.run(8)
        heard: list[str] = []
        after: str | None = None
        while len(heard) < 8:
            cut = Listener(store, after=after)
            await cut.run(1)
            # It had one frame and was told more meanwhile, perhaps: what has arrived counts.
            heard += [one.data for one in cut.events]
            after = cut.last_id
        assert heard == [one.data for one in whole.events]
        # One without the tasks in its memory knows what an answer is.
        await append(store, task, ev.FollowUp(Message("m", parts=(Part(text="red"),))), at=AT)
        late = Listener(store, after=after)
        await late.run(1)
        assert late.topics == ["hitl.response.t1"]

    replicas.run(work)


def test_pieces_of_an_answer_are_joined_into_one_frame_and_none_is_lost(replicas: Replicas) -> None:
    async def work(store: Store) -> None:
        one, other = State("t1"), State("t2")
        for state in (one, other):
            await append(store, state, submitted(), at=AT)
        for number in range(5):
            await append(store, one, ev.Delta("a", f"{number} "), at=AT + 1000 * number)
            await append(store, other, ev.Delta("b", f"{number}!"), at=AT)
        await append(store, one, DONE, at=AT)
        whole = Artifact("b", parts=(Part(text="all"),))
        for event in (ev.Delta("b", "lost"), ev.Chunk(whole), ev.Delta("b", " of it")):
            await append(store, other, event, at=AT)
        listener = Listener(store, "agent.skill.#")
        await listener.run(6)
        frames = [msgspec.json.decode(one.data) for one in listener.events]
        members = ("artifactId", "append", "textPreview")
        assert [(one["topic"], *map(one["payload"].get, members)) for one in frames[2:]] == [
            ("agent.skill.progress.t1", "a", True, "0 1 2 3 4 "),
            ("agent.skill.progress.t2", "b", True, "0!1!2!3!4!"),
            ("agent.skill.response.t1", None, None, "answer of t1"),
            # An artifact that is sent as a whole stands for the pieces before it.
            ("agent.skill.progress.t2", "b", False, "all of it"),
        ]
        # A subscriber that resumes from the position of a frame gets every piece behind that frame.
        await append(store, other, ev.Delta("b", " and more"), at=AT)
        late = Listener(store, "agent.skill.progress.#", after=listener.last_id)
        await late.run(1)
        assert [msgspec.json.decode(one.data)["payload"]["textPreview"] for one in late.events] == [
            " and more"
        ]

    replicas.run(work)


def test_long_text_is_sent_in_several_frames_and_none_of_it_is_cut() -> None:
    async def work(store: Store) -> None:
        task, text = State("t1"), "".join([f"{number:03} " for number in range(400)])
        await append(store, task, submitted(), at=AT)
        for start in range(0, len(text), 24):
            await append(store, task, ev.Delta("a", text[start : start + 24]), at=AT)
        await append(store, task, DONE, at=AT)
        listener = Listener(store, "agent.skill.#")
        await listener.run(9)
        told = [msgspec.json.decode(one.data) for one in listener.events]
        pieces = [one["payload"]["textPreview"] for one in told if ".progress." in one["topic"]]
        assert "".join(pieces) == text
        assert len(pieces) == 7 and max(map(len, pieces)) < 300

    Replicas("memory:").run(work)


def test_text_is_joined_for_longer_than_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def work(store: Store) -> None:
        task, _ = await two_tasks(store)
        listener = Listener(store)
        running = asyncio.create_task(listener.run(6))
        # Each is appended once the subscriber has the one before it.
        for count, event in enumerate((ev.Delta("a", "one "), ev.Delta("a", "two "), DONE), 2):
            while len(listener.events) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await append(store, task, event, at=AT)
        await running
        assert {*pauses} == {module.PAUSE_S, module.TEXT_PAUSE_S} and pauses[0] == module.PAUSE_S
        assert module.PAUSE_S < module.TEXT_PAUSE_S < 1

    monkeypatch.setattr(module, "sleep", sleep)
    Replicas("memory:").run(work)


def test_a_quiet_one_is_told_its_place() -> None:
    async def work(store: Store) -> None:
        task, _ = await two_tasks(store)
        quiet = Listener(store, "none.of.them", keep_alive_s=0.0)
        running = asyncio.create_task(quiet.run(1))
        while int(quiet.last_id if quiet.sent[1:] else "0") < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        quiet.heard.set()
        await running
        assert quiet.events == []
        await append(store, task, DONE, at=AT)
        again = Listener(store, after=quiet.last_id)
        await again.run(1)
        assert again.topics[0] == "agent.skill.response.t1"

    Replicas("memory:").run(work)


def test_one_that_takes_nothing_is_cut_off() -> None:
    async def work(store: Store) -> None:
        await two_tasks(store)
        reader = TopicReader(TopicSource(store.log, never, "desk"), "north", ("#",))
        begun: list[Any] = []

        async def send(message: Any) -> None:
            begun.append(message)
            if len(begun) > 2:
                await asyncio.Event().wait()

        async def receive() -> Any:
            await asyncio.Event().wait()

        subscription = TopicSubscription(store.log, reader, "north", FeedPlace(""), 60.0, slow_s=0.01)
        await subscription.serve(receive, SseWriter(send))
        assert len(begun) == 3

    async def never(_tenant: str, _task_id: str) -> str:
        raise AssertionError

    Replicas("memory:").run(work)
