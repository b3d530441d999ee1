"""The outbox: deliveries, and which of those that are due go first.

First go those of tenants, then of principals, that have the fewest on their way; of a principal the oldest.
That choice is pure, and the same for every store; the rest is statements of the same names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from trunkline.clock import now_ms
from trunkline.store.database import Rows, StorePart
from trunkline.store.records import (
    EVERYTHING,
    Delivery,
    DeliveryOutcome,
    DeliveryRecord,
    DeliveryResult,
    Shares,
    host_of,
)

# How many deliveries are given up in one transaction, so that appends need not wait for all of them.
PAGE_EXPIRED = 1000
_OF_STATE = {"pending": "filter_pending", "dead": "filter_given_up", "dropped": "filter_given_up"}
# When it may be taken, its lane, and its id.
Due = tuple[int, str, str]


class Outbox(StorePart):
    """Deliveries, written with the event they announce; kept until their task is forgotten."""

    async def take(
        self,
        limit: int,
        lease_ms: int,
        *,
        per_lane: int,
        busy: Sequence[str] = (),
        shares: Shares = EVERYTHING,
    ) -> list[Delivery]:
        """Lease due deliveries: at most `per_lane` of a lane, none of a busy lane or host.

        Tenants take turns, then the principals of a tenant; of a principal the oldest come first. Of one task
        and target only the earliest unsettled is ever given.
        """
        if limit < 1:
            return []
        now = self._database.now_ms()

        async def lease(rows: Rows) -> Sequence[Any]:
            lanes = fair_lanes(await rows("due_lanes", now=now), busy, per_lane, shares)
            found: list[Due] = []
            # They come in the order of their turns: once this many have something, the others would not
            # have one.
            while lanes and len({lane for _, lane, _ in found}) < limit:
                some, lanes = lanes[: 2 * limit], lanes[2 * limit :]
                found += await rows("due_deliveries", lanes=some, now=now, per_lane=per_lane)
            chosen = choose(found, per_lane, shares)
            return await rows("lease", ids=chosen, limit=limit, lease=lease_ms, now=now) if chosen else ()

        taken = [Delivery(*row) for row in await self._database.transaction(lease)]
        return sorted(taken, key=lambda delivery: (delivery.due, delivery.id))

    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """Record how attempts ended, all at once; RETRY makes one due again at its `next_due`.

        What another has settled meanwhile stays as it is.
        """
        times = self._times()
        retried = [one.id for one in settled if one.outcome is DeliveryOutcome.RETRY]

        async def record(rows: Rows) -> None:
            told = [msgspec.structs.replace(one, note=_text(one.note)) for one in settled]
            await rows("settle", settled=msgspec.json.encode(told).decode(), **times)
            if retried:
                await rows("hold_back", ids=retried)

        await self._database.transaction(record)

    async def expire(self, lane: str, before: int, note: str) -> int:
        """Give up what a lane, or all of a host, should have had before and nobody is posting: how many."""
        values = {"lane": lane, "before": before, "note": _text(note), "limit": PAGE_EXPIRED, **self._times()}
        count = 0
        while page := await self._database.transaction(lambda rows: rows("expire", **values)):
            count += len(page)
        return count

    async def rebase(self, lease_ms: int) -> int:
        """Shorten the waits of pending deliveries after the clock was set back; return their number.

        Each waits for as long as it was to wait after its last attempt, at most. A lease lasts `lease_ms`.
        """
        values = {"now": self._database.now_ms(), "lease": lease_ms}
        return len(await self._database.write("rebase_deliveries", **values))

    async def list(
        self,
        *,
        tenant: str | None = None,
        task_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        after: str = "",
    ) -> list[DeliveryRecord]:
        """Deliveries by id, newest task first, behind the id `after`."""
        sql, names = self._database.sql, _filters(tenant, task_id, state, after)
        text = sql["deliveries"].replace("/*filters*/", " ".join(sql[name] for name in names))
        # What is pending is little beside all that was ever sent, and only SQLite has to be told so.
        text = text.replace("/*by*/", sql.get("by_lane", "") if "filter_pending" in names else "")
        values = {"task_id": task_id, "state": state, "limit": limit, "after": after}
        return [DeliveryRecord(*row) for row in await self._database.rows_of(text, tenant, **values)]

    async def replay(self, delivery_id: str) -> bool:
        """Make a settled delivery due now with no attempts behind it; False if there is none such."""
        return bool(await self._database.write("replay", id=delivery_id, now=self._database.now_ms()))

    def _times(self) -> dict[str, int | None]:
        """What the database takes for the time, and what the clock of whoever names a moment says."""
        now = self._database.now_ms()
        return {"now": now, "here": now_ms() if now is None else now}


def _filters(tenant: str | None, task_id: str | None, state: str | None, after: str) -> list[str]:
    """The names of the statements that filter a list of deliveries."""
    plain = "filter_delivery_state"
    wanted = {
        "filter_delivery_tenant": tenant is not None,
        "filter_delivery_task": task_id is not None,
        plain if task_id is not None else _OF_STATE.get(state or "", plain): state is not None,
        "filter_delivery_after": after != "",
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _text(note: str) -> str:
    # The one character that not every database can hold; a note must not keep an attempt from being settled.
    return note.replace("\0", "")


def fair_lanes(
    lanes: Iterable[tuple[str, int]], busy: Collection[str], per_lane: int, shares: Shares
) -> list[str]:
    """Lanes that may have more and have something due, given with their oldest, in the order of their turns.

    What is busy is a lane, or a host with all its lanes.
    """
    busy, held = frozenset(busy), _held(shares)
    due = [
        (oldest, lane, "")
        for lane, oldest in lanes
        if lane not in busy and host_of(lane) not in busy and _has_room(lane, per_lane, shares, held)
    ]
    return [lane for _, lane, _ in _in_turn(due, shares)]


def choose(found: Iterable[Due], per_lane: int, shares: Shares) -> list[str]:
    """The ids to be taken, in this order, as far as there is room for them."""
    held = _held(shares)
    chosen: list[str] = []
    for _, lane, name in _in_turn(found, shares):
        if _has_room(lane, per_lane, shares, held):
            held.update(_groups(lane))
            chosen.append(name)
    return chosen


def _has_room(lane: str, per_lane: int, shares: Shares, held: Counter[str]) -> bool:
    limits = (shares.per_tenant, shares.per_principal, shares.per_host, per_lane)
    return all([held[group] < limit for group, limit in zip(_groups(lane), limits, strict=True)])


def _in_turn(found: Iterable[Due], shares: Shares) -> Sequence[Due]:
    """One of each tenant, then the next of each; of a tenant's, one of each principal."""
    held = _held(shares)
    order = sorted(found, key=lambda one: (one[0], one[2]))
    for level in (1, 0):
        seen = Counter(held)
        ranked: list[tuple[int, Due]] = []
        for one in order:
            group = _groups(one[1])[level]
            ranked.append((seen[group], one))
            seen[group] += 1
        # Stable: among equals the order that was there before stays.
        order = [one for _, one in sorted(ranked, key=lambda pair: pair[0])]
    return order


def _groups(lane: str) -> tuple[str, str, str, str]:
    """Tenant, principal and host of a lane, and itself, as keys; those of older versions are of nobody."""
    host, _, both = lane.partition(" ")
    return f"tenant {both.partition(' ')[0]}", f"principal {both}", f"host {host}", f"lane {lane}"


def _held(shares: Shares) -> Counter[str]:
    held: Counter[str] = Counter()
    for lane, count in shares.by_lane.items():
        for group in _groups(lane):
            held[group] += count
    return held
