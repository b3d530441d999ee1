"""When to leave a target alone: a breaker per lane. Pure; whoever asks says what time it is.

Ten failures in a row open a lane. After a pause one delivery may try it; the pause doubles when that fails.
"""

from __future__ import annotations

FAILURES = 10
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 300.0
# A try whose end nobody told counts as lost after this.
TRY_S = 60.0
LANES = 4096


class _Lane:
    __slots__ = ("failures", "pause_s", "trying", "until")

    def __init__(self) -> None:
        self.failures = 0
        # Above zero while the lane is open.
        self.pause_s = 0.0
        self.until = 0.0
        self.trying = False

    def pause(self, seconds: float, now: float) -> None:
        self.pause_s = seconds
        self.until = now + seconds
        self.trying = False


class Breaker:
    """What is known of the lanes that failed of late; one that works is not remembered."""

    def __init__(self, *, lanes: int = LANES) -> None:
        self._limit = lanes
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def allows(self, lane: str, now: float) -> bool:
        """Whether a delivery may go out. For an open lane this hands out the one try that is due."""
        found = self._lanes.get(lane)
        if found is None or not found.pause_s:
            return True
        if now < found.until:
            return False
        found.trying = True
        found.until = now + TRY_S
        return True

    def due(self, lane: str) -> float:
        """When the next delivery may go out; 0 for a lane that is not open."""
        found = self._lanes.get(lane)
        return 0.0 if found is None else found.until

    def succeeded(self, lane: str) -> None:
        """The target answered well: all is forgotten."""
        self._lanes.pop(lane, None)

    def failed(self, lane: str, now: float) -> bool:
        """The target failed; true when it was this failure that opened the lane, or opened it again."""
        # Taken out and put back, so that the lanes stay in the order of their latest failures.
        found = self._lanes.pop(lane, None) or _Lane()
        if len(self._lanes) >= self._limit:
            self._forget_one()
        self._lanes[lane] = found
        if found.pause_s:
            # Those that were on their way when the lane opened say nothing new.
            if not found.trying:
                return False
            found.pause(min(found.pause_s * 2, LONGEST_PAUSE_S), now)
            return True
        found.failures += 1
        if found.failures < FAILURES:
            return False
        found.pause(FIRST_PAUSE_S, now)
        return True

    def busy(self, now: float) -> list[str]:
        """The lanes that let nothing out now."""
        return [name for name, lane in self._lanes.items() if lane.pause_s and now < lane.until]

    def _forget_one(self) -> None:
        """Drop the lane that failed longest ago, a closed one if there is any."""
        closed = (name for name, lane in self._lanes.items() if not lane.pause_s)
        del self._lanes[next(closed, next(iter(self._lanes)))]
