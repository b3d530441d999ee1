"""Quotas: what comes too often or all at once is refused, with the time after which it would not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trunkline.errors import TooManyRequests
from trunkline.run import limits
from trunkline.run.limits import Quota

ME, YOU = ("t", "me", ""), ("t", "you", "")


class Clock:
    """Moves when it is told to; begins late, as clocks of machines that run for years do."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


def _let_in(quota: Quota, who: limits.Who = ME, tries: int = 1000) -> int:
    """How many come in before one is refused."""
    for count in range(tries):
        try:
            quota.enter(who)
        except TooManyRequests:
            return count
    return tries


@pytest.mark.parametrize(
    ("rate", "burst", "together"),
    [
        (10, 0, 20),
        (10, 5, 5),
        (10, 1, 1),
        (0.1, 0, 1),
        (0.5, 0, 1),
        (3, 0, 6),
        (1 / 3, 7, 7),
        (999.9, 12, 12),
    ],
)
def test_a_burst_and_then_the_rate(rate: float, burst: int, together: int) -> None:
    clock = Clock()
    quota = Quota(rate, burst, 0, clock)
    assert _let_in(quota) == together
    for _ in range(50):
        clock.now += 1.0001 / rate
        assert _let_in(quota) == 1
    clock.now += 0.9 / rate
    assert _let_in(quota) == 0
    clock.now += 1000 / rate
    assert _let_in(quota) == together


def test_over_a_long_time_it_is_the_rate() -> None:
    clock = Clock()
    quota = Quota(50, 0, 0, clock)
    come_in = 0
    for _ in range(5000):
        clock.now += 0.002
        come_in += _let_in(quota, tries=1)
    assert 500 <= come_in <= 600, "ten seconds at ten times the rate, and one burst"


@pytest.mark.parametrize(("rate", "seconds"), [(10, 1), (0.5, 2), (0.1, 10), (0.01, 100)])
def test_a_refusal_says_when_to_come_again(rate: float, seconds: int) -> None:
    clock = Clock()
    quota = Quota(rate, 1, 0, clock)
    quota.enter(ME)
    with pytest.raises(TooManyRequests, match=f"in {seconds} s") as refused:
        quota.enter(ME)
    assert refused.value.retry_after_s == seconds
    clock.now += seconds
    quota.enter(ME)


def test_callers_do_not_share() -> None:
    quota = Quota(1, 3, 2, Clock())
    assert _let_in(quota, ME) == _let_in(quota, YOU) == 2
    quota.leave(ME)
    quota.enter(ME)
    with pytest.raises(TooManyRequests):
        quota.enter(YOU)


def test_what_is_in_flight_counts_until_it_leaves() -> None:
    quota = Quota(0, 0, 2, Clock())
    for _ in range(3):
        assert _let_in(quota) == 2
        with pytest.raises(TooManyRequests, match="2 may be in flight") as refused:
            quota.enter(ME)
        assert refused.value.retry_after_s == 1
        quota.leave(ME)
        quota.leave(ME)
    assert len(quota) == 0


def test_who_is_refused_pays_nothing() -> None:
    clock = Clock()
    quota = Quota(1, 2, 1, clock)
    quota.enter(ME)
    for _ in range(100):
        with pytest.raises(TooManyRequests, match="in flight"):
            quota.enter(ME)
    quota.leave(ME)
    quota.enter(ME)
    quota.leave(ME)
    with pytest.raises(TooManyRequests, match="a second"):
        quota.enter(ME)
    clock.now += 1
    quota.enter(ME)


def test_switched_off() -> None:
    quota = Quota(0, 0, 0, Clock())
    assert _let_in(quota) == 1000
    assert len(quota) == 0


@pytest.mark.parametrize("leave", [lambda quota: quota.leave(ME), lambda _: None])
def test_leaving_more_often_than_entering_is_harmless(leave: Callable[[Quota], None]) -> None:
    quota = Quota(1, 0, 3, Clock())
    leave(quota)
    assert _let_in(quota) == 2, "the burst, twice the rate"


def test_the_idle_are_forgotten_and_the_busy_are_not() -> None:
    clock = Clock()
    quota = Quota(1, 2, 0, clock)
    for number in range(3000):
        clock.now += 0.01
        quota.enter(("t", f"passer-by {number}", ""))
    assert len(quota) <= 1024
    quota.enter(ME)
    for number in range(1000):
        quota.enter(("t", f"another {number}", ""))
    assert _let_in(quota, ME) == 1


def test_no_more_callers_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM", 2000)
    quota = Quota(0.001, 1, 0, Clock())
    for number in range(5000):
        quota.enter(("t", str(number), ""))
    assert len(quota) <= 2000
    with pytest.raises(TooManyRequests):
        quota.enter(("t", "4999", ""))


def test_a_full_table_is_not_walked_for_every_new_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM", 2000)
    walks: list[int] = []
    sweep = Quota._sweep  # noqa: SLF001 - how often it is called is what is asked here

    def counted(quota: Quota, now: float) -> None:
        walks.append(len(quota))
        sweep(quota, now)

    monkeypatch.setattr(Quota, "_sweep", counted)
    quota = Quota(0.001, 1, 0, Clock())
    for number in range(10_000):
        quota.enter(("t", str(number), ""))
    assert len(walks) < 50
