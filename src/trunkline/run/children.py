"""Parents and children: a child's end and questions are told to its parent, a parent's end to its children.

Both append to another log than the one that moved, so a process may die in between; every few seconds
somebody looks for what was left undone. `OpenedTasks` are the children that one executor opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import InvalidParams, StoreError, TaskNotCancelable, TaskNotFound
from trunkline.log.delegation import RestChild
from trunkline.log.events import DISPATCH_KEY
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.node import Node
from trunkline.run.owner import Owner
from trunkline.run.questions import restriction_of
from trunkline.run.tasks import not_found
from trunkline.store.records import TaskRef, Where
from trunkline.telemetry import traces
from trunkline.wire.types import TERMINAL, Correlation, Message, SendRequest, TaskState

if TYPE_CHECKING:
    from trunkline.run.runner import Runner


log = logging.getLogger("trunkline.run")
SWEEP_S = 5.0
PAGE = 100
# A store that is away for longer is left to the sweep.
TRIES = 5
RETRY_S = 0.5


class Children(Struct, frozen=True):
    """Keeps parents and children together; `cancel` stops a task, `due` looks for tasks that are due."""

    _node: Node
    _owners: Collection[Owner]
    _cancel: Callable[[Feed, str], Awaitable[None]]
    _due: Callable[[], None]

    def __post_init__(self) -> None:
        self._node.tasks.rested = self._rested

    def _rested(self, feed: Feed) -> None:
        """Tell those whom the rest of a task concerns; asked for children and for what was canceled."""
        self._node.spawn(self._insist(feed))

    async def _insist(self, feed: Feed) -> None:
        for place in range(TRIES):
            try:
                return await self._tell(feed)
            except StoreError as error:
                log.error("children.untold task=%s error=%s", feed.state.task_id, error)
            await asyncio.sleep(RETRY_S * 2**place)

    async def _tell(self, feed: Feed) -> None:
        state = feed.state
        if state.parent and state.resting:
            await self._tell_parent(feed)
        if state.state is TaskState.CANCELED:
            await self._cancel_children(feed.tenant, state.task_id)

    async def _tell_parent(self, feed: Feed) -> None:
        tasks, child = self._node.tasks, feed.state
        parent = await tasks.load(feed.tenant, child.parent)
        if parent is None:
            return
        question = "" if child.question is None else child.question.message_id
        # Forgotten meanwhile, then there is nobody to be told.
        with contextlib.suppress(TaskNotFound):
            await tasks.change(parent, RestChild(child.task_id, child.state, question))
        if not parent.state.node:
            self._due()

    async def _cancel_children(self, tenant: str, task_id: str) -> None:
        after = None
        while True:
            where = Where(parent=task_id)
            page = await self._node.tasks.store.heads.list(tenant, where, size=PAGE, after=after)
            still_open = [TaskRef(tenant, head.task_id) for head in page.heads if head.state not in TERMINAL]
            feeds = await self._node.tasks.load_all(still_open)
            await asyncio.gather(*map(self._cancel_one, feeds.values()))
            if page.next is None:
                return
            after = page.next

    async def _cancel_one(self, feed: Feed) -> None:
        # It may be faster. Its own children follow by its end, at whichever node that is appended.
        with contextlib.suppress(TaskNotCancelable, TaskNotFound):
            await self._cancel(feed, feed.state.principal)

    async def run(self) -> None:
        """Look for what a dead process left undone, again and again, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.round()
            except StoreError as error:
                log.error("children.unread error=%s", error)

    async def round(self) -> None:
        """Tell every parent and cancel every child that was not told."""
        tasks = self._node.tasks
        rested = await tasks.store.nodes.rested_children(PAGE)
        # What waits with its coroutine no list of parked tasks shows.
        awaited = {TaskRef(owner.feed.tenant, child) for owner in self._owners for child in owner.awaited}
        for child in (await tasks.load_all({*rested, *awaited})).values():
            try:
                if child.state.resting:
                    await self._tell(child)
            except StoreError as error:
                if not error.damaged_task:
                    raise
                # A parent that is damaged must not keep the others from being told.
                log.error("children.untold task=%s error=%s", child.state.task_id, error)
        still_open = await tasks.store.nodes.open_children_of_ended(PAGE)
        # Only what is carried here: whoever carries the others can tell their executors.
        feeds = [
            feed
            for feed in (await tasks.load_all(still_open)).values()
            if feed.state.agent in self._node.by_name
        ]
        await asyncio.gather(*map(self._cancel_one, feeds))


