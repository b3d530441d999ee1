"""`Log` in a SQLite file: what it asks of a connection, and what it makes of the rows."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from functools import partial
from operator import attrgetter

import msgspec
from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.log.encoding import DECODE_ERRORS, decode, placed
from trunkline.log.events import AnyEvent, Known, Recorded, Unread, spanned
from trunkline.store.database import Rows
from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.parts import Heads
from trunkline.store.records import START, AppendPage, Cursor, Hint, Poll, TailAppend, TailRecord
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.statements import statements

# Readers look many times a second. What is held for them has left the caches of the processor, and all that
# is made meanwhile is made in other memory: with 8 MiB a task that a hub passes on cost some percent more.
RECENT_BYTES = 256 << 10
_number = attrgetter("id")


class NumberedAppend(TailAppend, frozen=True, gc=False):
    """An append with the number of its last event in the whole log."""

    id: int


class RecentAppends:
    """What this process has committed last, without a gap, for whoever reads the whole log as it grows.

    To read an append again and to decode it costs a third of what it costs to make it. What is older than the
    newest few hundred kilobytes is read from the file, as all of it is after a start.

    Invariant: no other process writes to the file.
    """

    __slots__ = ("_after", "_appends", "_size", "_sizes")

    def __init__(self) -> None:
        self._appends: list[NumberedAppend] = []
        self._sizes: list[int] = []
        self._size = 0
        # The number of the last event before them; None while there are none.
        self._after: int | None = None

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._appends[-1].id if self._appends else self._after or 0

    def take(self, group: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """Add the appends of a group that were written, in the order of the log."""
        for entry, outcome in zip(group, outcomes, strict=True):
            if type(outcome) is int:
                if self._after is None:
                    self._after = entry.id - (entry.last - entry.expected)
                # And not the entry, which holds more than is read.
                self._appends.append(
                    NumberedAppend(entry.tenant, entry.task_id, entry.last, entry.at, entry.events, entry.id)
                )
                self._sizes.append(len(entry.body))
                self._size += len(entry.body)
        if self._size > RECENT_BYTES:
            self._drop()

    def _drop(self) -> None:
        # More than is too much, so that the rest is not moved with every group.
        count = 0
        while self._size > RECENT_BYTES * 3 // 4 and count < len(self._appends):
            self._size -= self._sizes[count]
            count += 1
        self._after = self._appends[count - 1].id
        del self._appends[:count], self._sizes[:count]

    def page(self, after: int, limit: int) -> list[NumberedAppend] | None:
        """The appends behind a number, so many events of them or one append; None if not all are here."""
        if self._after is None or after < self._after:
            return None
        place = bisect_right(self._appends, after, key=_number)
        end = bisect_right(self._appends, after + limit, place, key=_number)
        return self._appends[place : max(end, place + 1)]


_logger = logging.getLogger("trunkline.store")

_SQL = statements("sqlite")


class _AppendRow(Struct, gc=False):
    """The events of one append; `last` is the seq of the last. A tail adds its task and the last one's id."""

    last: int
    at: int
    events: list[Known]
    id: int = 0
    tenant: str = ""
    task_id: str = ""

    def read(self) -> Sequence[AnyEvent]:
        return self.events


class _Foreign(_AppendRow, gc=False):
    """The same with events that a newer version may have written."""

    events: msgspec.Raw  # type: ignore[assignment]

    def read(self) -> Sequence[AnyEvent]:
        return decode(self.events)


_decode_appends = msgspec.json.Decoder(list[_AppendRow]).decode
_decode_foreign = msgspec.json.Decoder(list[_Foreign]).decode


class SqliteLog:
    """The events of all tasks; `append` is the group commit's own, as it is on the path of every send."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._recent: RecentAppends | None = None
        self.append = database.group_commit.append

    async def read(self, tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """See `Log`."""
        call = partial(read_events, tenant=tenant, task_id=task_id, after=after, limit=limit)
        return await self._database.read(call)

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """See `Log`."""
        return self._database.hints.listen()

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """See `Log`."""
        return await self._database.read(partial(_news, places=places, limit=limit))

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """See `Log`."""
        found = [
            (append.id - append.last + recorded.seq, TailRecord(append.tenant, append.task_id, recorded))
            for append in (await self._appends(_place(cursor), limit))[0]
            for recorded in placed(append.last, append.at, append.events)
        ][:limit]
        return [record for _, record in found], str(found[-1][0]) if found else cursor

    async def tail_appends(self, cursor: Cursor, limit: int = 1000) -> AppendPage:
        """See `Log`."""
        found, more = await self._appends(_place(cursor), limit)
        return AppendPage(found, str(found[-1].id) if found else cursor, more)

    async def _appends(self, after: int, limit: int) -> tuple[list[NumberedAppend], bool]:
        if self._recent is None:
            # Kept once somebody reads the whole log: most processes have nobody who does.
            self._recent = RecentAppends()
            self._database.group_commit.written = self._recent.take
        found = self._recent.page(after, limit)
        if found is None:
            found = await self._database.read(partial(_tail, after=after, limit=limit))
            more = bool(found)
        else:
            more = bool(found) and found[-1].id < self._recent.last
            # Who reads until something appears would give nobody a turn to write it.
            await asyncio.sleep(0)
        if found:
            found[0] = _behind(found[0], after)
        return found, more

    async def end(self) -> Cursor:
        """See `Log`."""
        ((_, last),) = await self._database.rows("ends")
        return str(last) if last else START


class SqliteHeads(Heads):
    """The columns of `tasks` that are folded from the log."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._plan = database.plan

    async def _refold(self, page: Sequence[tuple[str, str]], rows: Rows) -> tuple[int, int]:
        # What the plan knows of the heads is what was there before.
        self._plan.forget(task_id for task_id, _ in page)
        return await super()._refold(page, rows)


