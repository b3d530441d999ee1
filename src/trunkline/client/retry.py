"""Whether and when a request is made again. Pure: the time left and chance are passed in."""

from __future__ import annotations

from enum import Enum

from trunkline.errors import (
    PeerError,
    Refused,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unavailable,
    Uncertain,
    Unreachable,
    Unreadable,
)

FIRST_S = 0.2
LONGEST_S = 10.0
# A retry costs a coin, a call earns a fifth of one: a dead peer gets a fifth more calls, not four times more.
_COINS = 10.0
_EARNED = 0.2
# Our own rules refuse it, or it would be the same again.
_FINAL = frozenset({"refused", "url", "tls", "plain", "size", "breaker"})
# Nothing of the request was written.
_UNTAKEN = frozenset({"name", "connect"})
_GATEWAY = (502, 504)


class Fate(Enum):
    """The fate of a request that failed: not taken, maybe taken, or answered."""

    # The agent has not begun: it never got it, or says that it takes nothing now.
    UNTAKEN = 0
    # It may have been taken, and the answer was lost.
    UNKNOWN = 1
    # That is the answer; again would be the same.
    ANSWERED = 2


def fate_of(error: TrunklineError) -> Fate:
    """The fate of the request that ended with this error."""
    if isinstance(error, Refused):
        if isinstance(error, TooManyRequests | Unavailable):
            return Fate.UNTAKEN
        # A gateway that got no answer may have passed the request on.
        lost = isinstance(error, PeerError) and error.code in _GATEWAY
        return Fate.UNKNOWN if lost else Fate.ANSWERED
    if isinstance(error, Unreadable):
        return Fate.UNKNOWN
    if not isinstance(error, Unreachable) or isinstance(error, Uncertain):
        return Fate.ANSWERED
    if error.reason in _UNTAKEN:
        return Fate.UNTAKEN
    over = error.reason in _FINAL or (isinstance(error, TimedOut) and error.reason == "total")
    return Fate.ANSWERED if over else Fate.UNKNOWN


def may_be_taken(error: TrunklineError) -> bool:
    """Whether the agent may be doing what a message asks for, though its answer is this error.

    A gateway says 503 by itself, also when the agent behind it broke off; an agent says why, or when to
    come again.
    """
    if isinstance(error, Unavailable):
        return not error.details.keys() & {"retryAfter", "reason"}
    return fate_of(error) is Fate.UNKNOWN


def is_peer_failure(error: TrunklineError) -> bool:
    """Whether the other side is down, as far as the error tells; what it refuses shows that it is up."""
    if isinstance(error, Refused):
        return isinstance(error, Unavailable) or (isinstance(error, PeerError) and error.code in _GATEWAY)
    return fate_of(error) is not Fate.ANSWERED


def pause_s(error: TrunklineError, attempt: int, chance: float) -> float:
    """How long to wait before attempt number `attempt`, from 1; the agent's own word is the least."""
    spread = min(LONGEST_S, FIRST_S * 2.0 ** (attempt - 1)) * chance
    return max(spread, asked_s(error))


def asked_s(error: TrunklineError) -> float:
    """How long the agent asks to be left alone; 0 if it does not say."""
    if isinstance(error, TooManyRequests):
        return error.retry_after_s
    said = error.details.get("retryAfter", "") if isinstance(error, Unavailable) else ""
    return float(said) if said.isdecimal() else 0.0


class Budget:
    """Coins for retries, earned by calls."""

    __slots__ = ("_coins",)

    def __init__(self) -> None:
        self._coins = _COINS

    def earn(self) -> None:
        """A call was made."""
        if self._coins < _COINS:
            self._coins = min(_COINS, self._coins + _EARNED)

    def spend(self) -> bool:
        """Take the coin of a retry; false if there is none."""
        if self._coins < 1:
            return False
        self._coins -= 1
        return True
