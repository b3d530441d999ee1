"""Parents and children: a child's end is told to its parent, a parent's cancel to its open children.

Both append to another log than the one that moved, so a process may die in between; every few seconds
somebody looks for what was left undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from trunkline.errors import StoreError, TaskNotCancelable, TaskNotFound
from trunkline.log.decide import EndChild
from trunkline.run.feed import Feed
from trunkline.run.node import Node
from trunkline.run.owner import Owner
from trunkline.store.records import Where
from trunkline.wire.types import TERMINAL, TaskState

log = logging.getLogger("trunkline.run")
SWEEP_S = 5.0
PAGE = 100
# A store that is away for longer is left to the sweep.
TRIES = 5
RETRY_S = 0.5


class Children:
    """Keeps parents and children together; `cancel` stops a task, `due` looks for tasks that are due."""

    def __init__(
        self,
        node: Node,
        owners: Collection[Owner],
        cancel: Callable[[Feed, str], Awaitable[None]],
        due: Callable[[], None],
    ) -> None:
        self._node = node
        self._owners = owners
        self._cancel = cancel
        self._due = due
        node.tasks.ended = self._ended

    def _ended(self, feed: Feed) -> None:
        """Tell those whom the end of a task concerns; asked for children and for what was canceled."""
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
        if state.parent:
            await self._tell_parent(feed.tenant, state.parent, state.task_id, state.state)
        if state.state is TaskState.CANCELED:
            await self._cancel_children(feed.tenant, state.task_id)

    async def _tell_parent(self, tenant: str, task_id: str, child: str, state: TaskState) -> None:
        tasks = self._node.tasks
        parent = await tasks.load(tenant, task_id)
        if parent is None:
            return
        # Forgotten meanwhile, then there is nobody to be told.
        with contextlib.suppress(TaskNotFound):
            await tasks.change(parent, EndChild(child, state))
        if not parent.state.node:
            self._due()

    async def _cancel_children(self, tenant: str, task_id: str) -> None:
        after = None
        while True:
            where = Where(parent=task_id)
            page = await self._node.tasks.store.heads.list(tenant, where, size=PAGE, after=after)
            still_open = [head.task_id for head in page.heads if head.state not in TERMINAL]
            await asyncio.gather(*(self._cancel_one(tenant, child) for child in still_open))
            if page.next is None:
                return
            after = page.next

    async def _cancel_one(self, tenant: str, task_id: str) -> None:
        feed = await self._node.tasks.load(tenant, task_id)
        if feed is None:
            return
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
        nodes = self._node.tasks.store.nodes
        for one in await nodes.ended_children(PAGE):
            await self._tell_parent(one.tenant, one.parent, one.child, one.state)
        for one in await nodes.open_children_of_canceled(PAGE):
            await self._cancel_one(one.tenant, one.task_id)
        for owner in [owner for owner in self._owners if owner.child]:
            # It waits with its coroutine, where no list of parked tasks shows it.
            child = await self._node.tasks.load(owner.feed.tenant, owner.child)
            if child is not None and child.state.over:
                await self._tell(child)
