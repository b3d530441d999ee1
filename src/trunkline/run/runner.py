"""Starts, answers, cancels and recovers tasks; owns every background task of the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import StoreError, TaskNotCancelable, Unavailable
from trunkline.log.decide import Cancel, Claim, Emit, ForceCancel, Say, plain
from trunkline.log.events import Status, Submitted
from trunkline.log.ids import Ids
from trunkline.run.executor import Executor
from trunkline.run.feed import Feed
from trunkline.run.owner import Owner
from trunkline.run.tasks import Tasks
from trunkline.store.ack import Ack
from trunkline.store.base import Dedup, Orphan, Store
from trunkline.wire.types import Message, Part, Role, SendRequest, TaskState

log = logging.getLogger("trunkline.run")
BEAT_S = 1.0
UNWIND_S = 1.0


class Limits(Struct, frozen=True):
    """How patient the runner is, in seconds."""

    stall_s: float = 900.0
    cancel_s: float = 5.0
    drain_s: float = 5.0


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
        await self._store.join(self.node)
        await self._recover()
        self.spawn(self._watch())

    async def stop(self) -> None:
        """Take nothing new, let executors end for a while, then end them with a reason."""
        self._stopping = True
        await self._until(lambda: not self._arriving and self._idle(), self.limits.drain_s)
        for owner in list(self._owners):
            if owner.idle:
                # A question stays open in the log; the answer starts it again.
                owner.abandon()
            else:
                owner.stop_with("The server was stopped before the task ended.")
        await self._until(self._idle, self.limits.cancel_s + 1)
        for owner in list(self._owners):
            owner.abandon()
        await self._until(lambda: not self._owners, UNWIND_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        try:
            await self._store.leave(self.node)
        except StoreError as error:
            log.error("node.unsaid node=%s error=%s", self.node, error)

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

    def left(self, owner: Owner) -> None:
        """An owner is done."""
        self._owners.discard(owner)

    @property
    def running(self) -> int:
        """How many tasks are in work here."""
        return len(self._owners)

    def submit(
        self, tenant: str, owner: str, request: SendRequest, dedup: Dedup | None = None
    ) -> tuple[Feed, Ack]:
        """Open a task; its executor starts when it is recorded, whoever still waits.

        Raises:
            Refused: no skill takes the message.
            Unavailable: the runner is stopping.
        """
        self._check_open()
        skill = self.executor.admit(request)
        said = request.message
        task_id = self.ids.new()
        # A new conversation is named after its first task.
        context_id = said.context_id or task_id
        message = Message(
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
        event = Submitted(
            message=message,
            context_id=context_id,
            owner=owner,
            node=self.node,
            skill=skill,
            output_modes=request.accepted_output_modes,
            metadata=request.metadata,
        )
        feed = self.tasks.begin(tenant, task_id)
        ack = self.tasks.append(feed, (event,), dedup, partial(self._opened, feed, bool(said.context_id)))
        self._arriving += 1
        return feed, ack

    def _opened(self, feed: Feed, continues: bool, error: StoreError | None) -> None:
        self._arriving -= 1
        if error is not None:
            feed.fail(error)
        else:
            self._owners.add(Owner(self, feed, self.loop, continues=continues))

    async def say(self, feed: Feed, message: Message, dedup: Dedup | None = None) -> None:
        """Add the caller's message; if the task waited for it and nobody runs it, go on here.

        Raises:
            Refused: the task has ended, or belongs to another context.
            Unavailable: the runner is stopping.
        """
        self._check_open()
        self._arriving += 1
        await self._apart(self._say(feed, message, dedup))

    async def _say(self, feed: Feed, message: Message, dedup: Dedup | None) -> None:
        try:
            await self._take(feed, message, dedup)
        finally:
            self._arriving -= 1

    async def _take(self, feed: Feed, message: Message, dedup: Dedup | None) -> None:
        state = feed.state
        said = replace(message, task_id=state.task_id, context_id=message.context_id or state.context_id)
        if dedup is not None and state.over and said in state.history:
            # A retry of what the task has taken; that it has ended since is no reason to refuse it.
            return
        claim = self.node if feed.runner is None else ""
        events = await self.tasks.change(feed, Say(said, claim), dedup)
        if feed.runner is None and any(isinstance(event, Status) for event in events):
            self._owners.add(Owner(self, feed, self.loop, continues=True))

    async def cancel(self, feed: Feed, by: str) -> None:
        """Stop a task: cooperatively at first, in any case within the limit.

        Raises:
            TaskNotCancelable: it has ended, or ended otherwise before it could be stopped.
        """
        await self._apart(self._cancel(feed, by))

    async def _cancel(self, feed: Feed, by: str) -> None:
        await self.tasks.change(feed, Cancel(by))
        limit = self.cancel_limit_s + 1 if feed.runner is not None else 0.0
        await self.tasks.end(feed, limit)
        if not feed.state.over:
            await self.tasks.change(feed, ForceCancel())
        state = feed.state
        if state.state is not TaskState.CANCELED:
            raise TaskNotCancelable(f"task {state.task_id} was faster than the cancel: {plain(state.state)}")

    async def _recover(self) -> None:
        seen: set[Orphan] = set()
        while refs := [ref for ref in await self._store.orphans() if ref not in seen]:
            seen.update(refs)
            # Together, so that they share their commits: a crash may leave thousands.
            await asyncio.gather(*(self._bury(ref) for ref in refs))

    async def _bury(self, ref: Orphan) -> None:
        feed = await self.tasks.load(ref.tenant, ref.task_id)
        if feed is None:
            return
        await self.tasks.change(feed, Claim(self.node, ref.node))
        if feed.state.node != self.node:
            return
        state = feed.state
        if state.cancel_requested:
            await self.tasks.change(feed, ForceCancel())
            return
        text = "The process that ran this task ended before the task did."
        message = Message(
            message_id=self.ids.new(),
            context_id=state.context_id,
            task_id=state.task_id,
            role=Role.AGENT,
            parts=(Part(text=text),),
        )
        await self.tasks.change(feed, Emit(self.node, (Status(TaskState.FAILED, message),)))
        log.warning("task.orphaned task=%s", state.task_id)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self._store.beat(self.node)
            except StoreError as error:
                log.error("node.silent node=%s error=%s", self.node, error)
            silent_since = self.loop.time() - self.limits.stall_s
            for owner in list(self._owners):
                if not owner.waiting and owner.heard_at < silent_since:
                    owner.stop_with("The skill was silent for too long and was stopped.")
