"""What the reads of the SQLite store ask of a connection, and what they make of the rows."""

from __future__ import annotations

import sqlite3

import msgspec

from trunkline.errors import StoreError
from trunkline.log.events import Recorded
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.base import Cursor, Doc, HeadPage, TailRecord, TaskRef, Where
from trunkline.store.statements import statements
from trunkline.wire.types import TaskState

_SQL, _ = statements("sqlite")
_decode_read = msgspec.json.Decoder(list[Recorded]).decode
_decode_tail = msgspec.json.Decoder(list[TailRecord]).decode
_decode_heads = msgspec.json.Decoder(list[Head]).decode


def read(
    connection: sqlite3.Connection, tenant: str, task_id: str, *, after: int, limit: int
) -> list[Recorded]:
    """Events of one task."""
    try:
        (page,) = connection.execute(_SQL["read"], (task_id, tenant, after, limit)).fetchone()
    except sqlite3.DataError:
        # Together they are larger than a value may be (1 GB): take them in halves.
        if limit <= 1:
            raise
        first = read(connection, tenant, task_id, after=after, limit=limit // 2)
        after = first[-1].seq if first else after
        return first + read(connection, tenant, task_id, after=after, limit=limit - limit // 2)
    return [] if page is None else _decode_read(page)


def tail(connection: sqlite3.Connection, cursor: Cursor, limit: int) -> tuple[list[TailRecord], Cursor]:
    """Events of the whole log."""
    try:
        after = int(cursor or "0")
    except ValueError:
        raise StoreError(f"cursor {cursor!r} is not from this store; start again without it") from None
    try:
        last, page = connection.execute(_SQL["tail"], (after, limit)).fetchone()
    except sqlite3.DataError:
        if limit <= 1:
            raise
        return tail(connection, cursor, limit // 2)
    return ([], cursor) if page is None else (_decode_tail(page), str(last))


def head(connection: sqlite3.Connection, tenant: str, task_id: str) -> Head | None:
    """One head."""
    row = connection.execute(_SQL["head"], (task_id, tenant)).fetchone()
    if row is None:
        return None
    task_id, context_id, owner, state, status_at, seq, node = row
    return Head(task_id, context_id, owner, TaskState(state), status_at, seq, node)


def heads(
    connection: sqlite3.Connection, tenant: str, where: Where, *, size: int, after: Position | None
) -> HeadPage:
    """One page of heads, and how many there are in all."""
    filters = " ".join(_SQL[name] for name in _filters(where))
    statement = _SQL["heads"].replace("/*filters*/", filters)
    # One more than asked for tells whether there is a next page.
    values: dict[str, str | int | None] = {
        "tenant": tenant,
        "owner": where.owner,
        "context_id": where.context_id,
        "state": None if where.state is None else where.state.value,
        "status_from": where.status_from,
        "limit": size + 1,
    }
    if after is not None:
        statement = statement.replace("/*after*/", _SQL["filter_after"])
        values["after_at"], values["after_id"] = after.status_at, after.task_id
    total, page = connection.execute(statement, values).fetchone()
    found = _decode_heads(page)
    if len(found) <= size:
        return HeadPage(found, None, total)
    last = found[size - 1]
    return HeadPage(found[:size], Position(last.status_at, last.task_id), total)


def _filters(where: Where) -> list[str]:
    names: list[str] = []
    if where.context_id is not None:
        names.append("filter_context")
    if where.owner is not None:
        names.append("filter_owner" if where.context_id is None else "filter_owner_in_context")
    if where.state is not None:
        names.append("filter_state")
    if where.status_from is not None:
        names.append("filter_status_from")
    return names


def orphans(connection: sqlite3.Connection, limit: int) -> list[TaskRef]:
    """Running tasks of nodes that are not here."""
    return [TaskRef(*row) for row in connection.execute(_SQL["orphans"], (limit,)).fetchall()]


def get_doc(connection: sqlite3.Connection, tenant: str, kind: str, doc_id: str) -> Doc | None:
    """One document."""
    row = connection.execute(_SQL["get_doc"], (tenant, kind, doc_id)).fetchone()
    return None if row is None else Doc(*row)


def list_docs(connection: sqlite3.Connection, tenant: str, kind: str) -> list[Doc]:
    """All documents of a kind."""
    return [Doc(*row) for row in connection.execute(_SQL["list_docs"], (tenant, kind)).fetchall()]
