"""`Log` and `Heads` in PostgreSQL: what they ask of a session, and what they make of the rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trunkline.errors import StoreError
from trunkline.log.compact import Append
from trunkline.log.encoding import DECODE_ERRORS, decode, placed
from trunkline.log.events import Recorded, Unread
from trunkline.log.fold import State
from trunkline.log.head import Head, head_after
from trunkline.log.ids import Position
from trunkline.store.columns import NUMBERS, HeadRow, filters, head_page
from trunkline.store.parts import Heads
from trunkline.store.postgres.address import EVERY_TENANT
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.sessions import TEXTS, Statement, fetch
from trunkline.store.records import Cursor, HeadPage, Hint, Poll, TailRecord, Where

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")
PAGE_TASKS = 100
# Another transaction, in whatever database of the server, holds a tail back; most are over at once.
_TAIL_PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


class PostgresLog:
    """The events of all tasks; `append` is the group commit's own, as it is on the path of every send."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.append = database.group_commit.append

    async def read(self, tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """See `Log`."""
        call = partial(_read, tenant=tenant, task_id=task_id, after=after, limit=limit)
        return await self._database.read(tenant, call)

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """See `Log`."""
        return self._database.hints.listen()

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """See `Log`."""
        return await self._database.read(EVERY_TENANT, partial(_news, places=places, limit=limit))

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """See `Log`."""
        call = partial(_tail, cursor=cursor, limit=limit)
        for pause in _TAIL_PAUSES:
            found, reached = await self._database.read(EVERY_TENANT, call)
            if len(found) >= limit or not await self._database.read(EVERY_TENANT, _held_back):
                return found, reached
            await asyncio.sleep(pause)
        return await self._database.read(EVERY_TENANT, call)

    async def end(self) -> Cursor:
        """See `Log`."""
        ((xid,),) = await self._database.read(EVERY_TENANT, partial(fetch, name="end"))
        return f"{xid}.0."


class PostgresHeads(Heads):
    """The table `tasks`, folded from the log."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """See `Heads`."""
        given = filters(where)
        texts = " ".join(TEXTS[f"filter_{name}"] for name in given)
        # One more than asked for tells whether there is a next page.
        given |= {"tenant": tenant, "limit": size + 1}
        text = TEXTS["heads"]
        if after is not None:
            text = text.replace("/*after*/", TEXTS["filter_after"])
            given |= {"after_at": after.status_at, "after_id": after.task_id}
        page, count = (Statement(each.replace("/*filters*/", texts)) for each in (text, TEXTS["count_heads"]))

        async def find(connection: Connection) -> HeadPage:
            found = [HeadRow(*row) for row in await connection.fetch(page.text, *page.values(given))]
            return head_page(found, size, await connection.fetchval(count.text, *count.values(given)))

        return await self._database.read(tenant, find)

    async def rebuild(self, tenant: str | None = None) -> int:
        """See `Heads`."""
        after, count = "", 0
        while page := await self._database.change(partial(_next_tasks, tenant=tenant, after=after)):
            count += await self._database.change(partial(_refold, page=page))
            after = page[-1][0]
        return count


async def _read(
    connection: Connection, tenant: str, task_id: str, *, after: int, limit: int
) -> list[Recorded]:
    after = max(after, 0)
    rows = await fetch(connection, "read", tenant=tenant, task_id=task_id, after=after, limit=limit)
    found = [one for last, at, body in rows for one in _placed(task_id, last, at, body)]
    # A limit may lie inside the first append and inside the last one.
    found = [one for one in found if one.seq > after][:limit]
    if found and len(found) < limit and found[-1].seq - after > len(found):
        # Ranges made the page short. Only the end of a log may: readers take it for that.
        found += await _read(connection, tenant, task_id, after=found[-1].seq, limit=limit - len(found))
    return found


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


async def _news(connection: Connection, places: Sequence[Hint], limit: int) -> list[TailRecord]:
    rows = await fetch(
        connection,
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
            raise StoreError.damaged(place.task_id, f"it ends at seq {end} and was seen up to {place.seq}")
        found += [
            TailRecord(place.tenant, place.task_id, one)
            for one in _placed(place.task_id, last, at, body)
            if one.seq > place.seq
        ]
        if len(found) >= limit:
            return found[:limit]
    return found


async def _tail(connection: Connection, cursor: Cursor, limit: int) -> tuple[list[TailRecord], Cursor]:
    xid, task_id, seq = _place(cursor)
    rows = await fetch(connection, "tail", xid=xid, task_id=task_id, seq=seq, limit=limit)
    found: list[TailRecord] = []
    for number, tenant, name, last, at, body in rows:
        for one in _readable(name, last, at, body):
            if (number, name) == (xid, task_id) and one.seq <= seq:
                continue
            found.append(TailRecord(tenant, name, one))
            cursor = f"{number}.{one.seq}.{name}"
            if len(found) >= limit:
                return found, cursor
    return found, cursor


async def _held_back(connection: Connection) -> bool:
    """Whether something is committed that a tail does not show yet, because of a transaction before it."""
    ((found,),) = await fetch(connection, "held_back")
    return bool(found)


def _place(cursor: Cursor) -> tuple[str, str, int]:
    xid, _, rest = cursor.partition(".")
    seq, dot, task_id = rest.partition(".")
    if cursor == "":
        return "0", "", 0
    if not dot or not (xid + seq).isascii() or not xid.isdigit() or not seq.isdigit() or len(cursor) > 200:
        raise StoreError(f"cursor {cursor[:200]!r} is not from this store; start again without it")
    return xid, task_id, int(seq)


async def _next_tasks(connection: Connection, *, tenant: str | None, after: str) -> list[tuple[str, str]]:
    rows = await fetch(connection, "next_tasks", tenant=tenant, after=after, limit=PAGE_TASKS)
    return [(task_id, of_tenant) for task_id, of_tenant in rows]


async def _refold(connection: Connection, *, page: Sequence[tuple[str, str]]) -> int:
    count = 0
    async with connection.transaction():
        held = await fetch(connection, "hold_heads", task_ids=[task_id for task_id, _ in page])
        known = {task_id for (task_id,) in held}
        for task_id, tenant in page:
            try:
                head = await _fold_head(connection, task_id)
            except DECODE_ERRORS as error:
                # What is known of it stays: it is all that can still be shown.
                _logger.error("store.damaged task=%s reason=%s", task_id, error)
                continue
            if head is None:
                await fetch(connection, "drop_head", task_id=task_id)
                continue
            count += 1
            name = "put_head" if task_id in known else "add_head"
            await fetch(
                connection,
                name,
                task_id=task_id,
                tenant=tenant,
                context_id=head.context_id,
                principal=head.principal,
                state=NUMBERS[head.state],
                status_at=head.status_at,
                seq=head.seq,
                node=head.node,
                agent=head.agent,
                parent=head.parent,
                child=head.child,
                wake_at=head.wake_at,
            )
    return count


async def _fold_head(connection: Connection, task_id: str) -> Head | None:
    state = State(task_id)
    head: Head | None = None
    for append in await appends_of(connection, task_id):
        for recorded in placed(append.last, append.at, append.events):
            head = head_after(state, (recorded.event,), recorded.at) or head
            state.apply(recorded)
    return head


async def appends_of(connection: Connection, task_id: str) -> list[Append]:
    """The whole log of a task, append by append."""
    rows = await fetch(connection, "read_rows", task_id=task_id)
    return [Append(last, at, decode(body)) for last, at, body in rows]
