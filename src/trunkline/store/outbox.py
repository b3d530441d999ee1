"""Deliveries in the SQLite store: taken and settled inside the writer thread's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from trunkline.store.base import Delivery, DeliveryOutcome, DeliveryRecord, DeliveryResult, Shares
from trunkline.store.fairness import Due, choose, fair_lanes
from trunkline.store.rows import json_text
from trunkline.store.statements import Value, statements

# How many are given up in one transaction, so that appends need not wait for all of them.
PAGE_EXPIRED = 1000

_SQL, _ = statements("sqlite")
_OF_STATE = {"pending": "filter_pending", "dead": "filter_given_up", "dropped": "filter_given_up"}


def take(
    connection: sqlite3.Connection,
    limit: int,
    lease_ms: int,
    now: int,
    *,
    per_lane: int,
    busy: Sequence[str],
    shares: Shares,
) -> list[Delivery]:
    """Lease what is due, a few of each lane."""
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
        connection.execute(_SQL["lease"], (now + lease_ms, json_text(chosen)))
    return sorted([found[name][1] for name in chosen], key=lambda delivery: (delivery.due, delivery.id))


def settle(connection: sqlite3.Connection, settled: Sequence[DeliveryResult], now: int) -> None:
    """Record attempts; what another has settled meanwhile stays as it is."""
    connection.executemany(_SQL["settle"], [_columns(one, now) for one in settled])
    for one in settled:
        if one.outcome is DeliveryOutcome.RETRY:
            connection.execute(_SQL["hold_back"], {"id": one.id, "due": one.next_due})


def expire(connection: sqlite3.Connection, lane: str, before: int, now: int, *, note: str) -> int:
    """Give up a page of what has waited too long."""
    values = {"lane": lane, "before": before, "now": now, "note": note, "limit": PAGE_EXPIRED}
    return connection.execute(_SQL["expire"], values).rowcount


def replay(connection: sqlite3.Connection, delivery_id: str, due: int) -> bool:
    """Make a settled one due again."""
    return connection.execute(_SQL["replay"], (due, delivery_id)).rowcount == 1


def deliveries(
    connection: sqlite3.Connection,
    *,
    tenant: str | None,
    task_id: str | None,
    state: str | None,
    limit: int,
    after: str,
) -> list[DeliveryRecord]:
    """A page of deliveries, the last id first."""
    names = filters(tenant, task_id, state, after)
    text = _SQL["deliveries"].replace("/*filters*/", " ".join(_SQL[name] for name in names))
    # What is pending is little beside all that was ever sent.
    text = text.replace("/*by*/", _SQL["by_lane"] if "filter_pending" in names else "")
    values = {"tenant": tenant, "task_id": task_id, "state": state, "limit": limit, "after": after}
    return [DeliveryRecord(*row) for row in connection.execute(text, values).fetchall()]


def filters(tenant: str | None, task_id: str | None, state: str | None, after: str) -> list[str]:
    """The names of the filters that are asked for."""
    names: list[str] = []
    if tenant is not None:
        names.append("filter_delivery_tenant")
    if task_id is not None:
        names.append("filter_delivery_task")
    if state is not None and (task_id is not None or state not in _OF_STATE):
        names.append("filter_delivery_state")
    elif state is not None:
        names.append(_OF_STATE[state])
    if after:
        names.append("filter_delivery_after")
    return names


def _columns(one: DeliveryResult, now: int) -> tuple[Value, ...]:
    retry = one.outcome is DeliveryOutcome.RETRY
    due, state = (one.next_due, "pending") if retry else (None, one.outcome.value)
    return due, state, one.status, one.note, now, int(one.untried), one.id
