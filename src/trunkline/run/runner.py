"""Starts, answers, cancels and recovers tasks; owns every background task of the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from trunkline.clock import Ids, now_ms
from trunkline.errors import Conflict, Duplicate, StoreError, TaskNotCancelable, Unavailable
from trunkline.log.decide import Cancel, ForceCancel, Release, Say
from trunkline.log.events import PushTarget, Status, Submitted
from trunkline.run import hops
from trunkline.run.executor import Again, Executor, OnCrash
from trunkline.run.feed import Feed
from trunkline.run.owner import RETRY_S, Owner
from trunkline.run.replication import Replication
from trunkline.run.retention import Retention
from trunkline.run.takeover import Takeover
from trunkline.run.tasks import Tasks
from trunkline.store.ack import Ack
from trunkline.store.base import Dedup, Store
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Message, SendRequest, TaskState

log = logging.getLogger("trunkline.run")
BEAT_S = 1.0
# A database may still be at work on what it was given before the connection was lost.
LATE_S = 10.0
UNWIND_S = 1.0


class Limits(Struct, frozen=True):
    """How patient the runner is, in seconds, and how far one task may lead to others."""

    stall_s: float = 900.0
    cancel_s: float = 5.0
    drain_s: float = 20.0
    retention_s: float = 0.0
    bounds: hops.Bounds = hops.Bounds()


class Runner:
    """The executors of one process and the tasks they work on."""

    def __init__(
        self, store: Store, executor: Executor, ids: Ids, limits: Limits | None = None, *, dev: bool = False
    ) -> None:
        self.limits = limits or Limits()
        self.cancel_limit_s = self.limits.cancel_s
        self.executor = executor
        self.tasks = Tasks(store)
        self.ids = ids
        self.dev = dev
        self.node = ids.new()
        self._store = store
        self._patrol = Takeover(self)
        self._follower = Replication(self.tasks, self._patrol.call)
        self._keeper = Retention(self.tasks, self.limits.retention_s)
        self._owners: set[Owner] = set()
        self._background: set[asyncio.Task[None]] = set()
        # Messages on their way to an executor; the end waits for them.
        self._arriving = 0
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop everything runs on, from `start` on."""
        if self._loop is None:
            raise RuntimeError("the runner has not been started")
        return self._loop

    async def start(self) -> None:
        """Join the store's nodes, take over what dead nodes left, and keep watch."""
        self._loop = asyncio.get_running_loop()
        await self._store.nodes.join(self.node)
        # Not awaited: a crash may have left thousands, and whoever calls now need not wait for them.
        self._patrol.call()
        self.spawn(self._watch())
        self.spawn(self._patrol.run())
        self.spawn(self._keeper.run())
        if self._store.shared:
            self.spawn(self._follower.listen())
            self.spawn(self._follower.read())

    def drain(self) -> None:
        """Take nothing new from here on."""
        self._stopping = True

    @property
    def draining(self) -> bool:
        """Whether the runner is going down."""
        return self._stopping

    @property
    def ready(self) -> bool:
        """Whether the store took what it was last given, and more may come."""
        return not self._stopping and not self.tasks.failing

    @property
    def takeovers(self) -> int:
        """How many tasks of dead nodes were taken over here."""
        return sum(self._patrol.takeovers.values())

    @property
    def recovered(self) -> dict[str, int]:
        """The same by what became of them: `no` did not run again."""
        return {again.value: count for again, count in self._patrol.takeovers.items()}

    @property
    def late(self) -> int:
        """How many events were refused because their task had ended or moved."""
        return self.tasks.late

    async def stop(self) -> None:
        """Take nothing new, let executors end for a while, then end them with a reason."""
        self.drain()
        if self._store.shared:
            await self._release(self._movable())
        await self._until(lambda: not self._arriving and self._idle(), self.limits.drain_s)
        moved = self._movable()
        for owner in self._owners.difference(moved):
            owner.stop_with("The server was stopped before the task ended.")
        await self._release(moved)
        await self._until(self._idle, self.limits.cancel_s + 1)
        for owner in list(self._owners):
            owner.abandon()
        await self._until(lambda: not self._owners, UNWIND_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        try:
            await self._store.nodes.leave(self.node)
        except StoreError as error:
            log.error("node.unsaid node=%s error=%s", self.node, error)

    def _movable(self) -> list[Owner]:
        """What another node, or this one after its next start, can go on with."""
        return [
            owner
            for owner in self._owners
            if owner.idle or self.executor.on_crash(owner.state.skill) is not OnCrash.FAIL
        ]

    async def _release(self, owners: list[Owner]) -> None:
        for owner in owners:
            owner.abandon()
        if not self._store.shared:
            # Nobody else could take them; our own next start does, as this node is gone by then.
            return
        released = (self.tasks.change(owner.feed, Release(self.node)) for owner in owners)
        for outcome in await asyncio.gather(*released, return_exceptions=True):
            if isinstance(outcome, BaseException):
                # It is found when this node is gone.
                log.error("task.unreleased error=%s", outcome)

    def _idle(self) -> bool:
        return all(owner.idle for owner in self._owners)

    async def _until(self, reached: Callable[[], bool], limit_s: float) -> None:
        deadline = self.loop.time() + limit_s
        # Once in the life of a process; an event would cost every task something.
        while not reached() and self.loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _check_open(self) -> None:
        if self._stopping:
            raise Unavailable("the server is going down; nothing was recorded, try again")

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something in the background until the runner stops."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background.failed", exc_info=error)

    async def _apart(self, work: Coroutine[None, None, None]) -> None:
        """Do it to the end, even if whoever asked goes away in the middle."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        await asyncio.shield(task)

    def begin(self, feed: Feed, again: Again) -> None:
        """Run a task's executor here."""
        continues = again is not Again.NO or feed.state.context_id != feed.state.task_id
        self._owners.add(Owner(self, feed, self.loop, continues=continues, again=again))

    async def _resolve(self, feed: Feed) -> None:
        """Look whether an append whose fate is unknown was written: what is claimed by us must be run."""
        state = feed.state
        until = None
        while not self._stopping:
            try:
                await self.tasks.refresh(feed)
                until = until or self.loop.time() + (LATE_S if self._store.shared else 0)
            except StoreError:
                until = None
            if state.seq and state.node == self.node and not state.resting and feed.runner is None:
                return self.begin(feed, Again.NO if state.seq == 1 else Again.RESUME)
            if until is not None and self.loop.time() >= until:
                return None
            await asyncio.sleep(RETRY_S)

    def left(self, owner: Owner) -> None:
        """An owner is done."""
        self._owners.discard(owner)

    @property
    def running(self) -> int:
        """How many tasks are in work here."""
        return len(self._owners)

    def submit(
        self,
        tenant: str,
        principal: str,
        request: SendRequest,
        dedup: Dedup | None = None,
        *,
        trace: str = "",
        push: PushTarget | None = None,
        extensions: tuple[str, ...] | None = None,
    ) -> tuple[Feed, Ack]:
        """Open a task; its executor starts when it is recorded, whoever still waits.

        Raises:
            Refused: no skill takes the message, or its chain of agents ends here.
            Unavailable: the runner is stopping.
        """
        self._check_open()
        if request.metadata or request.message.metadata:
            hops.check(request, self.limits.bounds, now_ms())
        skill = self.executor.admit(request)
        said = request.message
        task_id = self.ids.new()
        # A new conversation is named after its first task.
        context_id = said.context_id or task_id
        event = Submitted(
            message=_first(said, task_id, context_id),
            context_id=context_id,
            principal=principal,
            node=self.node,
            skill=skill,
            output_modes=request.accepted_output_modes,
            metadata=request.metadata,
            trace=trace,
            push=push,
            extensions=extensions,
        )
        feed = self.tasks.begin(tenant, task_id)
        ack = self.tasks.append(feed, (event,), dedup, partial(self._opened, feed))
        self._arriving += 1
        return feed, ack

    def _opened(self, feed: Feed, error: StoreError | None) -> None:
        self._arriving -= 1
        if error is None:
            self.begin(feed, Again.NO)
            return
        feed.fail(error)
        if not isinstance(error, Conflict | Duplicate):
            self.spawn(self._resolve(feed))

    async def say(
        self, feed: Feed, message: Message, dedup: Dedup | None = None, push: PushTarget | None = None
    ) -> None:
        """Add the caller's message; if the task waited for it and nobody runs it, go on here.

        Raises:
            Refused: the task has ended, or belongs to another context.
            Unavailable: the runner is stopping.
        """
        self._check_open()
        self._arriving += 1
        await self._apart(self._say(feed, message, dedup, push))

    async def _say(self, feed: Feed, message: Message, dedup: Dedup | None, push: PushTarget | None) -> None:
        try:
            await self._take(feed, message, dedup, push)
        finally:
            self._arriving -= 1

    async def _take(self, feed: Feed, message: Message, dedup: Dedup | None, push: PushTarget | None) -> None:
        state = feed.state
        said = replace(message, task_id=state.task_id, context_id=message.context_id or state.context_id)
        if dedup is not None and state.over and said in state.history:
            # A retry of what the task has taken; that it has ended since is no reason to refuse it.
            return
        elsewhere = feed.runner is None and state.interrupted and await self._lives_elsewhere(state.node)
        # Not if it asks only now: then whoever asked lives, or a patrol finds it.
        claim = self.node if feed.runner is None and state.interrupted and not elsewhere else ""
        try:
            events = await self.tasks.change(feed, Say(said, claim, push), dedup)
        except (Conflict, Duplicate):
            raise
        except StoreError:
            self.spawn(self._resolve(feed))
            raise
        if not any(isinstance(event, Status) for event in events):
            return
        if feed.runner is None and state.node == self.node:
            self.begin(feed, Again.RESUME)
        elif feed.runner is None:
            self._patrol.call()

    async def _lives_elsewhere(self, node: str) -> bool:
        return self._store.shared and node != self.node and await self._store.nodes.alive(node)

    async def cancel(self, feed: Feed, by: str) -> None:
        """Stop a task: cooperatively at first, in any case within the limit.

        Raises:
            TaskNotCancelable: it has ended, or ended otherwise before it could be stopped.
        """
        await self._apart(self._cancel(feed, by))

    async def _cancel(self, feed: Feed, by: str) -> None:
        await self.tasks.change(feed, Cancel(by))
        runs = feed.runner is not None or await self._lives_elsewhere(feed.state.node)
        await self.tasks.end(feed, self.cancel_limit_s + 1 if runs else 0.0)
        if not feed.state.over:
            await self.tasks.change(feed, ForceCancel())
        state = feed.state
        if state.state is not TaskState.CANCELED:
            raise TaskNotCancelable(
                f"task {state.task_id} was faster than the cancel: {plain_state(state.state)}"
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self._store.nodes.beat(self.node)
                self.tasks.failing = False
            except StoreError as error:
                self.tasks.failing = True
                log.error("node.silent node=%s error=%s", self.node, error)
            silent_since, now = self.loop.time() - self.limits.stall_s, now_ms()
            for owner in list(self._owners):
                if owner.waiting:
                    continue
                if owner.heard_at < silent_since:
                    owner.stop_with("The skill was silent for too long and was stopped.")
                elif hops.is_late(owner.state, now):
                    owner.stop_with("The deadline that came with the message has passed.")


def _first(said: Message, task_id: str, context_id: str) -> Message:
    """A message as the first of its task."""
    return Message(
        message_id=said.message_id,
        context_id=context_id,
        task_id=task_id,
        role=said.role,
        parts=said.parts,
        metadata=said.metadata,
        extensions=said.extensions,
        reference_task_ids=said.reference_task_ids,
        extra=said.extra,
    )
