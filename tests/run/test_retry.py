"""Rows 63 and 64: what becomes of a delivery after each answer, and when it is tried again."""

from __future__ import annotations

import time

import pytest

from trunkline.run.retry import LONG, QUICK, Attempt, RetrySchedule, patience_ms
from trunkline.store.records import Delivery, DeliveryOutcome, DeliveryResult

NOW = 1_800_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
# The long schedule as it is promised: after these waits, each a fifth longer or shorter.
PROMISED = [
    5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR,
]  # fmt: skip


def delivery(attempts: int = 0) -> Delivery:
    return Delivery("d", "t", "task", 2, "a", "https://hooks.example:443", NOW, attempts)


def settle(attempt: Attempt, attempts: int = 0, *, long: bool = False, chance: float = 0.5) -> DeliveryResult:
    return RetrySchedule(long=long).settle(delivery(attempts), attempt, NOW, chance)


def outcomes(attempt: Attempt, *, long: bool = False, chance: float = 0.5) -> list[int]:
    """The waits until a delivery that always ends like this is given up."""
    waits: list[int] = []
    while (settled := settle(attempt, len(waits), long=long, chance=chance)).outcome is DeliveryOutcome.RETRY:
        waits.append(settled.next_due - NOW)
    assert settled.outcome is DeliveryOutcome.DEAD
    return waits


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_row_64_2xx_is_delivered(status: int) -> None:
    assert settle(Attempt(status)) == DeliveryResult("d", DeliveryOutcome.DONE, 0, status, f"HTTP {status}")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 413, 422, 451, 499])
def test_row_64_3xx_and_4xx_are_given_up_at_once(status: int) -> None:
    assert settle(Attempt(status), long=True) == DeliveryResult(
        "d", DeliveryOutcome.DEAD, 0, status, f"HTTP {status}"
    )


def test_row_64_410_disables() -> None:
    assert settle(Attempt(410)) == DeliveryResult("d", DeliveryOutcome.DROPPED, 0, 410, "HTTP 410: disabled")


@pytest.mark.parametrize("status", [408, 429, 500, 501, 502, 503, 504, 599])
def test_row_64_what_may_pass_is_tried_again(status: int) -> None:
    assert settle(Attempt(status)) == DeliveryResult(
        "d", DeliveryOutcome.RETRY, NOW + SECOND, status, f"HTTP {status}"
    )
    assert outcomes(Attempt(status)) == [1 * SECOND, 3 * SECOND, 9 * SECOND]


@pytest.mark.parametrize("trouble", ["name", "connect", "tls", "timeout", "size", "protocol", "broke"])
def test_row_64_no_answer_is_tried_again(trouble: str) -> None:
    assert settle(Attempt(trouble=trouble)) == DeliveryResult(
        "d", DeliveryOutcome.RETRY, NOW + SECOND, 0, trouble
    )
    assert outcomes(Attempt(trouble=trouble)) == list(QUICK)


@pytest.mark.parametrize("trouble", ["refused", "url"])
def test_row_64_what_we_refuse_to_dial_is_given_up(trouble: str) -> None:
    assert settle(Attempt(trouble=trouble), long=True) == DeliveryResult(
        "d", DeliveryOutcome.DEAD, 0, 0, trouble
    )


@pytest.mark.parametrize(
    ("status", "asked", "attempts", "wait"),
    [
        (429, 7 * SECOND, 0, 7 * SECOND),
        (503, 7 * SECOND, 0, 7 * SECOND),
        (429, 0, 1, 3 * SECOND),
        # Never sooner than we would have come anyway, never later than a day.
        (429, 1 * SECOND, 2, 9 * SECOND),
        (429, 400 * HOUR, 0, 24 * HOUR),
    ],
)
def test_row_64_a_target_may_ask_for_patience(status: int, asked: int, attempts: int, wait: int) -> None:
    settled = settle(Attempt(status, retry_after_ms=asked), attempts)
    assert (settled.outcome, settled.next_due - NOW) == (DeliveryOutcome.RETRY, wait)


def test_row_64_patience_does_not_last_for_ever() -> None:
    assert settle(Attempt(429, retry_after_ms=5 * SECOND), len(QUICK)).outcome is DeliveryOutcome.DEAD


def test_row_63_the_long_schedule_follows_the_quick_one() -> None:
    assert list(LONG) == PROMISED
    assert outcomes(Attempt(503), long=True) == [*QUICK, *PROMISED]


def test_row_63_long_waits_are_spread_by_a_fifth() -> None:
    earliest, latest = (outcomes(Attempt(503), long=True, chance=chance) for chance in (0.0, 1.0))
    assert earliest == [*QUICK, *[wait * 4 // 5 for wait in PROMISED]]
    assert latest == [*QUICK, *[wait * 6 // 5 for wait in PROMISED]]
    # What waits for a target that is down is not given up before its own schedule would.
    assert sum(latest) <= RetrySchedule(long=True).span_ms
    assert sum(QUICK) < RetrySchedule().span_ms


@pytest.mark.parametrize(
    ("attempt", "alive", "down"),
    [
        (Attempt(200), True, False),
        (Attempt(404), True, False),
        (Attempt(429), True, False),
        (Attempt(500), False, True),
        (Attempt(trouble="timeout"), False, True),
        (Attempt(trouble="refused"), False, False),
    ],
)
def test_what_an_attempt_says_of_the_target(attempt: Attempt, alive: bool, down: bool) -> None:
    assert (attempt.alive, attempt.down) == (alive, down)


def test_a_log_that_cannot_be_read_is_asked_for_again_but_not_for_ever() -> None:
    waits: list[int] = []
    while (settled := RetrySchedule().unread(delivery(len(waits)), NOW)).outcome is DeliveryOutcome.RETRY:
        waits.append(settled.next_due - NOW)
    assert waits[:3] == [1 * SECOND, 2 * SECOND, 4 * SECOND]
    assert (max(waits), len(waits)) == (60 * SECOND, 60)
    assert (settled.outcome, settled.note) == (DeliveryOutcome.DEAD, "the task cannot be read")


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("", 0),
        ("0", 0),
        ("120", 120 * SECOND),
        ("9" * 30, 24 * HOUR),
        ("-5", 0),
        ("1.5", 0),
        ("soon", 0),
        ("١٢", 0),
        # NOW is 2027-01-15 08:00:00.
        ("Fri, 15 Jan 2027 08:01:00 GMT", MINUTE),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("Fri, 15 Jan 9999 07:00:00 GMT", 24 * HOUR),
        ("Fri, 99 Jan 2027 99:00:00 GMT", 0),
    ],
)
def test_retry_after(text: str, wait: int) -> None:
    assert patience_ms(text, NOW) == wait


@pytest.mark.parametrize("text", ["Fri Jan 15 08:01:00 2027", "Fri, 15 Jan 2027 08:01:00 -0000"])
def test_a_date_that_names_no_zone_is_not_ours(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert patience_ms(text, NOW) == MINUTE
    finally:
        monkeypatch.undo()
        time.tzset()
