"""One task in work: claim → executor → append → release.

The executor runs in a task of its own that no connection can end. What it says goes through a buffer
into the log; when the task was begun before, a replay keeps it from saying things twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from trunkline.clock import now_ms
from trunkline.errors import Misuse, TaskFull, TurnOver
from trunkline.log.decide import ends
from trunkline.log.events import AnyEvent, Recorded, Status, Stepped
from trunkline.log.fold import LIMITS
from trunkline.run import contexts
from trunkline.run.buffer import UNFLUSHED_LIMIT, EventBuffer
from trunkline.run.executor import Again, ChildTasks, IsMoot, LookAgain, Moment, Until, Verdict, never
from trunkline.run.feed import Feed
from trunkline.run.final_message import with_reply
from trunkline.run.node import HostedAgent, Node, error_of
from trunkline.run.parking import Waits
from trunkline.run.questions import Questions, bounded, restricted
from trunkline.run.replay import Replay, conclude, prepare
from trunkline.telemetry import traces
from trunkline.wire.types import SUBMITTED, WORKING, Message, TaskState

log = logging.getLogger("trunkline.run")


class Owner:
    """Runs one task's executor and records what it says; begins as soon as it is made."""

    __slots__ = (
        "_abandoned", "_again", "_buffer", "_continues", "_force", "_held", "_left", "_node",
        "_questions", "_replay", "_spoken", "_started_at", "_stop", "_task", "_waiting",
        "agent", "earlier", "feed", "heard_at", "ids", "loop", "open_steps", "resumed", "state", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        agent: HostedAgent,
        feed: Feed,
        left: Callable[[Owner], None],
        *,
        continues: bool,
        again: Again = Again.NO,
    ) -> None:
        self.feed = feed
        # The task as recorded.
        self.state = feed.state
        self.tenant = feed.tenant
        self.agent = agent
        self.ids = node.ids
        self.earlier: tuple[Message, ...] = ()
        # Steps that are under way, or have raised.
        self.open_steps = 0
        self._waiting: Waits | None = None
        self._node = node
        self._left = left
        self.loop = node.tasks.loop
        self.heard_at = self._started_at = self.loop.time()
        self._continues = continues
        self._again = again
        self.resumed = again is not Again.NO
        self._replay: Replay | None = None
        self._questions: Questions | None = None
        opening = self.state.state is SUBMITTED
        self._buffer = EventBuffer(node, feed, self._settled, self._refused, opening=opening)
        self._stop: Status | None = None
        self._force: asyncio.TimerHandle | None = None
        # Whether a stop is kept back: cancelled before its first step, a task would end without a word.
        self._held = True
        self._spoken = self._abandoned = False
        feed.runner = self
        self._task = self.loop.create_task(self._run())
        self._task.add_done_callback(self._done)
        if self.state.cancel_requested:  # It may be older than this run.
            self.moved()

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since this executor began, at least one."""
        return max(1, round((self.loop.time() - self._started_at) * 1000))

    @property
    def children(self) -> ChildTasks:
        """The tasks that this one has others do."""
        return self._node.children(self.feed)

    @property
    def stopped(self) -> bool:
        """Whether the task is being ended from outside."""
        return self._stop is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is lost if the process ends now."""
        # Parked as well it could be: what waits as a whole, and what others do, which is followed by its log.
        parks = self.agent.executor.works_elsewhere or (self._waiting is not None and self._waiting.parkable)
        # Not while it is being stopped: what others do is to be stopped there too.
        unsaid = self.open_steps or self._buffer.busy or self._buffer.unflushed or self.stopped
        return (parks and not unsaid) or self.asking or self._abandoned or self.state.over

    @property
    def asking(self) -> bool:
        """Whether the executor waits for its caller."""
        return self._questions is not None and self._questions.asking

    @property
    def waiting(self) -> bool:
        """Whether the executor waits for anything; then it is not silent, however long it says nothing."""
        return self._waiting is not None and self._waiting.count > 0

    @property
    def awaited(self) -> Collection[str]:
        """The tasks whose end the executor waits for."""
        return () if self._waiting is None else self._waiting.children

    @property
    def let_go(self) -> bool:
        """Whether the executor is being ended, or its task was left."""
        return self._abandoned or self._stop is not None

    def _first_pause(self) -> None:
        # Whatever the executor said before it first waits goes into one append.
        buffer = self._buffer
        if buffer.opening and not self._task.done():
            buffer.opening = False
            # What was handed on at once is worked on when somebody elsewhere says so.
            if not buffer.unflushed and not self.feed.opening_step():
                buffer.put_now(Status(WORKING))
        buffer.flush()

    def hold(self, *, held: bool) -> None:
        """See `Work`."""
        self._held = held
        if self._stop is not None:
            raise TurnOver(f"task {self.state.task_id} is being ended")

    async def emit(self, event: AnyEvent) -> None:
        """Record an event, waiting only when too many are not yet durable."""
        self.put(event)
        if self._buffer.unflushed >= UNFLUSHED_LIMIT:
            await self._buffer.drain()

    def put(self, event: AnyEvent) -> None:
        """Record an event with the next flush, unless a dead run has recorded it."""
        self.check()
        if (asks := self._questions) and asks.open and isinstance(event, Status) and event.state is WORKING:
            # Another coroutine of the executor has a question open; only the answer may close it.
            return
        if type(event) is Stepped:
            self.open_steps -= 1
        elif type(event) is Status:
            event = self._restricted(event)
        if self._replay is None:
            self._buffer.put(event)
        else:
            for left in self._replay.take(event):
                self._buffer.put(left)

    def _restricted(self, status: Status) -> Status:
        return restricted(status, self.agent, self.tenant, self.state)

    def check(self) -> None:
        """See that the executor still speaks for the task.

        Raises:
            TurnOver: it does not.
        """
        if self._abandoned or self.state.over:
            raise TurnOver(f"task {self.state.task_id} has ended or been left")
        self.heard_at = self.loop.time()

    async def drain(self) -> None:
        """Wait until everything emitted so far is durable.

        Raises:
            TurnOver: some of it came too late.
        """
        await self._buffer.drain()

    def recorded_step(self, place: int, name: str) -> Stepped | None:
        """What the log holds of a step; None if it is to be done.

        Raises:
            Misuse: the log holds another one at this place.
        """
        self.check()
        found = self.feed.opening_step(place) if self._replay is None else self._replay.step(place, name)
        self.open_steps += found is None
        return found

    async def ask(self, status: Status, is_moot: IsMoot = never, look: LookAgain | None = None) -> Message:
        """Interrupt the task and wait for the caller."""
        self.check()
        if self._questions is None:
            reopens = self._again is Again.RESUME and self.state.interrupted
            self._questions = Questions(self, self._buffer, self._goes_on, reopens=reopens)
        status = bounded(self._restricted(status), self.agent.answer_s)
        return await self._questions.ask(status, is_moot, look)

    def moment(self, at: int, longest_ms: int) -> Moment:
        """Return the end of a wait. See `Work.moment`."""
        return self._node.moment(self.state, at, longest_ms)

    def moment_in(self, rest_ms: int) -> Moment:
        """Return the end of a wait that begins now."""
        return Moment(now_ms() + rest_ms, self.loop.time() + rest_ms / 1000)

    async def step_before(self, name: str, fits: Callable[[Message], bool]) -> tuple[Stepped | None, bool]:
        """See `Work`."""
        names = self._node.names_of(self.agent.id)
        return await contexts.step_before(self._node.tasks, self.feed, names, name, fits)

    @property
    def until(self) -> Until:
        """See `Work`."""
        return self.waits.until

    def nudge(self) -> None:
        """Have whatever waits look again."""
        self.feed.nudge()

    async def records(self) -> Sequence[Recorded]:
        """The whole log of the task as it stands."""
        return await self._node.tasks.records(self.feed)

    def mark_main(self) -> None:
        """Take the asyncio task that calls this for the one in which the whole executor waits."""
        self.waits.mark_main()

    @property
    def waits(self) -> Waits:
        """The waits of the executor; most never wait."""
        if self._waiting is None:
            self._waiting = Waits(self, self._node, self._task)
        return self._waiting

    def moved(self) -> None:
        """The log moved: an end or a claim that is not ours, or a cancel, stops the executor."""
        state = self.state
        if state.node != self._node.id:
            # For good: should the task come back to this node, it is another run that speaks for it.
            return self.abandon()
        if self._buffer.resume():
            return
        if state.over and not self._buffer.busy:
            self.interrupt(Status(TaskState.CANCELED))
        elif state.cancel_requested and self._stop is None:
            self.stop(Status(TaskState.CANCELED))

    def stop(self, verdict: Status) -> None:
        """Ask the executor to end, and give this verdict without it if it does not in time."""
        if self.interrupt(verdict):
            self._force = self.loop.call_later(self._node.limits.cancel_s, self._overrule)

    def stop_with(self, text: str) -> None:
        """Ask the executor to end as failed, for this reason."""
        self.stop(self._node.failed(self.state, text))

    def abandon(self) -> None:
        """Leave the task as it is; whoever claims it next goes on from the log."""
        self._abandoned = True
        if self.feed.runner is self:
            self.feed.runner = None
        self._buffer.close()
        if self._task.done():
            self._leave()
        else:
            self._task.cancel()

    def interrupt(self, verdict: Status) -> bool:
        """End the executor with this verdict, unless it has spoken its own; whether it was still at work."""
        if self._spoken or self._abandoned or self._stop is not None:
            return False
        self._stop = verdict
        if not self._held:
            self._task.cancel()
        return True

    def _overrule(self) -> None:
        # The executor ignores its cancellation. Its thread or coroutine may go on, its words no longer count.
        if self._stop is not None and not self._spoken and not self._abandoned:
            log.warning("task.overruled task=%s", self.state.task_id)
            self._buffer.put_only(self._stop)
            if self._held:
                self._task.cancel()

    async def _run(self) -> None:
        verdict = await self._verdict()
        # From here on there is no executor to stop; its last word is on its way.
        self._spoken = True
        self._buffer.opening = False
        if not self.state.over and not self._abandoned:
            self._buffer.put_now(verdict)
        else:
            self._buffer.flush()

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._force is not None:
            self._force.cancel()
        error = error_of(task) if task.cancelled() else task.exception()
        if not self._spoken and self._ours() and not self._node.ending:
            # Invariant: whoever leaves a task here has said how it ended; without an owner nobody else would.
            self._spoken = True
            self._buffer.opening = False
            reason = error or asyncio.CancelledError("the executor was cancelled")
            self._buffer.put_now(self._stop or self._node.raised(self.state, reason))
        if self._abandoned or not self._buffer.busy:
            self._leave()
        if isinstance(error, TurnOver):
            log.info("task.late task=%s reason=%s", self.state.task_id, error)
        elif error is not None:
            log.error("task.lost task=%s", self.state.task_id, exc_info=error)

    def _settled(self, lost: bool) -> None:
        """Everything that was said is in the log, or came too late."""
        if self._task.done():
            self._leave()
        elif lost:
            # The task has ended or moved, and no call of the executor waits that could be told so.
            self.interrupt(Status(TaskState.CANCELED))

    def _leave(self) -> None:
        if self.feed.runner is self:
            self.feed.runner = None
        self._buffer.detach()
        # These know their owner: circles, as with the buffer.
        self._questions = self._waiting = None
        self._left(self)

    async def _verdict(self) -> Verdict:
        state, executor, is_new = self.state, self.agent.executor, self._again is Again.NO
        try:
            if self._continues or not is_new:
                await self._prepare()
            self._held = False
            # Whoever does the work elsewhere has to hear of a stop, also if that came before this.
            if self._stop is not None and (is_new or not executor.works_elsewhere):
                return self._stop
            self.loop.call_soon(self._first_pause)
            with traces.running(state.trace, state.skill, state.task_id, state.context_id):
                verdict = await executor.run(self)
            if self._replay is not None:
                for event in conclude(self._replay, verdict):
                    self._buffer.put(event)
            if self.agent.final_message:
                await self._buffer.drain()
                verdict = with_reply(verdict, state)
        except BaseException as error:  # noqa: BLE001 - raised, or logged with a reason id that the caller is given
            if (broken := self._broken(error)) is None:
                raise  # Not there: its frame holds the error, which leads to the frame.
            return broken
        return verdict if ends(verdict) else self._node.failed(state, "The executor ended without a verdict.")

    async def _prepare(self) -> None:
        """Read what the executor needs of the log before it begins."""
        found = await prepare(self._node, self.agent, self.feed, self._again, continues=self._continues)
        self.earlier, self._replay = found
        for event in () if self._replay is None else self._replay.opening():
            self._buffer.put(event)

    def _broken(self, error: BaseException) -> Status | None:
        """The verdict on an executor that raised; None if that is to be raised."""
        match error:
            case asyncio.CancelledError() | TurnOver() if self._stop is not None:
                return self._stop
            case asyncio.CancelledError() if self._abandoned or self._node.ending:
                return None
            case TurnOver() if not self._ours():
                return None
            # Not raised by the executor if the coroutine is being closed: then it must not go on.
            case GeneratorExit() if asyncio.current_task(self.loop) is not self._task:
                return None
            case KeyboardInterrupt():
                return None
            case _ if self._replay is not None and self._replay.trouble:
                log.error("task.changed task=%s", self.state.task_id, exc_info=error)
                return self._stop or self._node.failed(self.state, self._replay.trouble)
            case _:
                # Also an exit, which would end the process, or a cancel that is the executor's own.
                failed = self._node.raised(self.state, error)
                return self._stop or failed

    def _goes_on(self) -> bool:
        return self._stop is None and self._ours() and not self._node.ending

    def _ours(self) -> bool:
        state = self.state
        return not self._abandoned and not state.over and state.node == self._node.id

    def _refused(self, error: Misuse | TaskFull) -> Status:
        """Stop the executor because its words cannot be recorded; gives how the task ends."""
        if isinstance(error, TaskFull):
            log.warning("task.full task=%s", self.state.task_id)
            end = self._node.failed(self.state, f"The task has reached its limit ({LIMITS}) and was ended.")
        else:
            end = self._node.raised(self.state, error)
        self.interrupt(end)
        return end
