"""A breaker per lane: ten failures open it, one try at a time closes it."""

from __future__ import annotations

import pytest

from trunkline.net.breaker import FAILURES, LONGEST_PAUSE_S, TRY_S, Breaker

A, B = "https://a.example:443", "https://b.example:443"


def opened(lane: str = A, *, at: float = 0.0) -> Breaker:
    breaker = Breaker()
    told = [breaker.failed(lane, at) for _ in range(FAILURES)]
    assert told == [False] * (FAILURES - 1) + [True]
    return breaker


def test_nine_failures_are_forgiven() -> None:
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        assert breaker.allows(A, 0)
        assert not breaker.failed(A, 0)
    breaker.succeeded(A)
    assert not breaker.failed(A, 0)
    assert breaker.allows(A, 0)
    assert breaker.busy(0) == []


def test_ten_failures_open_one_lane_only() -> None:
    breaker = opened()
    assert not breaker.allows(A, 9.9)
    assert breaker.allows(B, 9.9)
    assert breaker.busy(9.9) == [A]
    assert breaker.busy(10) == []


def test_it_says_when_the_next_try_is_due() -> None:
    breaker = opened(at=5)
    assert breaker.due(A) == 15
    assert breaker.due(B) == 0


def test_one_try_after_the_pause() -> None:
    breaker = opened()
    assert breaker.allows(A, 10)
    assert not breaker.allows(A, 10)
    assert breaker.busy(11) == [A]
    breaker.succeeded(A)
    assert breaker.allows(A, 11)
    assert breaker.busy(11) == []
    assert len(breaker) == 0


def test_the_pause_doubles_up_to_five_minutes() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(8):
        start = now
        while not breaker.allows(A, now):
            now += 1
        pauses.append(now - start)
        assert breaker.failed(A, now)
        assert not breaker.failed(A, now)
    assert pauses == [10, 20, 40, 80, 160, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_failures_that_were_on_their_way_do_not_lengthen_the_pause() -> None:
    breaker = opened()
    for _ in range(20):
        assert not breaker.failed(A, 5)
    assert breaker.busy(9.9) == [A]
    assert breaker.allows(A, 10)


def test_a_try_whose_end_nobody_tells_is_lost_after_a_while() -> None:
    breaker = opened()
    assert breaker.allows(A, 10)
    assert not breaker.allows(A, 10 + TRY_S - 1)
    assert breaker.allows(A, 10 + TRY_S)


def test_a_lane_is_down_since_its_first_failure_in_a_row() -> None:
    breaker = opened(at=5)
    assert breaker.allows(A, 15)
    assert breaker.failed(A, 15)
    assert breaker.down_s(A, 20) == 15
    assert breaker.down_s(B, 20) == 0
    breaker.succeeded(A)
    assert breaker.down_s(A, 20) == 0


def test_success_of_an_unknown_lane() -> None:
    breaker = Breaker()
    breaker.succeeded(A)
    assert breaker.allows(A, 0)


@pytest.mark.parametrize("rounds", [1, FAILURES])
def test_it_remembers_only_so_many_lanes(rounds: int) -> None:
    breaker = Breaker(targets=10)
    for number in range(1000):
        for _ in range(rounds):
            breaker.failed(f"http://h{number}.example:80", number)
    assert len(breaker) == 10
    newest = [f"http://h{number}.example:80" for number in range(990, 1000)]
    assert breaker.busy(999) == (newest if rounds == FAILURES else [])


def test_closed_lanes_are_forgotten_before_open_ones() -> None:
    breaker = Breaker(targets=2)
    for _ in range(FAILURES):
        breaker.failed(A, 0)
    breaker.failed(B, 1)
    breaker.failed("http://c.example:80", 2)
    assert breaker.busy(3) == [A]
