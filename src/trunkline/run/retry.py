"""What becomes of a delivery after an attempt. Pure: the clock and chance are passed in."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec import Struct

from trunkline.store.records import Delivery, DeliveryOutcome, DeliveryResult

_SECOND = 1000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
# After the first attempt: for trouble that passes at once.
QUICK = (1 * _SECOND, 3 * _SECOND, 9 * _SECOND)
# And for a receiver that is down for days; each wait is spread by a fifth either way.
LONG = (5 * _SECOND, 5 * _MINUTE, 30 * _MINUTE, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
_LONGEST_WAIT = 24 * _HOUR
# For how long a sender must have seen a target down before it gives up what waits for it.
DOWN_MS = 15 * _MINUTE
# A log that cannot be read is not the target's fault: it has its own patience.
_UNREAD_WAIT = 1 * _MINUTE
_UNREAD_TIMES = 60
_SPREAD = 5
# It answered, and asks for patience: 408 and 429 are the only errors of the 4xx that pass by themselves.
_PATIENT = (408, 429)
GONE = 410
# Nothing went out, and nobody was asked: we have too much to do.
BUSY = "busy"
# We would not let it go out, now or later.
_OURS = ("refused", "url")


class Attempt(Struct, frozen=True):
    """How one POST ended: with a status, or with a word why there is none."""

    status: int = 0
    trouble: str = ""
    retry_after_ms: int = 0

    @property
    def alive(self) -> bool:
        """Whether the other side is up, whatever it thinks of what it was sent."""
        return 0 < self.status < 500

    @property
    def down(self) -> bool:
        """Whether the other side failed; what our own rules refuse says nothing about it."""
        return not self.alive and self.trouble not in (*_OURS, BUSY)

    @property
    def note(self) -> str:
        """The outcome of the attempt, as operators read it."""
        return self.trouble or f"HTTP {self.status}"


class RetrySchedule(Struct, frozen=True):
    """When to try again, and when to give up."""

    long: bool = False

    @property
    def span_ms(self) -> int:
        """How long a delivery may wait for a target that is down, before it is given up."""
        return (sum(QUICK) + sum(LONG)) * 6 // 5 if self.long else DOWN_MS

    def settle(self, delivery: Delivery, attempt: Attempt, now: int, chance: float) -> DeliveryResult:
        """The verdict on an attempt; `chance` is from 0 to 1 and spreads the long waits."""
        status = attempt.status
        if 200 <= status < 300:
            return DeliveryResult(delivery.id, DeliveryOutcome.DONE, 0, status, attempt.note)
        if status == GONE:
            return DeliveryResult(delivery.id, DeliveryOutcome.DROPPED, 0, status, "HTTP 410: disabled")
        is_final = attempt.trouble in _OURS or (300 <= status < 500 and status not in _PATIENT)
        wait = None if is_final else self._wait(delivery.attempts, chance)
        if wait is None:
            return DeliveryResult(delivery.id, DeliveryOutcome.DEAD, 0, status, attempt.note)
        wait = max(wait, min(attempt.retry_after_ms, _LONGEST_WAIT))
        return DeliveryResult(delivery.id, DeliveryOutcome.RETRY, now + wait, status, attempt.note)

    def unread(self, delivery: Delivery, now: int) -> DeliveryResult:
        """The verdict when the store did not say what to post: later, but not for ever."""
        if delivery.attempts >= _UNREAD_TIMES:
            return DeliveryResult(delivery.id, DeliveryOutcome.DEAD, note="the task cannot be read")
        wait = min(_SECOND << min(delivery.attempts, 10), _UNREAD_WAIT)
        return DeliveryResult(delivery.id, DeliveryOutcome.RETRY, now + wait, note="the task cannot be read")

    def _wait(self, attempts: int, chance: float) -> int | None:
        if attempts < len(QUICK):
            return QUICK[attempts]
        place = attempts - len(QUICK)
        if not self.long or place >= len(LONG):
            return None
        return round(LONG[place] * (1 + (2 * chance - 1) / _SPREAD))


def patience_ms(text: str, now: int) -> int:
    """How long a `Retry-After` asks to wait, in seconds or until a date; 0 if it says nothing."""
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * _SECOND, _LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(text)
        # The old form names no zone, and means this one.
        until = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0
    return max(0, min(round(until * 1000) - now, _LONGEST_WAIT))
