"""Whose deliveries go first: tenants take turns, then principals; the oldest of a principal."""

from __future__ import annotations

import random
from collections import Counter

from trunkline.store.outbox import Due, choose, fair_lanes
from trunkline.store.records import Shares, host_of

A, B, C = "h1 evil mallory", "h2 good alice", "h3 good bob"
FREE = Shares()


def test_tenants_take_turns_then_principals_and_the_oldest_of_one_goes_first() -> None:
    due: list[Due] = [(n, A, f"a{n}") for n in range(9)] + [(50, B, "b1"), (60, B, "b0"), (70, C, "c")]
    random.shuffle(due)
    assert choose(due, 100, FREE) == ["a0", "b1", "c", "a1", "b0", *(f"a{n}" for n in range(2, 9))]


def test_what_is_on_its_way_counts() -> None:
    due: list[Due] = [(1, A, "a"), (2, B, "b"), (3, C, "c")]
    assert choose(due, 9, Shares({A: 1})) == ["b", "c", "a"]
    assert choose(due, 9, Shares({A: 5, B: 1})) == ["c", "b", "a"]
    assert fair_lanes([(A, 1), (B, 2), (C, 3)], [], 9, Shares({A: 5, B: 1})) == [C, B, A]


def test_nobody_gets_more_than_its_share() -> None:
    due: list[Due] = [(n, f"h{n % 3} t p{n % 2}", f"d{n}") for n in range(60)]
    lanes = {name: lane for _, lane, name in due}

    def shares(**limits: int) -> list[str]:
        return [lanes[name] for name in choose(due, 5, Shares({"h0 t p0": 1}, **limits))]

    assert max(Counter(shares()).values()) == 5
    assert Counter(shares())["h0 t p0"] == 4
    assert Counter(map(host_of, shares(per_host=3))) == {"h0": 2, "h1": 3, "h2": 3}
    assert len(shares(per_tenant=7)) == 6
    assert Counter(lane.split()[2] for lane in shares(per_principal=2)) == {"p0": 1, "p1": 2}


def test_a_busy_host_is_left_out_whoever_wants_it() -> None:
    lanes = [("h1 t p", 1), ("h1 u q", 2), ("h1x t p", 3), ("https://h1:443", 4), ("", 5)]
    assert fair_lanes(lanes, ["h1"], 9, FREE) == ["h1x t p", "https://h1:443", ""]
    assert fair_lanes(lanes, ["h1 t p"], 9, FREE) == ["h1 u q", "h1x t p", "https://h1:443", ""]


def test_a_lane_that_may_have_no_more_hides_no_other() -> None:
    lanes = [(A, 1), (B, 2), ("h1 good alice", 3), (C, 4)]
    assert fair_lanes(lanes, [], 1, Shares({A: 1})) == [B, C, "h1 good alice"]
    assert fair_lanes(lanes, [], 9, Shares({A: 1}, per_host=1)) == [B, C]
    assert fair_lanes(lanes, [], 9, Shares({B: 1}, per_principal=1)) == [A, C]
    assert fair_lanes(lanes, [], 9, Shares({B: 1}, per_tenant=1)) == [A]
