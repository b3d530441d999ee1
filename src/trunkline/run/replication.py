"""Keeps the feeds of this process up with what other processes append.

Hints say where to look and may be lost; a poll each second looks everywhere. One question to the
store is under way at any time: what is rung meanwhile is asked together next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trunkline.errors import StoreError
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.store.records import Hint, TaskRef

log = logging.getLogger("trunkline.run")
RETRY_S = 0.5


class Replication:
    """Reads for all feeds at once."""

    def __init__(self, tasks: Tasks, released: Callable[[], None]) -> None:
        self._tasks = tasks
        self._released = released
        self._store = tasks.store
        # Held strongly only until they are read: what nobody else holds need not be followed.
        self._behind: dict[TaskRef, Feed] = {}
        self._rung = asyncio.Event()

    async def listen(self) -> None:
        """Note which feeds are behind, for ever."""
        async for hint in self._store.log.hints():
            if isinstance(hint, Hint):
                if (feed := self._tasks.behind(hint)) is not None:
                    self._note(feed)
            else:
                for feed in self._tasks.open_feeds():
                    self._note(feed)

    def _note(self, feed: Feed) -> None:
        self._behind[TaskRef(feed.tenant, feed.state.task_id)] = feed
        self._rung.set()

    async def read(self) -> None:
        """Bring them up to their logs, for ever."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            feeds, self._behind = self._behind, {}
            try:
                await self._catch_up(feeds)
            except StoreError as error:
                # The next poll names them again.
                log.warning("feeds.unread count=%d error=%s", len(feeds), error)
                await asyncio.sleep(RETRY_S)

    async def _catch_up(self, feeds: dict[TaskRef, Feed]) -> None:
        await self._tasks.refresh_all(feeds)
        if any(not feed.state.node and not feed.state.resting for feed in feeds.values()):
            # An owner has let go: somebody here should go on with it, and not only at the next round.
            self._released()
