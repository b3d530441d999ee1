"""Which due deliveries go first: those of tenants, then of principals, that have the fewest on their way.

Pure, and the same for every store. Within a principal the oldest goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from trunkline.store.records import Shares

# When it may be taken, its lane, and its id.
Due = tuple[int, str, str]


def host_of(lane: str) -> str:
    """The host that a lane leads to."""
    return lane.partition(" ")[0]


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
