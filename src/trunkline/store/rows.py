"""What the reads of the SQLite store ask of a connection, and what they make of the rows."""

from __future__ import annotations

import sqlite3

import msgspec
from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.log.events import AnyEvent, Recorded
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.base import Cursor, Doc, HeadPage, TailRecord, TaskRef, Where
from trunkline.store.statements import statements
from trunkline.store.states import NUMBERS, STATES

_SQL, _ = statements("sqlite")


class _Append(Struct, gc=False):
    """The events of one append; `last` is the seq of the last."""

    last: int
    at: int
    events: list[AnyEvent]


class _TailAppend(_Append, gc=False):
    """The same with its task; `id` is the last event's."""

    id: int
    tenant: str
    task_id: str


class _Listed(Struct, gc=False):
    """A head as a file spells it."""

    task_id: str
    context_id: str
    owner: str
    state: int
    status_at: int
    seq: int
    node: str

    def head(self) -> Head:
        state = STATES[self.state]
        return Head(self.task_id, self.context_id, self.owner, state, self.status_at, self.seq, self.node)


_decode_read = msgspec.json.Decoder(list[_Append]).decode
_decode_tail = msgspec.json.Decoder(list[_TailAppend]).decode
_decode_heads = msgspec.json.Decoder(list[_Listed]).decode


def read(
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
        first = read(connection, tenant, task_id, after=after, limit=limit // 2)
        after = first[-1].seq if first else after
        return first + read(connection, tenant, task_id, after=after, limit=limit - limit // 2)
    if page is None:
        return []
    found = [
        Recorded(seq, append.at, event)
        for append in _decode_read(page)
        for seq, event in enumerate(append.events, append.last - len(append.events) + 1)
    ]
    # A limit may lie inside the first append and inside the last one.
    start = after + 1 - found[0].seq
    return found[start : start + limit]


def tail(connection: sqlite3.Connection, cursor: Cursor, limit: int) -> tuple[list[TailRecord], Cursor]:
    """Events of the whole log."""
    try:
        after = int(cursor or "0")
    except ValueError:
        raise StoreError(f"cursor {cursor!r} is not from this store; start again without it") from None
    try:
        (page,) = connection.execute(_SQL["tail"], {"after": after, "limit": limit}).fetchone()
    except sqlite3.DataError:
        if limit <= 1:
            raise
        return tail(connection, cursor, limit // 2)
    if page is None:
        return [], cursor
    found = [
        (
            append.id - left,
            TailRecord(append.tenant, append.task_id, Recorded(append.last - left, append.at, event)),
        )
        for append in _decode_tail(page)
        for left, event in zip(range(len(append.events) - 1, -1, -1), append.events, strict=True)
        if append.id - left > after
    ][:limit]
    return [record for _, record in found], str(found[-1][0])


def head(connection: sqlite3.Connection, tenant: str, task_id: str) -> Head | None:
    """One head."""
    row = connection.execute(_SQL["head"], (task_id, tenant)).fetchone()
    if row is None:
        return None
    task_id, context_id, owner, state, status_at, seq, node = row
    return Head(task_id, context_id, owner, STATES[state], status_at, seq, node)


def heads(
    connection: sqlite3.Connection, tenant: str, where: Where, *, size: int, after: Position | None
) -> HeadPage:
    """One page of heads, and how many there are in all."""
    filters = " ".join(_SQL[name] for name in _filters(where))
    statement = _SQL["heads"].replace("/*filters*/", filters)
    if where.context_id is not None:
        statement = statement.replace("/*by*/", _SQL["by_num"])
    # One more than asked for tells whether there is a next page.
    values: dict[str, str | int | None] = {
        "tenant": tenant,
        "owner": where.owner,
        "context_id": where.context_id,
        "state": None if where.state is None else NUMBERS[where.state],
        "status_from": where.status_from,
        "limit": size + 1,
    }
    if after is not None:
        statement = statement.replace("/*after*/", _SQL["filter_after"])
        values["after_at"], values["after_id"] = after.status_at, after.task_id
    total, page = connection.execute(statement, values).fetchone()
    found = [listed.head() for listed in _decode_heads(page)]
    if len(found) <= size:
        return HeadPage(found, None, total)
    last = found[size - 1]
    return HeadPage(found[:size], Position(last.status_at, last.task_id), total)


def _filters(where: Where) -> list[str]:
    names: list[str] = []
    if where.context_id is not None:
        names.append("filter_context")
    if where.owner is not None:
        names.append("filter_owner")
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
