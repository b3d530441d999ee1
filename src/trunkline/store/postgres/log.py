"""`Log` in PostgreSQL: what it asks of the database, and what it makes of the rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from trunkline.errors import StoreError
from trunkline.log.encoding import DECODE_ERRORS, decode, placed
from trunkline.log.events import Recorded, Unread
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.records import AppendPage, Cursor, Hint, Poll, TailAppend, TailRecord

_logger = logging.getLogger("trunkline.store")
# Another transaction, in whatever database of the server, holds a tail back; most are over at once.
_TAIL_PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


class PostgresLog:
    """The events of all tasks; `append` is the group commit's own, as it is on the path of every send."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.append = database.group_commit.append

    async def read(self, tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """See `Log`."""
        after = max(after, 0)
        rows = await self._database.rows("read", tenant, task_id=task_id, after=after, limit=limit)
        found = [one for last, at, body in rows for one in _placed(task_id, last, at, body)]
        # A limit may lie inside the first append and inside the last one.
        found = [one for one in found if one.seq > after][:limit]
        if found and len(found) < limit and found[-1].seq - after > len(found):
            # Ranges made the page short. Only the end of a log may: readers take it for that.
            found += await self.read(tenant, task_id, found[-1].seq, limit - len(found))
        return found

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """See `Log`."""
        return self._database.hints.listen()

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """See `Log`."""
        rows = await self._database.rows(
            "news",
            task_ids=[place.task_id for place in places],
            tenants=[place.tenant for place in places],
            seqs=[place.seq for place in places],
            limit=limit,
        )
        found: list[TailRecord] = []
        for number, end, last, at, body in rows:
            place = places[int(number) - 1]
            if last is None:
                text = f"it ends at seq {end} and was seen up to {place.seq}"
                raise StoreError.damaged(place.task_id, text)
            found += [
                TailRecord(place.tenant, place.task_id, one)
                for one in _placed(place.task_id, last, at, body)
                if one.seq > place.seq
            ]
            if len(found) >= limit:
                return found[:limit]
        return found

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """See `Log`."""
        found = [
            (xid, TailRecord(append.tenant, append.task_id, recorded))
            for xid, append in (await self._appends(cursor, limit))[0]
            for recorded in placed(append.last, append.at, append.events)
        ][:limit]
        if found:
            xid, last = found[-1]
            cursor = f"{xid}.{last.recorded.seq}.{last.task_id}"
        return [record for _, record in found], cursor

    async def tail_appends(self, cursor: Cursor, limit: int = 1000) -> AppendPage:
        """See `Log`."""
        found, more = await self._appends(cursor, limit)
        if found:
            xid, last = found[-1]
            cursor = f"{xid}.{last.last}.{last.task_id}"
        return AppendPage([append for _, append in found], cursor, more)

    async def _appends(self, cursor: Cursor, limit: int) -> tuple[list[tuple[str, TailAppend]], bool]:
        """The next appends, each with the number of its transaction; and whether the page is full."""
        for pause in _TAIL_PAUSES:
            found, full = await self._committed(cursor, limit)
            if full or not await self._is_held_back():
                return found, full
            await asyncio.sleep(pause)
        return await self._committed(cursor, limit)

    async def _committed(self, cursor: Cursor, limit: int) -> tuple[list[tuple[str, TailAppend]], bool]:
        xid, task_id, seq = _place(cursor)
        found: list[tuple[str, TailAppend]] = []
        rows = await self._database.rows("tail", xid=xid, task_id=task_id, seq=seq, limit=limit)
        for number, tenant, name, last, at, body, _ in rows:
            # A cursor may lie inside the first append.
            after = seq if (number, name) == (xid, task_id) else 0
            events = [one.event for one in _readable(name, last, at, body) if one.seq > after]
            found.append((number, TailAppend(tenant, name, last, at, events)))
        return found, bool(rows) and rows[-1][-1]

    async def _is_held_back(self) -> bool:
        """Whether something is committed that a tail does not show yet: a transaction before it goes on."""
        ((found,),) = await self._database.rows("held_back")
        return found

    async def end(self) -> Cursor:
        """See `Log`."""
        ((xid,),) = await self._database.rows("end")
        return f"{xid}.0."


def _placed(task_id: str, last: int, at: int, body: bytes) -> list[Recorded]:
    try:
        return placed(last, at, decode(body))
    except DECODE_ERRORS as error:
        raise StoreError.damaged(task_id, error) from error


def _readable(task_id: str, last: int, at: int, body: bytes) -> list[Recorded]:
    try:
        return _placed(task_id, last, at, body)
    except StoreError as error:
        # A tail goes on: one damaged task must not keep all others from those who read everything.
        _logger.error("store.damaged task=%s seq=%d reason=%s", task_id, last, error)
        return [Recorded(last, at, Unread(body))]


def _place(cursor: Cursor) -> tuple[str, str, int]:
    xid, _, rest = cursor.partition(".")
    seq, dot, task_id = rest.partition(".")
    if cursor == "":
        return "0", "", 0
    if not dot or not (xid + seq).isascii() or not xid.isdigit() or not seq.isdigit() or len(cursor) > 200:
        raise StoreError(f"cursor {cursor[:200]!r} is not from this store; start again without it")
    return xid, task_id, int(seq)
