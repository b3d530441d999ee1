"""A clock that a test sets and moves by hand."""

from __future__ import annotations

import asyncio
import time

import pytest

from trunkline import clock

DAY_MS = 24 * 3_600_000


class SteppedClock:
    """The time of day and the monotonic clock of this process, each as far ahead as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wall_ms = self._passed_ms = 0
        real_ns, monotonic, monotonic_ns = time.time_ns, time.monotonic, time.monotonic_ns
        monkeypatch.setattr(clock.time, "time_ns", lambda: real_ns() + self._wall_ms * 1_000_000)
        monkeypatch.setattr(clock, "monotonic_ns", lambda: monotonic_ns() + self._passed_ms * 1_000_000)
        monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: monotonic() + self._passed_ms / 1000)

    def step(self, by_ms: int) -> None:
        """Set the time of day, as an operator or NTP does."""
        self._wall_ms += by_ms

    def move(self, by_ms: int) -> None:
        """Let time pass."""
        self._wall_ms += by_ms
        self._passed_ms += by_ms
