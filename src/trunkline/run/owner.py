"""One task in work: claim → executor → append → release.

The executor runs in a task of its own that no connection can end. What it emits is buffered
and appended in order, one append in flight; the log decides whether it still counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from asyncio import AbstractEventLoop, Future
from typing import Protocol

from trunkline.errors import Conflict, Misuse, StoreError, TurnOver
from trunkline.log.decide import Emit, decide
from trunkline.log.events import AnyEvent, Replied, Status
from trunkline.log.fold import State
from trunkline.log.ids import Ids
from trunkline.run.executor import Executor, Verdict
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.wire.types import TERMINAL, Message, Part, Role, TaskState

log = logging.getLogger("trunkline.run")
UNFLUSHED_LIMIT = 64
RETRY_S = 0.5


class Desk(Protocol):
    """What an owner needs of the runner that started it."""

    node: str
    ids: Ids
    tasks: Tasks
    executor: Executor
    dev: bool
    cancel_limit_s: float

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something in the background, owned by the runner."""
        ...

    def left(self, owner: Owner) -> None:
        """The owner is done with its task."""
        ...


class Owner:
    """Runs one task's executor and records what it says."""

    __slots__ = (
        "_asked",
        "_buffer",
        "_desk",
        "_drained",
        "_flushing",
        "_force",
        "_in_flight",
        "_loop",
        "_replayed",
        "_started_at",
        "_stop",
        "_task",
        "_unsaid",
        "earlier",
        "feed",
        "heard_at",
        "ids",
        "waiting",
    )

    def __init__(self, desk: Desk, feed: Feed, loop: AbstractEventLoop) -> None:
        self.feed = feed
        self.ids = desk.ids
        self.earlier: tuple[Message, ...] = ()
        self.waiting = False
        self.heard_at = self._started_at = loop.time()
        self._desk = desk
        self._loop = loop
        self._asked = 0
        self._replayed = len(feed.state.answers)
        self._buffer: list[AnyEvent] = []
        self._flushing = False
        self._in_flight: tuple[AnyEvent, ...] = ()
        self._drained: list[Future[None]] = []
        self._stop: Status | None = None
        self._force: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsaid = feed.state.state is TaskState.SUBMITTED
        feed.runner = self

    @property
    def state(self) -> State:
        """The task as recorded."""
        return self.feed.state

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since this executor began, at least one."""
        return max(1, round((self._loop.time() - self._started_at) * 1000))

    def start(self) -> None:
        """Begin; whatever the executor says before it first waits goes into one append."""
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._done)
        self._loop.call_soon(self._first_pause)

    def _first_pause(self) -> None:
        if self._unsaid and self._task is not None and not self._task.done():
            self._unsaid = False
            if not self._buffer:
                self.put(Status(TaskState.WORKING))
        if self._buffer and not self._flushing:
            self._flush()

    async def emit(self, event: AnyEvent) -> None:
        """Record an event, waiting only when too many are not yet durable."""
        self.put(event)
        if len(self._buffer) >= UNFLUSHED_LIMIT:
            await self.drain()

    def put(self, event: AnyEvent) -> None:
        """Record an event with the next flush."""
        if self._asked < self._replayed:
            return
        if self.feed.state.over:
            raise TurnOver(f"task {self.feed.state.task_id} has ended")
        self.heard_at = self._loop.time()
        self._buffer.append(event)
        if not self._flushing and not self._unsaid:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def ask(self, status: Status) -> Message:
        """Interrupt the task and wait for the caller; the log holds the answers."""
        place, self._asked = self._asked, self._asked + 1
        answers = self.feed.state.answers
        if place >= len(answers):
            self._buffer.append(status)
            self.waiting = True
            try:
                await self.drain()
                while place >= len(answers):
                    await self.feed.changed(self._loop)
            finally:
                self.waiting = False
                self.heard_at = self._loop.time()
        return answers[place]

    def moved(self) -> None:
        """The log moved: an end that is not ours, or a cancel, stops the executor."""
        state = self.feed.state
        if state.over and not self._flushing:
            self._interrupt(Status(TaskState.CANCELED))
        elif state.cancel_requested and self._stop is None:
            self.stop(Status(TaskState.CANCELED))

    def stop(self, verdict: Status) -> None:
        """Ask the executor to end, and give this verdict without it if it does not in time."""
        if self._interrupt(verdict):
            self._force = self._loop.call_later(self._desk.cancel_limit_s, self._overrule)

    def stop_with(self, text: str) -> None:
        """Ask the executor to end as failed, for this reason."""
        self.stop(self._say(TaskState.FAILED, text))

    def abandon(self) -> None:
        """Leave the task as it is; whoever claims it next goes on from the log."""
        if self._task is not None:
            self._task.cancel()

    def _interrupt(self, verdict: Status) -> bool:
        if self._task is None or self._task.done() or self._stop is not None:
            return False
        self._stop = verdict
        self._task.cancel()
        return True

    def _overrule(self) -> None:
        # The executor ignores its cancellation. Its thread or coroutine may go on, its words no longer count.
        if self._stop is not None:
            log.warning("task.overruled task=%s", self.feed.state.task_id)
            self._buffer = [self._stop]
            if not self._flushing:
                self._flush()

    async def _run(self) -> None:
        verdict = await self._verdict()
        if not self.feed.state.over:
            self._buffer.append(verdict)
        await self.drain()

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._force is not None:
            self._force.cancel()
        self.feed.runner = None
        self._desk.left(self)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TurnOver):
            log.info("task.late task=%s reason=%s", self.feed.state.task_id, error)
        elif error is not None:
            log.error("task.lost task=%s", self.feed.state.task_id, exc_info=error)

    async def _verdict(self) -> Verdict:
        try:
            verdict = await self._desk.executor.run(self)
        except asyncio.CancelledError as error:
            if self._stop is not None:
                return self._stop
            if self._task is None or self._task.cancelling():
                raise
            # Nobody cancelled this executor: it awaited something else that was, and that is its failure.
            return self._failed(error)
        except TurnOver:
            raise
        except (Exception, SystemExit, BaseExceptionGroup) as error:  # noqa: BLE001 - logged with a reason id
            # An exit in a skill would end the whole server, and a group may hide one.
            return self._failed(error)
        if isinstance(verdict, Replied) or verdict.state in TERMINAL:
            return verdict
        return self._say(TaskState.FAILED, "The executor ended without a verdict.")

    def _failed(self, error: BaseException) -> Status:
        reason = self.ids.new()
        task_id = self.feed.state.task_id
        log.error("task.raised task=%s reason=%s", task_id, reason, exc_info=error)
        detail = f" {type(error).__name__}: {error}." if self._desk.dev else ""
        return self._say(TaskState.FAILED, f"The skill failed unexpectedly.{detail} Reason id {reason}.")

    def _say(self, state: TaskState, text: str) -> Status:
        known = self.feed.state
        message = Message(
            message_id=self.ids.new(),
            context_id=known.context_id,
            task_id=known.task_id,
            role=Role.AGENT,
            parts=(Part(text=text),),
        )
        return Status(state, message)

    async def drain(self) -> None:
        """Wait until everything emitted so far is durable.

        Raises:
            TurnOver: some of it came too late.
        """
        self._unsaid = False
        if self._buffer and not self._flushing:
            self._flush()
        if self._flushing:
            drained: Future[None] = self._loop.create_future()
            self._drained.append(drained)
            await drained

    def _flush(self) -> None:
        events = tuple(self._buffer)
        self._buffer.clear()
        if not events:
            self._settle(None)
            return
        self._flushing = True
        try:
            decided = decide(self.feed.state, Emit(self._desk.node, events))
        except TurnOver as over:
            log.info("task.late task=%s events=%d", self.feed.state.task_id, len(events))
            if not self._settle(over):
                self._interrupt(Status(TaskState.CANCELED))
            return
        self._in_flight = events
        try:
            self._desk.tasks.append(self.feed, decided, then=self._flushed)
        except Misuse as error:
            self._unwritable(error)

    def _unwritable(self, error: Misuse) -> None:
        # What the executor said cannot be stored as JSON; all that can be recorded is that it failed.
        verdict = self._failed(error)
        self._in_flight = ()
        self._buffer = [verdict]
        self._flush()
        self._interrupt(verdict)

    def _flushed(self, error: BaseException | None) -> None:
        events, self._in_flight = self._in_flight, ()
        if error is None:
            if self._buffer:
                self._flush()
            else:
                self._settle(None)
            return
        self._buffer[:0] = events
        if isinstance(error, Conflict):
            # Somebody spoke in between: read what, then decide anew whether our words still count.
            self._desk.spawn(self._again())
        elif isinstance(error, StoreError):
            # The store may recover (a full disk); until then back-pressure holds the executor.
            log.error("task.unwritten task=%s error=%s", self.feed.state.task_id, error)
            self._loop.call_later(RETRY_S, self._flush)
        else:
            self._settle(error)

    async def _again(self) -> None:
        await self._desk.tasks.refresh(self.feed)
        self._flush()

    def _settle(self, error: BaseException | None) -> bool:
        """End the flush; whether anybody waited for it."""
        self._flushing = False
        waiting, self._drained = self._drained, []
        told = False
        for drained in waiting:
            if drained.done():
                continue
            told = True
            if error is None:
                drained.set_result(None)
            else:
                drained.set_exception(error)
        return told
