"""`Outbox` in PostgreSQL; of two replicas that take at once neither waits for the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from trunkline.clock import now_ms
from trunkline.store.columns import PAGE_EXPIRED
from trunkline.store.fairness import Due, choose, fair_lanes
from trunkline.store.parts import Outbox
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.sessions import TEXTS, fetch
from trunkline.store.records import (
    EVERYTHING,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Shares,
)

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection


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
