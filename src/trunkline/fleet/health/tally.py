"""Sums over outcomes: counts by class, durations, cost and confidence. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from math import floor

from msgspec import Struct, field

from trunkline.fleet.health.outcome import ASKED, COMPLETED, FAILED

# An agent that fails although it was this sure is worth a look.
SURE = 0.8
_BITS = 7


def binned(ms: int) -> int:
    """A duration that stands for all those near it: not more than 1/128 away from any of them."""
    shift = max(ms.bit_length() - _BITS, 0)
    return (ms >> shift << shift) + (1 << shift >> 1)


class Row(Struct, frozen=True, gc=False):
    """One outcome as it is counted; `at` is in milliseconds since the epoch."""

    at: int
    kind: int
    ms: int
    cost: float | None
    confidence: float | None
    tokens_in: int
    tokens_out: int


class Tally(Struct, array_like=True):
    """Counts and sums of some outcomes. `bins` has how many took about how long, by `binned`."""

    kinds: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    bins: dict[int, int] = field(default_factory=dict[int, int])
    wall_ms: int = 0
    cost: float = 0.0
    costed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    # How many said how sure they were, and the sum of that: of all, of those that reached their goal, and of
    # those that failed; and how many of the last were sure.
    sure: list[float] = field(default_factory=lambda: [0, 0.0])
    sure_completed: list[float] = field(default_factory=lambda: [0, 0.0])
    sure_failed: list[float] = field(default_factory=lambda: [0, 0.0])
    sure_and_failed: int = 0

    @property
    def total(self) -> int:
        """How many tasks have ended."""
        return sum(self.kinds) - self.kinds[ASKED]

    def add(self, row: Row) -> None:
        """Count one outcome, all but how long it took."""
        self.kinds[row.kind] += 1
        if row.kind == ASKED:
            return
        self.wall_ms += row.ms
        self.tokens_in += row.tokens_in
        self.tokens_out += row.tokens_out
        if row.cost is not None:
            self.cost += row.cost
            self.costed += 1
        if row.confidence is not None:
            _plus(self.sure, [1, row.confidence])
            if row.kind == COMPLETED:
                _plus(self.sure_completed, [1, row.confidence])
            if row.kind == FAILED:
                _plus(self.sure_failed, [1, row.confidence])
                self.sure_and_failed += row.confidence >= SURE

    def bin(self, ms: int) -> None:
        """Count about how long one took."""
        near = binned(ms)
        self.bins[near] = self.bins.get(near, 0) + 1

    def plus(self, other: Tally) -> None:
        """Add another one's counts and sums."""
        for kind, count in enumerate(other.kinds):
            self.kinds[kind] += count
        for near, count in other.bins.items():
            self.bins[near] = self.bins.get(near, 0) + count
        self.wall_ms += other.wall_ms
        self.cost += other.cost
        self.costed += other.costed
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        _plus(self.sure, other.sure)
        _plus(self.sure_completed, other.sure_completed)
        _plus(self.sure_failed, other.sure_failed)
        self.sure_and_failed += other.sure_and_failed


class Summary:
    """A tally with the exact durations of those outcomes of which these are known."""

    __slots__ = ("durations", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self.durations = array("I")

    def add(self, row: Row) -> None:
        """Count one outcome."""
        self.tally.add(row)
        if row.kind != ASKED:
            self.durations.append(row.ms)

    def plus(self, other: Summary) -> None:
        """Add another one."""
        self.tally.plus(other.tally)
        self.durations.extend(other.durations)

    def percentiles(self, shares: Sequence[float]) -> list[int | None]:
        """The duration at index min(floor(n·share), n-1) of all in their order, for each share."""
        counted = Counter(self.durations)
        counted.update(self.tally.bins)
        size = counted.total()
        if not size:
            return [None for _ in shares]
        found: dict[float, int] = {}
        passed = 0
        for ms in sorted(counted):
            passed += counted[ms]
            for share in shares:
                if share not in found and min(floor(size * share), size - 1) < passed:
                    found[share] = ms
        return [found[share] for share in shares]


def _plus(sums: list[float], more: Sequence[float]) -> None:
    for place, value in enumerate(more):
        sums[place] += value
