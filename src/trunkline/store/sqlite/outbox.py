"""`Outbox` in a SQLite file: deliveries are taken and settled inside the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

from trunkline.store.columns import PAGE_EXPIRED, delivery_filters
from trunkline.store.fairness import Due, choose, fair_lanes
from trunkline.store.records import (
    EVERYTHING,
    Delivery,
    DeliveryOutcome,
    DeliveryRecord,
    DeliveryResult,
    Shares,
)
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.statements import Value, json_text, statements

_SQL = statements("sqlite")


class SqliteOutbox:
    """Deliveries of one file."""

    def __init__(self, database: SqliteDatabase) -> None:
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

    async def expire(self, lane: str, before: int, note: str) -> int:
        """See `Outbox`."""
        now, count = self._database.now_ms(), 0
        values = {"lane": lane, "before": before, "now": now, "note": note, "limit": PAGE_EXPIRED}
        while page := await self._database.change(
            lambda connection: connection.execute(_SQL["expire"], values).rowcount
        ):
            count += page
        return count

    async def list(
        self,
        *,
        tenant: str | None = None,
        task_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        after: str = "",
    ) -> list[DeliveryRecord]:
        """See `Outbox`."""
        names = delivery_filters(tenant, task_id, state, after)
        text = _SQL["deliveries"].replace("/*filters*/", " ".join(_SQL[name] for name in names))
        # What is pending is little beside all that was ever sent.
        text = text.replace("/*by*/", _SQL["by_lane"] if "filter_pending" in names else "")
        values = {"tenant": tenant, "task_id": task_id, "state": state, "limit": limit, "after": after}
        rows = await self._database.read(lambda connection: connection.execute(text, values).fetchall())
        return [DeliveryRecord(*row) for row in rows]

    async def replay(self, delivery_id: str) -> bool:
        """See `Outbox`."""
        due = self._database.now_ms()
        return await self._database.change(
            lambda connection: connection.execute(_SQL["replay"], (due, delivery_id)).rowcount == 1
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
