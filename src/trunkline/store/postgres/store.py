"""`Store` on PostgreSQL, shared by as many processes as there are replicas; its time is the database's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from trunkline.clock import now_ms
from trunkline.errors import Conflict, StoreError
from trunkline.store.base import Store
from trunkline.store.columns import PAGE_EXPIRED
from trunkline.store.fairness import Due, choose, fair_lanes
from trunkline.store.parts import Docs, Outbox
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.log import PostgresHeads, PostgresLog
from trunkline.store.postgres.maintenance import PostgresMaintenance
from trunkline.store.postgres.nodes import PostgresNodes
from trunkline.store.postgres.sessions import TEXTS, fetch
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
    Shares,
)

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

NODE_TTL_SECONDS = 3.0


class PostgresStore(Store):
    """`Store` on a database. Opened once, on the loop that uses it."""

    # As many processes as you like.
    shared = True

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.database = PostgresDatabase(url, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        nodes = PostgresNodes(self.database, node_ttl_s)
        self.log = PostgresLog(self.database)
        self.heads = PostgresHeads(self.database)
        self.docs = PostgresDocs(self.database)
        self.outbox = PostgresOutbox(self.database)
        self.nodes = nodes
        self.maintenance = PostgresMaintenance(self.database, nodes)


class PostgresDocs(Docs):
    """Documents; a cursor is the oldest transaction that was still writing when they were read."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def _put(self, tenant: str, doc: AddedDoc, expected_rev: int, beside: AddedDoc | None) -> int:
        key = {"tenant": tenant, "kind": doc.kind, "id": doc.id}

        async def put(connection: Connection) -> int:
            other = None if beside is None else {"tenant": tenant, "kind": beside.kind, "id": beside.id}
            # Before anything is written: a conflict undoes nothing.
            if other is not None and (there := await fetch(connection, "get_doc", **other)):
                raise Conflict(there[0]["rev"])
            if expected_rev == 0:
                rows = await fetch(connection, "add_doc", **key, body=doc.body)
            else:
                rows = await fetch(connection, "put_doc", **key, body=doc.body, rev=expected_rev)
            if rows:
                if other is not None and beside is not None:
                    await fetch(connection, "add_doc", **other, body=beside.body)
                return rows[0][0]
            found = await fetch(connection, "get_doc", **key)
            raise Conflict(found[0]["rev"] if found else 0)

        return await self._database.change(put, tenant)

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        # Where the next look begins, and behind what this one goes on if it is in the middle of its pages.
        begin, _, behind = (cursor or "0").partition(" ")
        xid, _, place = behind.partition(" ")
        after, _, after_id = place.partition(" ")
        if not (begin + xid).isdecimal():
            raise StoreError(f"cursor {cursor[:200]!r} is not from this store; start again without it")
        rows = await self._database.rows(
            "doc_changes", kind=kind, xid=xid or begin, after=after, after_id=after_id, limit=limit
        )
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for _, _, tenant, doc_id, rev, body, gone in rows
            # The one row that is always there carries the cursor.
            if tenant is not None
        ]
        # What was still being written at the first page of a look is behind all of its pages.
        horizon = begin if behind else rows[0][0]
        if len(found) < limit:
            return found, horizon
        return found, f"{horizon} {rows[-1][1]} {found[-1].tenant} {found[-1].id}"


class PostgresOutbox(Outbox):
    """Deliveries of all replicas."""

    def __init__(self, database: PostgresDatabase) -> None:
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
        call = partial(_take, limit=limit, lease_ms=lease_ms, now=self._database.now_ms(), per_lane=per_lane)
        return await self._database.change(partial(call, busy=busy, shares=shares))

    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """See `Outbox`."""
        await self._database.change(partial(_settle, settled=settled, now=self._database.now_ms()))

    async def _expire_page(self, lane: str, before: int, note: str) -> int:
        now = self._database.now_ms()
        return await self._database.change(partial(_expire, lane=lane, before=before, now=now, note=note))


async def _take(
    connection: Connection,
    *,
    limit: int,
    lease_ms: int,
    now: int | None,
    per_lane: int,
    busy: Sequence[str],
    shares: Shares,
) -> list[Delivery]:
    if limit < 1:
        return []
    async with _along_indexes(connection):
        due = [(lane, oldest) for lane, oldest in await fetch(connection, "due_lanes", now=now)]
        lanes = fair_lanes(due, busy, per_lane, shares)
        found: list[Due] = []
        # They come in the order of their turns: once this many have something, the others would not have one.
        while lanes and len({lane for _, lane, _ in found}) < limit:
            some, lanes = lanes[: 2 * limit], lanes[2 * limit :]
            rows = await fetch(connection, "due_deliveries", lanes=some, now=now, per_lane=per_lane)
            found += [(ready, lane, name) for ready, lane, name in rows]
        chosen = choose(found, per_lane, shares)
        if not chosen:
            return []
        rows = await fetch(connection, "lease", ids=chosen, limit=limit, lease=lease_ms, now=now)
    return sorted((Delivery(*row) for row in rows), key=lambda delivery: (delivery.due, delivery.id))


async def _settle(connection: Connection, settled: Sequence[DeliveryResult], now: int | None) -> None:
    """Record attempts; what another has settled meanwhile stays as it is."""
    retried = [one for one in settled if one.outcome is DeliveryOutcome.RETRY]
    async with _along_indexes(connection):
        await fetch(
            connection,
            "settle",
            ids=[one.id for one in settled],
            dues=[one.next_due if one.outcome is DeliveryOutcome.RETRY else None for one in settled],
            states=[
                "pending" if one.outcome is DeliveryOutcome.RETRY else one.outcome.value for one in settled
            ],
            statuses=[one.status for one in settled],
            notes=[_text(one.note) for one in settled],
            untried=[int(one.untried) for one in settled],
            now=now,
            here=_here(now),
        )
        if retried:
            await fetch(connection, "hold_back", ids=[one.id for one in retried])


async def _expire(connection: Connection, lane: str, before: int, now: int | None, *, note: str) -> int:
    """Give up a page of what has waited too long."""
    values = {"lane": lane, "before": before, "now": now, "note": _text(note), "limit": PAGE_EXPIRED}
    values["here"] = _here(now)
    async with _along_indexes(connection):
        ((count,),) = await fetch(connection, "expire", **values)
    return count


@asynccontextmanager
async def _along_indexes(connection: Connection) -> AsyncGenerator[None]:
    """A transaction that goes by the indexes, also where it was planned when there was nothing yet."""
    async with connection.transaction():
        await connection.execute(TEXTS["along_indexes"])
        yield


def _here(now: int | None) -> int:
    """What the caller's clock says: the database's may say something else, and is the one that counts."""
    return now_ms() if now is None else now


def _text(note: str) -> str:
    # The one character that a text here cannot hold; a note must not keep an attempt from being settled.
    return note.replace("\0", "")
