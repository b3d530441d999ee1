"""A period keeps what ended in it: exactly where there is room, to a known error and within bounds where not."""

from __future__ import annotations

import random
from math import isnan

import msgspec
import pytest

from trunkline.fleet.health import periods as module
from trunkline.fleet.health.outcome import ASKED, COMPLETED, FAILED, TaskOutcome
from trunkline.fleet.health.periods import PERIOD_MS, Cell, Period, fold, rows_of, start_of, summarize
from trunkline.fleet.health.tally import Summary

START = start_of(1_800_000_000_000)


def outcome(
    at: int = 0, kind: int = COMPLETED, agent: str = "desk", skill: str = "work", **more: object
) -> TaskOutcome:
    named = {"task": f"t{at}", "correlation": f"c{at}"} if kind == FAILED else {}
    return TaskOutcome("north", agent, skill, START + at, kind, **{"ms": at % 977, **named, **more})  # type: ignore[arg-type]


def summed(period: Period, since: int = 0) -> dict[Cell, Summary]:
    found: dict[Cell, Summary] = {}
    summarize(period, START, since, found)
    return found


def test_what_is_folded_is_read_back() -> None:
    given = [
        outcome(7, cost=0.1 + 0.2, confidence=0.7, tokens_in=5, tokens_out=6),
        outcome(9, ASKED),
        outcome(8, agent="b"),
    ]
    period = Period()
    fold(period, START, given[:1])
    fold(period, START, given[1:])
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(period), type=Period)
    assert again == period
    rows = list(rows_of(again))
    assert [(again.cells[row[0]], START + row[1], row[3]) for row in rows] == [
        ((one.agent, one.skill), one.at, one.kind) for one in given
    ]
    assert rows[0][4:] == (0.1 + 0.2, 0.7, 5, 6)
    assert isnan(rows[1][4])


def test_only_what_is_wanted_is_summed() -> None:
    period = Period()
    fold(period, START, [outcome(n, agent="ab"[n % 2]) for n in range(1500)])
    found: dict[Cell, Summary] = {}
    summarize(period, START, 0, found, lambda cell: cell[0] == "b")
    assert {cell: one.tally.total for cell, one in found.items()} == {("b", "work"): 750}


def test_the_edge_of_a_window_is_exact_to_the_millisecond() -> None:
    period = Period()
    fold(period, START, [outcome(at) for at in (0, 1000, 2000)])
    ended = [
        sum(one.tally.total for one in summed(period, START + at).values()) for at in (0, 1, 1000, 1001, 2001)
    ]
    assert ended == [3, 2, 2, 1, 0]
    assert summed(period, START + PERIOD_MS) == {}


def test_what_does_not_fit_is_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    given = [
        outcome(n, draw.choice((COMPLETED, FAILED, ASKED)), ms=draw.randrange(9000), cost=0.5)
        for n in range(3000)
    ]
    whole, short = Period(), Period()
    monkeypatch.setattr(module, "ROWS", 10_000)
    fold(whole, START, given)
    monkeypatch.setattr(module, "ROWS", 1000)
    for n in range(0, 3000, 300):
        fold(short, START, given[n : n + 300])
    exact, near = (summed(period)["desk", "work"] for period in (whole, short))
    assert near.tally.kinds == exact.tally.kinds and near.tally.cost == exact.tally.cost
    for found, wanted in zip(near.percentiles((0.5, 0.95)), exact.percentiles((0.5, 0.95)), strict=True):
        assert found is not None and wanted is not None and abs(found - wanted) <= wanted / 128 + 1
    assert len(msgspec.msgpack.encode(short)) < 50_000


def test_a_period_is_bounded_whatever_strangers_name() -> None:
    period = Period()
    fold(period, START, [outcome(n, FAILED, f"a{n}", f"s{n}", caller=f"c{n}") for n in range(5000)])
    assert len(period.cells) == module.CELLS + 1 and module.OTHERS in period.cells
    assert len(period.failures) == module.FAILURES and len(period.calls) == module.CALLS
    assert sum(one.tally.total for one in summed(period).values()) == 5000
    assert len(msgspec.msgpack.encode(period)) < 300_000


def test_the_newest_failures_of_each_agent_are_named() -> None:
    period = Period()
    fold(period, START, [outcome(n, FAILED, "ab"[n % 2]) for n in range(40)])
    assert [one.at - START for one in period.failures if one.agent == "a"] == list(range(38, 18, -2))
    assert (period.failures[0].task, period.failures[0].correlation) == ("t39", "c39")


def test_who_calls_whom() -> None:
    period = Period()
    kinds = (COMPLETED, FAILED, ASKED)
    fold(period, START, [outcome(n, kind, caller="boss") for n, kind in enumerate(kinds)])
    fold(period, START, [outcome(5, caller="other"), outcome(6)])
    assert [(one.caller, one.agent, one.total, one.failed) for one in period.calls] == [
        ("boss", "desk", 2, 1),
        ("other", "desk", 1, 0),
    ]
