"""Counts, sums and percentiles equal what anybody would calculate from the single outcomes."""

from __future__ import annotations

import random
from math import floor, nan

import pytest

from trunkline.fleet.health.outcome import ASKED, CLASSES, COMPLETED, FAILED
from trunkline.fleet.health.tally import Row, Summary, Tally, binned


def row(kind: int = COMPLETED, ms: int = 5, cost: float | None = None, sure: float | None = None) -> Row:
    return 0, 0, ms, kind, nan if cost is None else cost, nan if sure is None else sure, 3, 4


@pytest.mark.parametrize("ms", [0, 1, 63, 127, 128, 129, 1000, 4095, 4096, 86_400_000, (1 << 32) - 1])
def test_a_bin_is_near_what_is_in_it(ms: int) -> None:
    assert abs(binned(ms) - ms) <= ms / 128
    assert binned(binned(ms)) == binned(ms)


@pytest.mark.parametrize("size", [1, 2, 3, 19, 20, 21, 100, 1000])
def test_percentiles_are_those_of_the_definition(size: int) -> None:
    draw = random.Random(size)
    values = [draw.randrange(20_000) for _ in range(size)]
    exact, near = Summary(), Summary()
    rows = [row(ms=ms) for ms in values]
    exact.add(rows)
    near.tally.add(rows)
    near.tally.bin(rows)
    ordered = sorted(values)
    for share in (0.5, 0.95):
        wanted = ordered[min(floor(size * share), size - 1)]
        assert exact.percentiles([share]) == [wanted]
        (found,) = near.percentiles([share])
        assert found is not None and abs(found - wanted) <= wanted / 128
    assert Summary().percentiles((0.5, 0.95)) == [None, None]


def test_what_asks_has_not_ended() -> None:
    summary = Summary()
    summary.add([row(kind) for kind in range(len(CLASSES))])
    assert summary.tally.kinds == [1, 1, 1, 1, 1]
    assert (summary.tally.total, len(summary.durations)) == (4, 4)
    assert CLASSES[ASKED] == "input-required"


def test_sums() -> None:
    rows = [row(cost=0.5, sure=0.75), row(FAILED, cost=None, sure=0.875), row(FAILED, cost=1.0, sure=0.25)]
    whole, first, second = Summary(), Summary(), Summary()
    for place, one in enumerate(rows):
        whole.add([one])
        (first if place else second).add([one])
    second.plus(first)
    assert second.tally == whole.tally and sorted(second.durations) == sorted(whole.durations)
    tally = whole.tally
    assert (tally.cost, tally.costed, tally.wall_ms, tally.tokens_in, tally.tokens_out) == (1.5, 2, 15, 9, 12)
    assert (tally.sure, tally.sure_completed) == ([3, 1.875], [1, 0.75])
    assert (tally.sure_failed, tally.sure_and_failed) == ([2, 1.125], 1)
    assert Tally().total == 0