class OpenedTasks(Struct, frozen=True):
    """The children of one task, which its executor opens through the runner of its node."""

    _runner: Runner
    _parent: Feed

    async def open(self, child: str, agent: str, request: SendRequest, *, is_new: bool = False) -> None:
        """Open a task of an agent under this id, unless that was done before.

        Raises:
            Refused: nobody here takes it, or the id is that of a task which is no child of this one.
        """
        tenant, parent = self._parent.tenant, self._parent.state
        if restriction := restriction_of(self._runner.find_agent(parent.agent, tenant), tenant, parent):
            request = replace(request, metadata={**(request.metadata or {}), DISPATCH_KEY: restriction})
        feed = None if is_new else await self._find(child)
        while feed is None:
            try:
                ack = self._runner.submit(
                    tenant,
                    parent.principal,
                    replace(request, correlation=_passed_on(parent)),
                    agent=agent,
                    parent=parent.task_id,
                    task_id=child,
                    trace=traces.traceparent(parent.trace),
                )[1]
            except KeyError:
                raise InvalidParams(f"there is no agent {agent!r} here", field="target") from None
            try:
                await ack
            except StoreError as error:
                # Whether it was written is seen by the next look.
                await self._wait(child, error)
            feed = await self._find(child)
        if feed.state.parent != parent.task_id:
            raise InvalidParams(f"there is a task {child} already, and it is not this one's", field="task.id")

    async def state(self, child: str) -> State:
        """A child as its log stands."""
        return (await self._feed(child)).state

    async def answer(self, child: str, message: Message) -> None:
        """Say something to a child."""
        while True:
            try:
                return await self._runner.say(await self._feed(child), message, relayed=True)
            except StoreError as error:
                await self._wait(child, error)

    async def cancel(self, child: str) -> None:
        """Have a child end, unless it has."""
        feed = await self._load(child)
        if feed is not None and not feed.state.over:
            with contextlib.suppress(TaskNotCancelable, TaskNotFound):
                await self._runner.cancel(feed, self._parent.state.principal)

    async def _feed(self, child: str) -> Feed:
        feed = await self._load(child)
        if feed is None:
            raise not_found(child)
        return feed

    async def _find(self, child: str) -> Feed | None:
        """Return a child that is in the log; None once it is known not to be."""
        while (feed := await self._load(child)) is not None and not feed.state.seq:
            # After a write that failed the runner looks for it in the log, and holds the empty feed.
            del feed
            await asyncio.sleep(RETRY_S)
        return feed

    async def _load(self, child: str) -> Feed | None:
        while True:
            try:
                return await self._runner.tasks.load(self._parent.tenant, child)
            except StoreError as error:
                await self._wait(child, error)

    async def _wait(self, child: str, error: StoreError) -> None:
        """Wait for a store that is away: like every word of the parent, a call outlasts that."""
        if error.damaged_task:
            raise error
        log.error("child.unreached task=%s child=%s error=%s", self._parent.state.task_id, child, error)
        await asyncio.sleep(RETRY_S)


def _passed_on(parent: State) -> Correlation | None:
    """Return the correlation of a new child: the ID that the parent's caller named, or None without one."""
    given = parent.correlation
    if given is None or not given.correlation_id:
        return None
    return replace(given, parent_id=parent.task_id)
