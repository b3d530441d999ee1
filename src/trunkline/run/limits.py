"""Quotas: how often a caller may ask, and how much of it may be in flight at once.

Pure: the clock is passed in. Each process counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import ceil

from trunkline.errors import TooManyRequests

# Tenant, name, and for those without a name of their own the place they call from.
CallerKey = tuple[str, str, str]
# How many callers are remembered; who has not called for a while is forgotten long before.
ROOM = 65_536
_FIRST_SWEEP = 1024
# Less than any clock tells apart, more than sums of floats are off by.
_GRAIN_S = 1e-6


class Quota:
    """A token bucket and a count of what is in flight for every caller; 0 switches either off.

    A bucket is kept as the moment at which it will be full again, so an idle one is like one never seen.
    """

    __slots__ = ("_at_once", "_clock", "_full_at", "_gap_s", "_held", "_rate", "_slack_s", "_sweep_at")

    def __init__(self, rate: float, burst: int, at_once: int, clock: Callable[[], float]) -> None:
        """Take requests a second, how many may come together (0: twice the rate), and how many at once."""
        self._rate = rate
        self._gap_s = 1 / rate if rate else 0.0
        self._slack_s = max(1.0, burst or 2 * rate) * self._gap_s + _GRAIN_S
        self._at_once = at_once
        self._clock = clock
        self._full_at: dict[CallerKey, float] = {}
        self._held: dict[CallerKey, int] = {}
        self._sweep_at = _FIRST_SWEEP

    def enter(self, caller: CallerKey) -> None:
        """Count a request; `leave` when it is over.

        Raises:
            TooManyRequests: the caller is over its rate, or has too much in flight; nothing is counted.
        """
        held = self._held.get(caller, 0)
        if self._at_once and held >= self._at_once:
            raise TooManyRequests(
                f"too many requests at once: {self._at_once} may be in flight, open streams with them; "
                "end one, or raise concurrency_limit"
            )
        if self._rate:
            now = self._clock()
            full_at = self._full_at.get(caller, now)
            full_at = (full_at if full_at > now else now) + self._gap_s
            if (wait_s := full_at - now - self._slack_s) > 0:
                seconds = max(1, ceil(wait_s))
                raise TooManyRequests(
                    f"too many requests: {self._rate:g} a second are let in; try again in {seconds} s",
                    retry_after_s=seconds,
                )
            self._full_at[caller] = full_at
            if len(self._full_at) >= self._sweep_at:
                self._sweep(now)
        if self._at_once:
            self._held[caller] = held + 1

    def leave(self, caller: CallerKey) -> None:
        """A request that was let in is over."""
        if self._at_once:
            held = self._held.get(caller, 0)
            if held > 1:
                self._held[caller] = held - 1
            else:
                self._held.pop(caller, None)

    def wait_s(self, caller: CallerKey) -> float:
        """How long until a request of this caller would not be over its rate; 0 if it is not."""
        now = self._clock()
        return max(0.0, max(self._full_at.get(caller, now), now) + self._gap_s - now - self._slack_s)

    def is_used(self, caller: CallerKey) -> bool:
        """Whether something of this caller still counts."""
        return self._full_at.get(caller, 0.0) > self._clock()

    def __len__(self) -> int:
        return len(self._full_at) + len(self._held)

    def _sweep(self, now: float) -> None:
        kept = {caller: full_at for caller, full_at in self._full_at.items() if full_at > now}
        if len(kept) >= ROOM:
            # Whoever is forgotten starts with a full bucket: a table without end would cost everybody. A
            # quarter goes at once, or each new caller would cost a walk through all of it.
            kept = dict(islice(kept.items(), len(kept) - ROOM * 3 // 4, None))
        self._full_at = kept
        self._sweep_at = min(ROOM, max(_FIRST_SWEEP, 2 * len(kept)))
