"""What the reads of the SQLite store ask of a connection, and what they make of the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.log.events import DECODE_ERRORS, Known, Recorded, decode, placed
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.base import (
    Cursor,
    Doc,
    EndedChild,
    Fault,
    HeadPage,
    Hint,
    Orphan,
    TailRecord,
    TaskRef,
    Waiting,
    Where,
)
from trunkline.store.columns import STATES, HeadRow, filters, head_page
from trunkline.store.statements import statements

_SQL, _ = statements("sqlite")


class _Append(Struct, gc=False):
    """The events of one append; `last` is the seq of the last. A tail adds its task and the last one's id."""

    last: int
    at: int
    events: list[Known]
    id: int = 0
    tenant: str = ""
    task_id: str = ""

    def placed(self) -> list[Recorded]:
        return placed(self.last, self.at, self.events)


class _Foreign(_Append, gc=False):
    """The same with events that a newer version may have written."""

    events: msgspec.Raw  # type: ignore[assignment]

    def placed(self) -> list[Recorded]:
        return placed(self.last, self.at, decode(self.events))


_decode_appends = msgspec.json.Decoder(list[_Append]).decode
_decode_foreign = msgspec.json.Decoder(list[_Foreign]).decode
_decode_heads = msgspec.json.Decoder(list[HeadRow]).decode


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
    except sqlite3.OperationalError as error:
        # The driver's own word for a text that is no UTF-8: the file itself is sound.
        if "decode" not in str(error):
            raise
        raise StoreError.damaged(task_id, "it is not UTF-8") from error
    if page is None:
        return []
    try:
        found = [recorded for append in _appends(page) for recorded in append.placed()]
    except DECODE_ERRORS as error:
        raise StoreError.damaged(task_id, error) from error
    # A limit may lie inside the first append and inside the last one.
    found = [one for one in found if one.seq > after][:limit]
    if len(found) < limit and found[-1].seq - after > len(found):
        # Ranges made the page short. Only the end of a log may: readers take it for that.
        found += read(connection, tenant, task_id, after=found[-1].seq, limit=limit - len(found))
    return found


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
    try:
        found = [
            (append.id - (append.last - recorded.seq), TailRecord(append.tenant, append.task_id, recorded))
            for append in _appends(page)
            for recorded in append.placed()
        ]
    except DECODE_ERRORS as error:
        raise StoreError(f"the log cannot be read after cursor {cursor!r}: {error}") from error
    newer = [(number, record) for number, record in found if number > after][:limit]
    return [record for _, record in newer], str(newer[-1][0])


def _appends(page: str) -> Sequence[_Append]:
    try:
        return _decode_appends(page)
    except msgspec.ValidationError:
        return _decode_foreign(page)


def head(connection: sqlite3.Connection, tenant: str, task_id: str) -> Head | None:
    """One head."""
    row = connection.execute(_SQL["head"], (task_id, tenant)).fetchone()
    return None if row is None else HeadRow(*row).head()


def heads(
    connection: sqlite3.Connection, tenant: str, where: Where, *, size: int, after: Position | None
) -> HeadPage:
    """One page of heads, and how many there are in all."""
    wanted = filters(where)
    statement = _SQL["heads"].replace("/*filters*/", " ".join(_SQL[f"filter_{name}"] for name in wanted))
    if "context_id" in wanted or "parent" in wanted:
        statement = statement.replace("/*by*/", _SQL["by_num"])
    if where.agents is not None:
        wanted["agents"] = json_text(where.agents)
    # One more than asked for tells whether there is a next page.
    values = {**wanted, "tenant": tenant, "limit": size + 1}
    if after is not None:
        statement = statement.replace("/*after*/", _SQL["filter_after"])
        values["after_at"], values["after_id"] = after.status_at, after.task_id
    total, page = connection.execute(statement, values).fetchone()
    return head_page(_decode_heads(page), size, total)


def news(connection: sqlite3.Connection, places: Sequence[Hint], limit: int) -> list[TailRecord]:
    """What some tasks hold beyond what is known of them."""
    found: list[TailRecord] = []
    for place in places:
        left = limit - len(found)
        if left <= 0:
            break
        page = read(connection, place.tenant, place.task_id, after=place.seq, limit=left)
        found += [TailRecord(place.tenant, place.task_id, recorded) for recorded in page]
    return found


def alive(connection: sqlite3.Connection, node: str) -> bool:
    """Whether a node is here."""
    return connection.execute(_SQL["alive"], (node,)).fetchone() is not None


def orphans(connection: sqlite3.Connection, agents: Sequence[str], now: int, *, limit: int) -> list[Orphan]:
    """Tasks that somebody must take up."""
    values = {"agents": json_text(agents), "now": now, "limit": limit}
    return [Orphan(*row) for row in connection.execute(_SQL["orphans"], values).fetchall()]


def waiting(connection: sqlite3.Connection, tenant: str | None, *, limit: int, after: str) -> list[Waiting]:
    """Open tasks of agents that are not here."""
    values = {"tenant": tenant, "limit": limit, "after": after}
    rows = connection.execute(_SQL["waiting"], values).fetchall()
    return [Waiting(of_tenant, task_id, agent, STATES[state]) for of_tenant, task_id, agent, state in rows]


def ended_children(connection: sqlite3.Connection, now: int, *, limit: int) -> list[EndedChild]:
    """Children whose parked parents were not told of their end."""
    rows = connection.execute(_SQL["ended_children"], {"now": now, "limit": limit}).fetchall()
    return [EndedChild(tenant, parent, child, STATES[state]) for tenant, parent, child, state in rows]


def open_children_of_canceled(connection: sqlite3.Connection, *, limit: int) -> list[TaskRef]:
    """Open tasks whose parents were canceled."""
    rows = connection.execute(_SQL["open_children_of_canceled"], {"limit": limit}).fetchall()
    return [TaskRef(*row) for row in rows]


def get_doc(connection: sqlite3.Connection, tenant: str, kind: str, doc_id: str) -> Doc | None:
    """One document."""
    row = connection.execute(_SQL["get_doc"], (tenant, kind, doc_id)).fetchone()
    return None if row is None else Doc(*row)


def list_docs(connection: sqlite3.Connection, tenant: str, kind: str) -> list[Doc]:
    """All documents of a kind."""
    return [Doc(*row) for row in connection.execute(_SQL["list_docs"], (tenant, kind)).fetchall()]


def tasks(connection: sqlite3.Connection, cursor: Cursor, limit: int) -> tuple[list[TaskRef], Cursor]:
    """Tasks by their ids."""
    rows = connection.execute(_SQL["tasks"], {"after": cursor, "limit": limit}).fetchall()
    found = [TaskRef(tenant, task_id) for tenant, task_id in rows]
    return found, found[-1].task_id if found else cursor


def faults(connection: sqlite3.Connection) -> list[Fault]:
    """What is wrong with the file, and with rows that no log accounts for."""
    broken = [text for (text,) in connection.execute(_SQL["quick_check"]).fetchall() if text != "ok"]
    lost = connection.execute(_SQL["faults"]).fetchall()
    return [*(Fault("", text) for text in broken), *(Fault(*row) for row in lost)]


def json_text(values: Sequence[int] | Sequence[str]) -> str:
    """A list as one parameter: a statement reads it by `json_each`."""
    return msgspec.json.encode(values).decode()
