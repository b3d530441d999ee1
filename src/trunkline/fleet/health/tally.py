"""Sums over outcomes: counts by class, durations, cost and confidence. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from math import floor, isnan

from msgspec import Struct, field

from trunkline.fleet.health.outcome import ASKED, COMPLETED, FAILED

# An agent that fails although it was this sure is worth a look.
SURE = 0.8
_BITS = 7
# One outcome as a period keeps it: the number of its agent and skill, the milliseconds from the start of the
# period to its end, and how many it took; its class; what it cost and how sure it was, nan where it did not
# say so; and its tokens in and out.
Row = tuple[int, int, int, int, float, float, int, int]


def binned(ms: int) -> int:
    """A duration that stands for all those near it: not more than 1/128 away from any of them."""
    shift = ms.bit_length() - _BITS
    return ms if shift <= 0 else (ms >> shift << shift) + (1 << shift >> 1)


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

    def add(self, rows: Iterable[Row]) -> None:
        """Count outcomes, all but how long each took."""
        for _, _, ms, kind, cost, confidence, tokens_in, tokens_out in rows:
            self.kinds[kind] += 1
            if kind == ASKED:
                continue
            self.wall_ms += ms
            if tokens_in or tokens_out:
                self.tokens_in += tokens_in
                self.tokens_out += tokens_out
            if not isnan(cost):
                self.cost += cost
                self.costed += 1
            if not isnan(confidence):
                _plus(self.sure, [1, confidence])
                if kind == COMPLETED:
                    _plus(self.sure_completed, [1, confidence])
                if kind == FAILED:
                    _plus(self.sure_failed, [1, confidence])
                    self.sure_and_failed += confidence >= SURE

    def bin(self, rows: Iterable[Row]) -> None:
        """Count about how long each took."""
        for near in [binned(row[2]) for row in rows if row[3] != ASKED]:
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

    def add(self, rows: Sequence[Row]) -> None:
        """Count outcomes."""
        self.tally.add(rows)
        self.durations.extend([row[2] for row in rows if row[3] != ASKED])

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
