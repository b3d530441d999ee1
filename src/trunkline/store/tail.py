"""A reader of the whole log that goes on where it stopped, for whatever is computed from all events.

Its place is a cursor in a document. Every event is given at least once and in the order of `Log.tail`; what
was given after the cursor was last saved is given again after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from trunkline.errors import Conflict, StoreError
from trunkline.store.base import Store
from trunkline.store.records import START, Cursor, TailRecord

log = logging.getLogger("trunkline.store")
KIND = "tail-cursor"
# Cursors belong to the process, not to a tenant.
_TENANT = "default"
PAGE = 1000
# A cursor costs a commit: it is saved this often, and at the end.
SAVE_S = 1.0


class TailReader:
    """Gives the whole log to one listener; as many may be made as there are listeners, each with its name.

    Processes that share a store and use one name share the work: what one of them has taken and saved is
    given to none of them again.
    """

    def __init__(
        self, store: Store, name: str, take: Callable[[Sequence[TailRecord]], Awaitable[None]]
    ) -> None:
        """Take a listener's name and what it does with a page; after a `StoreError` it is given it again."""
        self._store = store
        self._name = name
        self._take = take
        self._cursor: Cursor = START
        self._saved: Cursor = START
        self._rev = 0
        self._due = 0.0

    async def run(self) -> None:
        """Give what there is and what comes, until the store closes."""
        loaded, going_on = False, True
        try:
            while going_on:
                # Before the reading, so that nothing is appended unheard between the two.
                hints = self._store.log.hints()
                try:
                    if not loaded:
                        await self._load()
                        loaded = True
                    await self._catch_up()
                except StoreError as error:
                    log.warning("tail.stopped name=%s cursor=%s error=%s", self._name, self._cursor, error)
                going_on = await anext(hints, None) is not None
        finally:
            with contextlib.suppress(StoreError):
                await self._save()

    async def _catch_up(self) -> None:
        while True:
            page, cursor = await self._store.log.tail(self._cursor, PAGE)
            if page:
                await self._take(page)
                self._cursor = cursor
            if asyncio.get_running_loop().time() >= self._due:
                await self._save()
            if not page:
                return

    async def _load(self) -> None:
        doc = await self._store.docs.get(_TENANT, KIND, self._name)
        if doc is not None:
            self._cursor = self._saved = doc.body.decode()
            self._rev = doc.rev

    async def _save(self) -> None:
        if self._cursor == self._saved:
            return
        try:
            self._rev = await self._store.docs.put(
                _TENANT, KIND, self._name, self._cursor.encode(), self._rev
            )
            self._saved = self._cursor
        except Conflict:
            # Another process reads under this name: all before its cursor has been taken.
            await self._load()
        self._due = asyncio.get_running_loop().time() + SAVE_S
