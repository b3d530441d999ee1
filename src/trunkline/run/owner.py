"""One task in work: claim → executor → append → release.

The executor runs in a task of its own that no connection can end. What it says goes through its
pen into the log; when the task was begun before, a replay keeps it from saying things twice.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Coroutine
from typing import Protocol

from trunkline.clock import Ids
from trunkline.errors import Misuse, StoreError, TaskFull, TurnOver
from trunkline.log.decide import LIMITS
from trunkline.log.events import AnyEvent, Replied, Status, Stepped, Taken
from trunkline.log.fold import State
from trunkline.run.buffer import RETRY_S, UNFLUSHED_LIMIT, EventBuffer
from trunkline.run.conversation import earlier
from trunkline.run.executor import Again, Executor, Verdict
from trunkline.run.feed import Feed
from trunkline.run.replay import Replay, replay
from trunkline.run.tasks import Tasks
from trunkline.telemetry import traces
from trunkline.wire.types import TERMINAL, Message, Part, Role, TaskState

log = logging.getLogger("trunkline.run")


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
        "_again",
        "_asked",
        "_begun",
        "_continues",
        "_desk",
        "_force",
        "_loop",
        "_pen",
        "_question",
        "_replay",
        "_spoken",
        "_started_at",
        "_stop",
        "_task",
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
        self._again = again
        self._replay: Replay | None = None
        self._question: asyncio.Lock | None = None
        self._asked = 0
        unsaid = feed.state.state is TaskState.SUBMITTED
        self._pen = EventBuffer(self, feed, desk.tasks, desk.node, loop=loop, unsaid=unsaid)
        self._stop: Status | None = None
        self._force: asyncio.TimerHandle | None = None
        self._begun = self._spoken = self._abandoned = False
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
        pen = self._pen
        if pen.unsaid and not self._task.done():
            pen.unsaid = False
            if not pen.unflushed:
                pen.put_now(Status(TaskState.WORKING))
        pen.flush()

    async def emit(self, event: AnyEvent) -> None:
        """Record an event, waiting only when too many are not yet durable."""
        self.put(event)
        if self._pen.unflushed >= UNFLUSHED_LIMIT:
            await self._pen.drain()

    def put(self, event: AnyEvent) -> None:
        """Record an event with the next flush, unless a dead run has recorded it."""
        self._check()
        if self._question is not None and isinstance(event, Status) and self._question.locked():
            # Another coroutine of the executor has a question open; only the answer may close it.
            if event.state is TaskState.WORKING:
                return
        if self._replay is None:
            self._pen.put(event)
        else:
            for left in self._replay.take(event):
                self._pen.put(left)

    def _check(self) -> None:
        if self._abandoned or self.feed.state.over:
            raise TurnOver(f"task {self.feed.state.task_id} has ended or been left")
        self.heard_at = self._loop.time()

    async def drain(self) -> None:
        """Wait until everything emitted so far is durable.

        Raises:
            TurnOver: some of it came too late.
        """
        await self._pen.drain()

    def recorded_step(self, place: int, name: str) -> Stepped | None:
        """What the log holds of a step; None if it is to be done.

        Raises:
            Misuse: the log holds another one at this place.
        """
        self._check()
        return None if self._replay is None else self._replay.step(place, name)

    async def ask(self, status: Status) -> Message:
        """Interrupt the task and wait for the caller; the log holds the answers."""
        # One question at a time: the answer to one must not be taken for the answer to another.
        self._question = self._question or asyncio.Lock()
        async with self._question:
            self._check()
            place, state = self._asked, self.feed.state
            if place == len(state.answers):
                self._pen.put_now(status)
                await self._pen.drain()
                await self._answered(place)
            self._asked += 1
            if place >= state.taken:
                # Before the executor does anything with it: until then a crash costs nothing.
                self._pen.put_now(Taken(place))
                await self._pen.drain()
            return state.answers[place]

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
        if state.node != self._desk.node:
            # For good: should the task come back to this node, it is another run that speaks for it.
            return self.abandon()
        if self._pen.resume():
            return
        if state.over and not self._pen.busy:
            self.interrupt(Status(TaskState.CANCELED))
        elif state.cancel_requested and self._stop is None:
            self.stop(Status(TaskState.CANCELED))

    def stop(self, verdict: Status) -> None:
        """Ask the executor to end, and give this verdict without it if it does not in time."""
        if self.interrupt(verdict):
            self._force = self._loop.call_later(self._desk.cancel_limit_s, self._overrule)

    def stop_with(self, text: str) -> None:
        """Ask the executor to end as failed, for this reason."""
        self.stop(self._say(TaskState.FAILED, text))

    def abandon(self) -> None:
        """Leave the task as it is; whoever claims it next goes on from the log."""
        self._abandoned = True
        if self.feed.runner is self:
            self.feed.runner = None
        self._pen.close()
        if self._task.done():
            self._leave()
        else:
            self._task.cancel()

    def interrupt(self, verdict: Status) -> bool:
        """End the executor with this verdict, unless it has spoken its own; whether it was still at work."""
        if self._spoken or self._abandoned or self._stop is not None:
            return False
        self._stop = verdict
        # Cancelled before its first step, a task would end without a word; `_verdict` looks instead.
        if self._begun:
            self._task.cancel()
        return True

    def _overrule(self) -> None:
        # The executor ignores its cancellation. Its thread or coroutine may go on, its words no longer count.
        if self._stop is not None and not self._spoken and not self._abandoned:
            log.warning("task.overruled task=%s", self.feed.state.task_id)
            self._pen.put_only(self._stop)

    async def _run(self) -> None:
        self._begun = True
        verdict = await self._verdict()
        # From here on there is no executor to stop; its last word is on its way.
        self._spoken = True
        self._pen.unsaid = False
        if not self.feed.state.over and not self._abandoned:
            self._pen.put_now(verdict)
        else:
            self._pen.flush()

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._force is not None:
            self._force.cancel()
        if self._abandoned or not self._pen.busy:
            self._leave()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TurnOver):
            log.info("task.late task=%s reason=%s", self.feed.state.task_id, error)
        elif error is not None:
            log.error("task.lost task=%s", self.feed.state.task_id, exc_info=error)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something in the background, owned by the runner."""
        self._desk.spawn(work)

    def rested(self) -> None:
        """Everything that was said is in the log, or came too late."""
        if self._task.done():
            self._leave()

    def unheard(self) -> None:
        """The task has ended or moved without the executor."""
        self.interrupt(Status(TaskState.CANCELED))

    def _leave(self) -> None:
        if self.feed.runner is self:
            self.feed.runner = None
        self._pen.let_go()
        self._desk.left(self)

    async def _verdict(self) -> Verdict:
        if self._stop is not None:
            return self._stop
        state = self.feed.state
        try:
            if self._continues or self._again is not Again.NO:
                await self._prepare()
            self._loop.call_soon(self._first_pause)
            if traces.tracing():
                with traces.running(state.trace, state.skill, state.task_id, state.context_id):
                    verdict = await self._desk.executor.run(self)
            else:
                verdict = await self._desk.executor.run(self)
            if self._replay is not None:
                self._conclude(self._replay, verdict)
        except BaseException as error:  # noqa: BLE001 - raised, or logged with a reason id that the caller is given
            return self._broken(error)
        match verdict:
            case Replied():
                return verdict
            case Status() if verdict.state in TERMINAL:
                return verdict
            case _:
                return self._say(TaskState.FAILED, "The executor ended without a verdict.")

    async def _prepare(self) -> None:
        """Read what the executor needs of the log before it begins."""
        while True:
            try:
                if self._continues and not self.earlier:
                    self.earlier = await earlier(self._desk.tasks, self.feed)
                if self._again is not Again.NO:
                    self._replay = replay(self._again, await self._desk.tasks.records(self.feed))
                break
            except StoreError as error:
                if self._again is Again.NO:
                    raise
                # It survived its process; a store that is away for a moment must not end it.
                log.error("task.unread task=%s error=%s", self.feed.state.task_id, error)
                await asyncio.sleep(RETRY_S)
        if self._replay is not None:
            for event in self._replay.opening():
                self._pen.put(event)

    def _conclude(self, played: Replay, verdict: Verdict) -> None:
        """The executor has ended: the log is to hold what it said, if it said what it may.

        Raises:
            Misuse: it did not do what is recorded of it.
        """
        strayed = played.trouble
        closing = played.closing()
        # A failure may come before the recorded steps, and its own reason tells more.
        failed = isinstance(verdict, Status) and verdict.state is TaskState.FAILED
        if strayed or (played.trouble and not failed):
            raise Misuse(played.trouble)
        for event in closing:
            self._pen.put(event)

    def _broken(self, error: BaseException) -> Status:
        """The verdict on an executor that raised."""
        match error:
            case asyncio.CancelledError() | TurnOver() if self._stop is not None:
                return self._stop
            case asyncio.CancelledError() if self._task.cancelling():
                raise error
            case TurnOver() if not self._ours():
                raise error
            case KeyboardInterrupt() | GeneratorExit():
                raise error
            case _ if self._replay is not None and self._replay.trouble:
                log.error("task.changed task=%s", self.feed.state.task_id, exc_info=error)
                return self._stop or self._say(TaskState.FAILED, self._replay.trouble)
            case _:
                # Also an exit, which would end the process, or a cancel that nobody here asked for.
                failed = self._failed(error)
                return self._stop or failed

    def _ours(self) -> bool:
        state = self.feed.state
        return not self._abandoned and not state.over and state.node == self._desk.node

    def verdict_on(self, error: Misuse | TaskFull) -> Status:
        """How the task ends because its executor's words cannot be recorded."""
        if isinstance(error, TaskFull):
            log.warning("task.full task=%s", self.feed.state.task_id)
            return self._say(TaskState.FAILED, f"The task has reached its limit ({LIMITS}) and was ended.")
        return self._failed(error)

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
