"""One task in work: claim → executor → append → release.

The executor runs in a task of its own that no connection can end. What it emits is buffered
and appended in order, one append in flight; the log decides whether it still counts.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Coroutine
from typing import Protocol

from trunkline.errors import Conflict, Misuse, StoreError, TurnOver
from trunkline.log.decide import Emit, decide
from trunkline.log.events import AnyEvent, Replied, Status
from trunkline.log.fold import State
from trunkline.log.ids import Ids
from trunkline.run.conversation import earlier
from trunkline.run.executor import Again, Executor, Verdict
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
    """Runs one task's executor and records what it says; begins as soon as it is made."""

    __slots__ = (
        "_abandoned",
        "_asked",
        "_begun",
        "_buffer",
        "_continues",
        "_desk",
        "_drained",
        "_flushing",
        "_force",
        "_held",
        "_in_flight",
        "_loop",
        "_question",
        "_replayed",
        "_spoken",
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

    def __init__(
        self,
        desk: Desk,
        feed: Feed,
        loop: AbstractEventLoop,
        *,
        continues: bool,
        again: Again = Again.NO,
    ) -> None:
        self.feed = feed
        self.ids = desk.ids
        self.earlier: tuple[Message, ...] = ()
        self.waiting = False
        self.heard_at = self._started_at = loop.time()
        self._desk = desk
        self._loop = loop
        self._continues = continues
        self._question: asyncio.Lock | None = None
        self._asked = 0
        self._replayed = len(feed.state.answers)
        self._buffer: list[AnyEvent] = []
        self._flushing = False
        self._held = False
        self._in_flight: tuple[AnyEvent, ...] = ()
        self._drained: list[Future[None]] = []
        self._stop: Status | None = None
        self._force: asyncio.TimerHandle | None = None
        self._begun = self._spoken = self._abandoned = False
        self._unsaid = feed.state.state is TaskState.SUBMITTED
        feed.runner = self
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._done)

    @property
    def state(self) -> State:
        """The task as recorded."""
        return self.feed.state

    @property
    def loop(self) -> AbstractEventLoop:
        """The loop the executor runs on."""
        return self._loop

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since this executor began, at least one."""
        return max(1, round((self._loop.time() - self._started_at) * 1000))

    @property
    def idle(self) -> bool:
        """Whether nothing is lost if the process ends now."""
        return self.waiting or self._abandoned or self.feed.state.over

    def _first_pause(self) -> None:
        # Whatever the executor said before it first waits goes into one append.
        if self._unsaid and not self._task.done():
            self._unsaid = False
            self._buffer = self._buffer or [Status(TaskState.WORKING)]
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
        if self._abandoned or self.feed.state.over:
            raise TurnOver(f"task {self.feed.state.task_id} has ended or been left")
        self.heard_at = self._loop.time()
        if self._question is not None and isinstance(event, Status) and self._question.locked():
            # Another coroutine of the executor has a question open; only the answer may close it.
            if event.state is TaskState.WORKING:
                return
        self._buffer.append(event)
        if not self._flushing and not self._unsaid:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def ask(self, status: Status) -> Message:
        """Interrupt the task and wait for the caller; the log holds the answers."""
        # One question at a time: the answer to one must not be taken for the answer to another.
        self._question = self._question or asyncio.Lock()
        async with self._question:
            place, answers = self._asked, self.feed.state.answers
            if place == len(answers):
                self.heard_at = self._loop.time()
                self._buffer.append(status)
                await self.drain()
                await self._answered(place)
            self._asked += 1
            return answers[place]

    async def _answered(self, place: int) -> None:
        self.waiting = True
        try:
            while place == len(self.feed.state.answers):
                await self.feed.changed(self._loop)
        finally:
            self.waiting = False
            self.heard_at = self._loop.time()

    def moved(self) -> None:
        """The log moved: an end or a claim that is not ours, or a cancel, stops the executor."""
        state = self.feed.state
        if self._held and not self.feed.callers:
            self._held = False
            self._flush()
        elif (state.over and not self._flushing) or state.node != self._desk.node:
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
        self._abandoned = True
        self._task.cancel()

    def _interrupt(self, verdict: Status) -> bool:
        if self._spoken or self._stop is not None:
            return False
        self._stop = verdict
        # Cancelled before its first step, a task would end without a word; `_verdict` looks instead.
        if self._begun:
            self._task.cancel()
        return True

    def _overrule(self) -> None:
        # The executor ignores its cancellation. Its thread or coroutine may go on, its words no longer count.
        if self._stop is not None and not self._spoken:
            log.warning("task.overruled task=%s", self.feed.state.task_id)
            self._buffer = [self._stop]
            if not self._flushing:
                self._flush()

    async def _run(self) -> None:
        self._begun = True
        verdict = await self._verdict()
        # From here on there is no executor to stop; its last word is on its way.
        self._spoken = True
        self._unsaid = False
        if not self.feed.state.over and not self._abandoned:
            self._buffer.append(verdict)
        if self._buffer and not self._flushing:
            self._flush()

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._force is not None:
            self._force.cancel()
        if self._abandoned or not self._flushing:
            self._leave()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TurnOver):
            log.info("task.late task=%s reason=%s", self.feed.state.task_id, error)
        elif error is not None:
            log.error("task.lost task=%s", self.feed.state.task_id, exc_info=error)

    def _leave(self) -> None:
        if self.feed.runner is self:
            self.feed.runner = None
        self._desk.left(self)

    async def _verdict(self) -> Verdict:
        if self._stop is not None:
            return self._stop
        try:
            if self._continues:
                self.earlier = await earlier(self._desk.tasks, self.feed)
            self._loop.call_soon(self._first_pause)
            verdict = await self._desk.executor.run(self)
        except BaseException as error:  # noqa: BLE001 - raised, or logged with a reason id that the caller is given
            return self._broken(error)
        match verdict:
            case Replied():
                return verdict
            case Status() if verdict.state in TERMINAL:
                return verdict
            case _:
                return self._say(TaskState.FAILED, "The executor ended without a verdict.")

    def _broken(self, error: BaseException) -> Status:
        """The verdict on an executor that raised."""
        match error:
            case asyncio.CancelledError() if self._stop is not None:
                return self._stop
            case asyncio.CancelledError() if self._task.cancelling():
                raise error
            case TurnOver() if not self._ours():
                raise error
            case KeyboardInterrupt() | GeneratorExit():
                raise error
            case _:
                # Also an exit, which would end the process, or a cancel that nobody here asked for.
                failed = self._failed(error)
                return self._stop or failed

    def _ours(self) -> bool:
        state = self.feed.state
        return not self._abandoned and not state.over and state.node == self._desk.node

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
            # An exception's text may hold what no JSON can.
            parts=(Part(text=text.encode(errors="replace").decode()),),
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
        self._flushing = True
        if self.feed.callers:
            # A caller goes first and then wakes us; or a talkative skill would never hear it.
            self._held = True
            return
        events = tuple(self._buffer)
        self._buffer.clear()
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

    def _flushed(self, error: StoreError | None) -> None:
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
        else:
            # The store may recover (a full disk); until then back-pressure holds the executor.
            log.error("task.unwritten task=%s error=%s", self.feed.state.task_id, error)
            self._loop.call_later(RETRY_S, self._flush)

    async def _again(self) -> None:
        try:
            await self._desk.tasks.refresh(self.feed)
        except StoreError as error:
            log.error("task.unread task=%s error=%s", self.feed.state.task_id, error)
            await asyncio.sleep(RETRY_S)
        self._flush()

    def _settle(self, error: BaseException | None) -> bool:
        """End the flush; whether anybody waited for it."""
        self._flushing = False
        if self._task.done():
            self._leave()
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
