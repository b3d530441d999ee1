"""A reader of the whole log that goes on where it stopped, for whatever is computed from all events.

Its place is a cursor in a document, and in the same document stands what its listener made of the events just
before it: both are written at once, by whoever was first. So every event has its effect once, whichever
process dies when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import Conflict, StoreError
from trunkline.store.base import Store
from trunkline.store.records import START, Cursor, Doc, TailAppend

log = logging.getLogger("trunkline.store")
KIND = "tail-cursor"
# Cursors belong to the process, not to a tenant.
_TENANT = "default"
PAGE = 1000
# What is found costs a commit: it waits this long after each look.
EVERY_S = 2.0


class TailListener(Protocol):
    """A listener that computes something from the whole log."""

    async def take(self, page: Sequence[TailAppend]) -> bytes:
        """What a page comes to; empty if nothing. It may be thrown away and asked for again."""
        ...

    async def settle(self, batch: bytes, number: int) -> None:
        """Let what a page came to have its effect; numbers grow.

        After a crash, and by every process that shares the store, the last one is given again: a listener
        keeps with each document that it writes the number of the last batch that is in it.
        """
        ...


class _TailProgress(Struct, array_like=True):
    cursor: Cursor = START
    batch: bytes = b""


class TailReader:
    """Gives the whole log to one listener; as many may be made as there are listeners, each with its name.

    Processes that share a store and use one name share the work.
    """

    def __init__(self, store: Store, name: str, listener: TailListener) -> None:
        self._store = store
        self._name = name
        self._listener = listener
        self._place = _TailProgress()
        # That of the document, which is the number of its batch; -1 while it is to be read.
        self._rev: int = -1
        self._turn = asyncio.Lock()
        self._begun = 0

    async def run(self) -> None:
        """Give what there is and what comes, until the store closes."""
        going_on = True
        while going_on:
            # Before the reading, so that nothing is appended unheard between the two.
            hints = self._store.log.hints()
            try:
                await self.catch_up()
            except StoreError as error:
                log.warning("tail.stopped name=%s cursor=%s error=%s", self._name, self._place.cursor, error)
            going_on = await anext(hints, None) is not None
            # What comes in the pause is read after it: nobody need gather hints of it.
            del hints
            if going_on:
                await asyncio.sleep(EVERY_S)

    async def catch_up(self) -> None:
        """Give everything that was appended before this call.

        Raises:
            StoreError: the store does not answer; it goes on from there at the next call.
        """
        asked = self._begun
        async with self._turn:
            if self._begun > asked:
                # Another's look was begun after this call.
                return
            self._begun += 1
            try:
                await self._read()
            except BaseException:
                # Whether the last write was done is not known.
                self._rev = -1
                raise

    async def _read(self) -> None:
        if self._rev < 0 or self._store.shared:
            await self._load()
        while True:
            page, cursor = await self._store.log.tail_appends(self._place.cursor, PAGE)
            if not page:
                return
            place = _TailProgress(cursor, await self._listener.take(page))
            body = msgspec.msgpack.encode(place)
            try:
                self._rev = await self._store.docs.put(_TENANT, KIND, self._name, body, self._rev)
            except Conflict:
                # Another process was first: what is before its cursor is in its batches.
                await self._load()
                continue
            self._place = place
            await self._settle()

    async def _load(self) -> None:
        found = await self._store.docs.get(_TENANT, KIND, self._name) or Doc(self._name, 0, b"")
        if found.rev == self._rev:
            return
        self._place = (
            msgspec.msgpack.decode(found.body, type=_TailProgress) if found.body else _TailProgress()
        )
        self._rev = found.rev
        # The process that wrote it may have died before its batch had any effect.
        await self._settle()

    async def _settle(self) -> None:
        if self._place.batch:
            await self._listener.settle(self._place.batch, self._rev)
