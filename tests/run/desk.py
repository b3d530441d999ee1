"""A real runner on a real in-memory store, driven by executors of a few lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.run.stores import Intercepted
from trunkline.clock import Ids, now_ms
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.log.fold import NEVER
from trunkline.run.backlog import pages
from trunkline.run.executor import OnCrash, Verdict, Work, never
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.run.runner import Runner
from trunkline.store.base import Log
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup
from trunkline.wire.types import TERMINAL, Message, Part, Role, SendRequest, TaskState

LIMIT_S = 60.0
DONE = ev.Status(TaskState.COMPLETED)
WORKING = ev.Status(TaskState.WORKING)
QUICK = Limits(cancel_s=0.2, drain_s=0.2)
AGENT = "acts"

Act = Callable[[Work], Awaitable[Verdict]]


async def until(reached: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; `run` sets the limit."""
    while not reached():  # noqa: ASYNC110 - nothing there to wait on
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end within the limit; nothing may be left behind, and nothing complained of."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(LIMIT_S):
            await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(main())
    assert not complaints, complaints


class Acts:
    """An executor that calls one function."""

    works_elsewhere = False

    def __init__(self, act: Act, crash: OnCrash = OnCrash.FAIL) -> None:
        self._act = act
        self._crash = crash

    def admit(self, request: SendRequest) -> str:
        return "act"

    def on_crash(self, skill: str) -> OnCrash:
        return self._crash

    async def close(self) -> None:
        pass

    async def run(self, work: Work) -> Verdict:
        return await self._act(work)


class Flaky(Intercepted):
    """A store that fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.bad_appends = 0
        self.bad_reads = 0

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        if self.bad_appends:
            self.bad_appends -= 1
            ack = Ack()
            ack.settle(StoreError("the disk is full"))
            return ack
        return super().append(*args, **kwargs)

    async def read(self, *args: Any, **kwargs: Any) -> list[ev.Recorded]:
        if self.bad_reads:
            self.bad_reads -= 1
            raise StoreError("the disk is gone")
        return await super().read(*args, **kwargs)


class Desk(Runner):
    """A runner with short words for what tests do."""

    store: Flaky

    async def open(self, text: str = "go", *, dedup: Dedup | None = None, context_id: str = "") -> Feed:
        feed, opened = self.submit("t", "me", SendRequest(said(text, context_id)), dedup, agent=self.origin)
        await opened
        return feed

    @property
    def executor(self) -> Any:
        return self.agent(self.origin).executor

    @executor.setter
    def executor(self, executor: Any) -> None:
        self._node.by_name = dict.fromkeys(("", AGENT), HostedAgent(AGENT, executor))

    async def find(self, task_id: str) -> Feed:
        return await self.tasks.find("t", "me", task_id, self.names_of(self.origin))

    async def ended(self, feed: Feed) -> TaskState:
        await self.tasks.end(feed, LIMIT_S)
        assert feed.state.over, feed.state.state
        return feed.state.state

    async def reach(self, feed: Feed, state: TaskState) -> None:
        while feed.state.state is not state:
            await self.tasks.move(feed, LIMIT_S)

    async def log(self, feed: Feed) -> list[ev.AnyEvent]:
        """The stored events, after a check of what holds for every log."""
        recorded: list[ev.Recorded] = []
        while batch := await self.store.log.read(feed.tenant, feed.state.task_id, len(recorded)):
            recorded += batch
        assert [one.seq for one in recorded] == list(range(1, len(recorded) + 1))
        events = [one.event for one in recorded]
        ends = [place for place, event in enumerate(events) if is_end(event)]
        assert ends in ([], [len(events) - 1]), events
        return events

    async def left_all(self) -> None:
        """Until no executor is at work."""
        await until(lambda: not self.running)


class Shared(Flaky):
    """A store that several runners use, as if they were in several processes."""

    @property
    def shared(self) -> bool:
        return True


@asynccontextmanager
async def desk(
    act: Act,
    limits: Limits = QUICK,
    store: Flaky | None = None,
    crash: OnCrash = OnCrash.FAIL,
    *,
    stall_s: float = 60.0,
    retention_s: float = 0.0,
) -> AsyncIterator[Desk]:
    """A started runner; it is stopped at the end, and its store too if it is its own."""
    own = store is None
    store = store or Flaky()
    if own:
        await store.open()
    hosted = HostedAgent(AGENT, Acts(act, crash), stall_s, retention_s)
    runner = Desk(store, [hosted], Ids(), limits)
    runner.store = store
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()
        if own:
            await store.close()


def said(text: str = "go", context_id: str = "") -> Message:
    """A user's message."""
    return Message(message_id="m", context_id=context_id, role=Role.USER, parts=(Part(text=text),))


def delta(text: object) -> ev.Delta:
    """A piece of the answer."""
    return ev.Delta("answer", str(text))


def question(text: str = "which?") -> ev.Status:
    """A question to the caller."""
    return ev.Status(TaskState.INPUT_REQUIRED, said(text))


def is_end(event: ev.AnyEvent) -> bool:
    """Whether this event ends a task."""
    return isinstance(event, ev.Replied) or (isinstance(event, ev.Status) and event.state in TERMINAL)


def reason(feed: Feed) -> str:
    """What was said with the last status."""
    message = feed.state.status_message
    return "" if message is None else "".join(part.text or "" for part in message.parts)


def answer(feed: Feed) -> str:
    """What was written so far."""
    return "".join(part.text or "" for part in feed.state.artifacts.whole("answer").parts)


async def appended(work: Work) -> None:
    """Wait until something more is appended to the log of a task."""
    seq = work.state.seq
    await work.until(lambda: work.state.seq > seq)


async def sleep_until(work: Work, at: int, longest_ms: int = NEVER) -> None:
    """Wait for a recorded moment."""
    await work.until(never, work.moment(at, longest_ms))


async def child_rest(work: Work, child: str) -> None:
    """Wait until a child of a task has ended or asks."""
    await work.until(lambda: work.state.has_rested(child, 0), children=(child,))


async def follow(log: Log, feed: Feed, after: int) -> list[int]:
    """Read a feed as a stream does, to the end of its task; gives the seqs."""
    seqs: list[int] = []
    loop = asyncio.get_running_loop()
    while True:
        records = feed.newer(after)
        if records is None:
            async for page in pages(log, feed, after):
                seqs += [one.seq for one in page]
                after = seqs[-1]
            records = feed.newer(after) or []
        seqs += [one.seq for one in records]
        after = seqs[-1] if seqs else after
        if feed.state.over and after == feed.state.seq:
            return seqs
        if after == feed.state.seq:
            await feed.changed(loop)