def read_events(
    connection: sqlite3.Connection, tenant: str, task_id: str, *, after: int, limit: int
) -> list[Recorded]:
    """Events of one task."""
    after = max(after, 0)
    values = {"tenant": tenant, "task_id": task_id, "after": after, "limit": limit}
    try:
        (page,) = connection.execute(_SQL["read"], values).fetchone()
    except sqlite3.DataError:
        # Together they are larger than a value may be (1 GB): take them in halves.
        if limit <= 1:
            raise
        first = read_events(connection, tenant, task_id, after=after, limit=limit // 2)
        after = first[-1].seq if first else after
        return first + read_events(connection, tenant, task_id, after=after, limit=limit - limit // 2)
    except sqlite3.OperationalError as error:
        # The driver's own word for a text that is no UTF-8: the file itself is sound.
        if "decode" not in str(error):
            raise
        raise StoreError.damaged(task_id, "it is not UTF-8") from error
    if page is None:
        return []
    try:
        found = [
            recorded
            for append in _appends(page)
            for recorded in placed(append.last, append.at, append.read())
        ]
    except DECODE_ERRORS as error:
        raise StoreError.damaged(task_id, error) from error
    # A limit may lie inside the first append and inside the last one.
    found = [one for one in found if one.seq > after][:limit]
    if len(found) < limit and found[-1].seq - after > len(found):
        # Ranges made the page short. Only the end of a log may: readers take it for that.
        found += read_events(connection, tenant, task_id, after=found[-1].seq, limit=limit - len(found))
    return found


def _place(cursor: Cursor) -> int:
    try:
        return int(cursor or "0")
    except ValueError:
        raise StoreError(f"cursor {cursor!r} is not from this store; start again without it") from None


def _behind(append: NumberedAppend, after: int) -> NumberedAppend:
    """An append without those of its events that are not behind a number of the whole log."""
    if append.id - spanned(append.events) >= after:
        return append
    seq = append.last - (append.id - after)
    events = [one.event for one in placed(append.last, append.at, append.events) if one.seq > seq]
    return msgspec.structs.replace(append, events=events)


def _tail(connection: sqlite3.Connection, after: int, limit: int) -> list[NumberedAppend]:
    """The next appends of the whole log."""
    values = {"after": after, "limit": limit}
    try:
        (page,) = connection.execute(_SQL["tail"], values).fetchone()
        return [
            NumberedAppend(row.tenant, row.task_id, row.last, row.at, row.read(), row.id)
            for row in _appends(page or "[]")
        ]
    except sqlite3.DataError:
        if limit <= 1:
            raise
        return _tail(connection, after, limit // 2)
    except (sqlite3.OperationalError, *DECODE_ERRORS) as error:
        if isinstance(error, sqlite3.OperationalError) and "decode" not in str(error):
            raise
        return _tail_rows(connection, values)


def _tail_rows(connection: sqlite3.Connection, values: dict[str, int]) -> list[NumberedAppend]:
    """The same page append by append: one damaged task must not keep all others from who reads everything."""
    found: list[NumberedAppend] = []
    for number, tenant, task_id, last, at, body in connection.execute(_SQL["tail_rows"], values):
        try:
            events = decode(body)
        except DECODE_ERRORS as error:
            _logger.error("store.damaged task=%s seq=%d reason=%s", task_id, last, error)
            events = [Unread(body)]
        found.append(NumberedAppend(tenant, task_id, last, at, events, number))
    return found


def _appends(page: str) -> Sequence[_AppendRow]:
    try:
        return _decode_appends(page)
    except msgspec.ValidationError:
        return _decode_foreign(page)


def _news(connection: sqlite3.Connection, places: Sequence[Hint], limit: int) -> list[TailRecord]:
    found: list[TailRecord] = []
    for place in places:
        left = limit - len(found)
        if left <= 0:
            break
        page = read_events(connection, place.tenant, place.task_id, after=place.seq, limit=left)
        if not page:
            for _, _, tenant, end in connection.execute(_SQL["find_tasks"], (place.task_id,)).fetchall():
                if tenant == place.tenant and (end or 0) < place.seq:
                    text = f"it ends at seq {end} and was seen up to {place.seq}"
                    raise StoreError.damaged(place.task_id, text)
        found += [TailRecord(place.tenant, place.task_id, recorded) for recorded in page]
    return found
