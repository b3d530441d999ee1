"""`Store` on one SQLite file in WAL mode, or on the same code in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from trunkline.errors import Conflict
from trunkline.store.base import Store
from trunkline.store.columns import PAGE_EXPIRED, STATES, orphan
from trunkline.store.fairness import Due, choose, fair_lanes
from trunkline.store.parts import Docs, Nodes, Outbox
from trunkline.store.records import (
    EVERYTHING,
    START,
    AddedDoc,
    Cursor,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Doc,
    DocChange,
    NodeRecord,
    Orphan,
    Shares,
    Waiting,
)
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.sqlite.log import SqliteHeads, SqliteLog
from trunkline.store.sqlite.maintenance import SqliteMaintenance
from trunkline.store.statements import Value, json_text, statements

_SQL = statements("sqlite")


class SqliteStore(Store):
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open; all that
    it reads is as it stood at one moment.
    """

    # One process per file.
    shared = False

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        self.database = SqliteDatabase(path, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        self.log = SqliteLog(self.database)
        self.heads = SqliteHeads(self.database)
        self.docs = SqliteDocs(self.database)
        self.outbox = SqliteOutbox(self.database)
        self.nodes = SqliteNodes(self.database)
        self.maintenance = SqliteMaintenance(self.database)


class SqliteNodes(Nodes):
    """Who joined and has not left. A node of an earlier process is forgotten when the file is opened."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        await self._database.write("join", node=node, beat=self._database.now_ms(), agents=agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""

        def change(connection: sqlite3.Connection) -> None:
            self._database.check_files()
            connection.execute(_SQL["beat"], (self._database.now_ms(), node))

        await self._database.change(change)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        await self._database.write("leave", node=node)

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return bool(await self._database.rows("alive", node=node))

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        rows = await self._database.rows("nodes")
        return [
            NodeRecord(node, msgspec.json.decode(agents, type=tuple[str, ...]), True, beat)
            for node, agents, beat in rows
        ]

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        now = self._database.now_ms()
        found = await self._database.rows("orphans", agents=agents, now=now, limit=limit)
        return [orphan(*row) for row in found]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        rows = await self._database.rows("waiting", tenant, limit=limit, after=after)
        return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]


class SqliteDocs(Docs):
    """Documents; each write takes the next number of its kind, which is what a cursor counts."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def _put(self, tenant: str, doc: AddedDoc, expected_rev: int, beside: AddedDoc | None) -> int:
        def put(connection: sqlite3.Connection) -> int:
            rev = _rev(connection, tenant, doc)
            if rev != expected_rev:
                raise Conflict(rev)
            # Before anything is written: a conflict undoes nothing.
            if beside is not None:
                if there := _rev(connection, tenant, beside):
                    raise Conflict(there)
                _put_doc(connection, tenant, beside, 1)
            _put_doc(connection, tenant, doc, rev + 1)
            return rev + 1

        return await self._database.change(put)

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        rows = await self._database.rows("doc_changes", kind=kind, after=int(cursor or "0"), limit=limit)
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for tenant, doc_id, rev, body, gone, _ in rows
        ]
        return found, str(rows[-1][-1]) if rows else cursor


def _rev(connection: sqlite3.Connection, tenant: str, doc: AddedDoc) -> int:
    key = {"tenant": tenant, "kind": doc.kind, "id": doc.id}
    row = connection.execute(_SQL["get_doc"], key).fetchone()
    return 0 if row is None else row[1]


def _put_doc(connection: sqlite3.Connection, tenant: str, doc: AddedDoc, rev: int) -> None:
    values = {"tenant": tenant, "kind": doc.kind, "id": doc.id, "rev": rev, "body": doc.body}
    connection.execute(_SQL["put_doc"], values)


class SqliteOutbox(Outbox):
    """Deliveries of one file, taken and settled inside the writer's transaction."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def take(
        self,
        limit: int,
        lease_ms: int,
        *,
        per_lane: int,
        busy: Sequence[str] = (),
        shares: Shares = EVERYTHING,
    ) -> list[Delivery]:
        """See `Outbox`."""
        now = self._database.now_ms()
        call = partial(_take, limit=limit, now=now, until=now + lease_ms, per_lane=per_lane)
        return await self._database.change(partial(call, busy=busy, shares=shares))

    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """See `Outbox`."""
        await self._database.change(partial(_settle, settled=settled, now=self._database.now_ms()))

    async def _expire_page(self, lane: str, before: int, note: str) -> int:
        now = self._database.now_ms()
        return await self._database.write(
            "expire", lane=lane, before=before, now=now, note=note, limit=PAGE_EXPIRED
        )


def _take(
    connection: sqlite3.Connection,
    *,
    limit: int,
    now: int,
    until: int,
    per_lane: int,
    busy: Sequence[str],
    shares: Shares,
) -> list[Delivery]:
    if limit < 1:
        return []
    lanes = connection.execute(_SQL["due_lanes"], {"now": now}).fetchall()
    found: dict[str, tuple[Due, Delivery]] = {}
    filled = 0
    for lane in fair_lanes(lanes, busy, per_lane, shares):
        # They come in the order of their turns: once this many have something, the others would not have one.
        if filled == limit:
            break
        values = {"lane": lane, "now": now, "limit": min(per_lane, limit)}
        rows = connection.execute(_SQL["due_deliveries"], values).fetchall()
        filled += bool(rows)
        found.update({row[0]: ((ready, lane, row[0]), Delivery(*row)) for ready, *row in rows})
    chosen = choose([due for due, _ in found.values()], per_lane, shares)[:limit]
    if chosen:
        connection.execute(_SQL["lease"], (until, json_text(chosen)))
    return sorted([found[name][1] for name in chosen], key=lambda delivery: (delivery.due, delivery.id))


def _settle(connection: sqlite3.Connection, settled: Sequence[DeliveryResult], now: int) -> None:
    # What another has settled meanwhile stays as it is.
    connection.executemany(_SQL["settle"], [_columns(one, now) for one in settled])
    for one in settled:
        if one.outcome is DeliveryOutcome.RETRY:
            connection.execute(_SQL["hold_back"], {"id": one.id, "due": one.next_due})


def _columns(one: DeliveryResult, now: int) -> tuple[Value, ...]:
    retry = one.outcome is DeliveryOutcome.RETRY
    due, state = (one.next_due, "pending") if retry else (None, one.outcome.value)
    return due, state, one.status, one.note, now, int(one.untried), one.id
