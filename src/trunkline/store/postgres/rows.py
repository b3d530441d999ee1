"""What reads and small changes ask of a PostgreSQL session, and what they make of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline.errors import Conflict, StoreError
from trunkline.log.events import DECODE_ERRORS, Recorded, decode, placed
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.base import (
    Cursor,
    Doc,
    Fault,
    HeadPage,
    Hint,
    TailRecord,
    TaskRef,
    Where,
)
from trunkline.store.columns import HeadRow, filters, head_page
from trunkline.store.postgres.statements import SQL, TEXTS, Statement, Value

if TYPE_CHECKING:
    from asyncpg import Record

    from trunkline.store.postgres.address import Connection


async def fetch(connection: Connection, name: str, **values: Value) -> list[Record]:
    """The rows of a named statement."""
    statement = SQL[name]
    return await connection.fetch(statement.text, *statement.values(values))


async def read(
    connection: Connection, tenant: str, task_id: str, *, after: int, limit: int
) -> list[Recorded]:
    """Events of one task."""
    after = max(after, 0)
    rows = await fetch(connection, "read", tenant=tenant, task_id=task_id, after=after, limit=limit)
    found = [one for last, at, body in rows for one in _placed(task_id, last, at, body)]
    # A limit may lie inside the first append and inside the last one.
    found = [one for one in found if one.seq > after][:limit]
    if found and len(found) < limit and found[-1].seq - after > len(found):
        # Ranges made the page short. Only the end of a log may: readers take it for that.
        found += await read(connection, tenant, task_id, after=found[-1].seq, limit=limit - len(found))
    return found


def _placed(task_id: str, last: int, at: int, body: bytes) -> list[Recorded]:
    try:
        return placed(last, at, decode(body))
    except DECODE_ERRORS as error:
        raise StoreError.damaged(task_id, error) from error


async def news(connection: Connection, places: Sequence[Hint], limit: int) -> list[TailRecord]:
    """What some tasks hold beyond what is known of them."""
    rows = await fetch(
        connection,
        "news",
        task_ids=[place.task_id for place in places],
        tenants=[place.tenant for place in places],
        seqs=[place.seq for place in places],
        limit=limit,
    )
    found: list[TailRecord] = []
    for number, last, at, body in rows:
        place = places[int(number) - 1]
        found += [
            TailRecord(place.tenant, place.task_id, one)
            for one in _placed(place.task_id, last, at, body)
            if one.seq > place.seq
        ]
        if len(found) >= limit:
            return found[:limit]
    return found


async def tail(connection: Connection, cursor: Cursor, limit: int) -> tuple[list[TailRecord], Cursor]:
    """Events of the whole log below the horizon."""
    xid, task_id, seq = _place(cursor)
    rows = await fetch(connection, "tail", xid=xid, task_id=task_id, seq=seq, limit=limit)
    found: list[TailRecord] = []
    for number, tenant, name, last, at, body in rows:
        for one in _placed(name, last, at, body):
            if (number, name) == (xid, task_id) and one.seq <= seq:
                continue
            found.append(TailRecord(tenant, name, one))
            cursor = f"{number}.{one.seq}.{name}"
            if len(found) >= limit:
                return found, cursor
    return found, cursor


async def held_back(connection: Connection) -> bool:
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


async def tasks(connection: Connection, cursor: Cursor, limit: int) -> tuple[list[TaskRef], Cursor]:
    """Tasks by their ids."""
    found = [
        TaskRef(tenant, task_id)
        for task_id, tenant in await fetch(connection, "every_task", after=cursor, limit=limit)
    ]
    return found, found[-1].task_id if found else cursor


async def faults(connection: Connection) -> list[Fault]:
    """Rows that no log accounts for."""
    return [Fault(task_id, text) for task_id, text in await fetch(connection, "faults")]


async def head(connection: Connection, tenant: str, task_id: str) -> Head | None:
    """One head."""
    rows = await fetch(connection, "head", tenant=tenant, task_id=task_id)
    return HeadRow(*rows[0]).head() if rows else None


async def heads(
    connection: Connection, tenant: str, where: Where, *, size: int, after: Position | None
) -> HeadPage:
    """One page of heads, and how many there are in all."""
    given = filters(where)
    texts = " ".join(TEXTS[f"filter_{name}"] for name in given)
    # One more than asked for tells whether there is a next page.
    given |= {"tenant": tenant, "limit": size + 1}
    text = TEXTS["heads"]
    if after is not None:
        text = text.replace("/*after*/", TEXTS["filter_after"])
        given |= {"after_at": after.status_at, "after_id": after.task_id}
    page, count = (Statement(each.replace("/*filters*/", texts)) for each in (text, TEXTS["count_heads"]))
    found = [HeadRow(*row) for row in await connection.fetch(page.text, *page.values(given))]
    total = await connection.fetchval(count.text, *count.values(given))
    return head_page(found, size, total)


async def now(connection: Connection) -> int:
    """The database's time."""
    ((moment,),) = await fetch(connection, "now")
    return moment


async def fire(connection: Connection, schedule: str, planned_at: int) -> bool:
    """Claim an instant."""
    return bool(await fetch(connection, "fire", schedule=schedule, planned_at=planned_at))


async def put_doc(
    connection: Connection, tenant: str, kind: str, doc_id: str, *, body: bytes, expected_rev: int
) -> int:
    """Write a document over the revision its writer has seen."""
    key = {"tenant": tenant, "kind": kind, "id": doc_id}
    if expected_rev == 0:
        rows = await fetch(connection, "add_doc", **key, body=body)
    else:
        rows = await fetch(connection, "put_doc", **key, body=body, rev=expected_rev)
    if rows:
        return rows[0][0]
    found = await fetch(connection, "get_doc", **key)
    raise Conflict(found[0]["rev"] if found else 0)


async def get_doc(connection: Connection, tenant: str, kind: str, doc_id: str) -> Doc | None:
    """One document."""
    rows = await fetch(connection, "get_doc", tenant=tenant, kind=kind, id=doc_id)
    return Doc(*rows[0]) if rows else None


async def list_docs(connection: Connection, tenant: str, kind: str) -> list[Doc]:
    """All documents of a kind."""
    return [Doc(*row) for row in await fetch(connection, "list_docs", tenant=tenant, kind=kind)]


async def delete_doc(connection: Connection, tenant: str, kind: str, doc_id: str) -> bool:
    """Remove a document."""
    return bool(await fetch(connection, "delete_doc", tenant=tenant, kind=kind, id=doc_id))
