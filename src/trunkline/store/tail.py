"""A reader of the whole log that goes on where it stopped, for whatever is computed from all events.

Its place is a cursor in a document, and in the same document stands what its listener made of the events just
before it: both are written at once, by whoever was first. So every event has its effect once, whichever
process dies when.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import Conflict, StoreError
from trunkline.log.encoding import DECODE_ERRORS
from trunkline.store.base import Store
from trunkline.store.documents import DocumentKind, log_damaged
from trunkline.store.records import START, Cursor, TailAppend

log = logging.getLogger("trunkline.store")
KIND = "tail-cursor"
# A number, or in PostgreSQL a number, a seq and a task ID.
_CURSOR = re.compile(r"(?:\d{1,20}(?:\.\d{1,20}\.[!-~]{0,128})?)?", re.ASCII)
# Cursors belong to the process, not to a tenant.
_TENANT = "default"
PAGE = 1000
# What is found costs a commit: it waits this long after the last one, or until so much is found.
EVERY_S = 2.0
MOST_FOUND = 2000
# What this process has written itself is in memory and costs next to nothing to look at: it is looked at
# soon, so that little of it has to be held.
LOOK_S = 0.01


class TailListener(Protocol):
    """A listener that computes something from the whole log.

    With `is_repeatable` the log may be given again from its start; otherwise a reader whose place is lost
    resumes at the end of the log.
    """

    is_repeatable: bool

    async def take(self, page: Sequence[TailAppend]) -> Sequence[object]:
        """What a page comes to, as MessagePack has it. It may be thrown away and asked for again."""
        ...

    async def settle(self, batch: bytes, number: int) -> None:
        """Let what some pages came to, as one list, have its effect; numbers grow.

        After a crash, and by every process that shares the store, the last one is given again: a listener
        keeps with each document that it writes the number of the last batch that is in it.
        """
        ...


class _TailProgress(Struct, array_like=True):
    cursor: Cursor = START
    batch: bytes = b""


def _decode(_name: str, body: bytes) -> _TailProgress | None:
    """Return the progress of a reader, or None where an operator removed a damaged one."""
    if not body:
        return None
    progress = msgspec.msgpack.decode(body, type=_TailProgress)
    if not _CURSOR.fullmatch(progress.cursor):
        raise ValueError("it holds no cursor")
    return progress


# Invariant: revisions grow, since they number the batches. So a damaged document is emptied, never deleted.
TAIL_CURSORS: DocumentKind[_TailProgress | None] = DocumentKind(KIND, _decode, lambda name, now: b"")


def batch_of(body: bytes) -> bytes:
    """Return the batch in the document of a reader; empty if it has none."""
    progress = _decode("", body)
    return b"" if progress is None else progress.batch


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
        # What was taken since the document was written, and how far.
        self._cursor = START
        self._found: list[object] = []
        self._due = 0.0
        self._turn = asyncio.Lock()
        self._begun = 0

    async def run(self) -> None:
        """Give what there is and what comes, until the store closes."""
        loop, hints, pause = asyncio.get_running_loop(), None, EVERY_S if self._store.shared else LOOK_S
        while True:
            before, failed = self._cursor, False
            try:
                async with self._turn:
                    await self._gather()
                    if loop.time() >= self._due:
                        await self._write()
            except StoreError as error:
                failed = True
                log.warning("tail.stopped name=%s cursor=%s error=%s", self._name, self._place.cursor, error)
            if self._cursor != before and not failed:
                # More will come, and is read after the pause: nobody need gather hints of it.
                hints = None
                await asyncio.sleep(pause)
            elif hints is None:
                # And once more, so that nothing is appended unheard between the two.
                hints = self._store.log.hints()
            elif await anext(hints, None) is None:
                return
            elif failed:
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
                await self._gather()
                while not await self._write():
                    await self._gather()
            except BaseException:
                # Who waits for the end of this look has nothing of it, and looks itself.
                self._begun -= 1
                raise

    @property
    def unsettled(self) -> Sequence[object]:
        """What the listener made of events and has not settled yet; another list after each write."""
        return self._found

    async def read_on(self) -> None:
        """Give everything that was appended before this call to the listener, whose effect may come later.

        Raises:
            StoreError: the store does not answer.
        """
        async with self._turn:
            await self._gather()

    async def _gather(self) -> None:
        """Take what there is, and not what is appended meanwhile: who appends all the time would have no end.

        Others may be waiting for what a shared store has: that is written at once.
        """
        loop, more = asyncio.get_running_loop(), True
        try:
            if self._rev < 0 or self._store.shared:
                await self._load()
            while more:
                page, cursor, more = await self._store.log.tail_appends(self._cursor, PAGE)
                if not page:
                    return
                self._found += await self._listener.take(page)
                self._cursor = cursor
                if self._store.shared or len(self._found) >= MOST_FOUND or loop.time() >= self._due:
                    # Where another process was first, what it has not taken is still to come.
                    more = not await self._write() or more
        except BaseException:
            # What was taken may not be all.
            self._rev = -1
            raise

    async def _write(self) -> bool:
        """Write what was taken, and let it have its effect; False if another process was first."""
        if self._cursor == self._place.cursor:
            return True
        batch = msgspec.msgpack.encode(self._found) if self._found else b""
        place = _TailProgress(self._cursor, batch)
        body = msgspec.msgpack.encode(place)
        try:
            try:
                self._rev = await self._store.docs.put(_TENANT, KIND, self._name, body, self._rev)
            except Conflict:
                # What is before its cursor is in its batches.
                await self._load()
                return False
            self._place, self._found = place, []
            self._due = asyncio.get_running_loop().time() + EVERY_S
            await self._settle()
        except BaseException:
            # Whether it was done is not known.
            self._rev = -1
            raise
        return True

    async def _load(self) -> None:
        found = await self._store.docs.get(_TENANT, KIND, self._name)
        rev = 0 if found is None else found.rev
        if rev == self._rev:
            return
        known = _TailProgress() if found is None else TAIL_CURSORS.read_or_set_aside(_TENANT, found)
        self._resume(known or await self._restart(), rev)
        try:
            # The process that wrote it may have died before its batch had any effect.
            await self._settle()
        except DECODE_ERRORS as error:
            log_damaged(_TENANT, KIND, self._name, error)
            self._resume(await self._restart(), rev)

    def _resume(self, place: _TailProgress, rev: int) -> None:
        self._place, self._rev, self._cursor, self._found = place, rev, place.cursor, []

    async def _restart(self) -> _TailProgress:
        """Return where a reader goes on whose place is lost."""
        return _TailProgress() if self._listener.is_repeatable else _TailProgress(await self._store.log.end())

    async def _settle(self) -> None:
        if self._place.batch:
            await self._listener.settle(self._place.batch, self._rev)
