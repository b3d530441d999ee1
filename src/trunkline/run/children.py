"""Parents and children: a child's end and questions are told to its parent, a parent's end to its children.

Both append to another log than the one that moved, so a process may die in between; every few seconds
somebody looks for what was left undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from trunkline.errors import StoreError, TaskNotCancelable, TaskNotFound
from trunkline.log.delegation import RestChild
from trunkline.run.feed import Feed
from trunkline.run.node import Node
from trunkline.run.owner import Owner
from trunkline.store.records import TaskRef, Where
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
        node.tasks.rested = self._rested

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
