"""When to leave a target alone: a circuit breaker for each. Pure; whoever asks says what time it is.

Ten failures in a row open it. After a pause one delivery may try the target; the pause doubles when that
fails.
"""

from __future__ import annotations

from msgspec import Struct

FAILURES = 10
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 300.0
# A try whose end nobody told counts as lost after this.
TRY_S = 60.0
TARGETS = 4096


class _TargetState(Struct):
    # When the first of its failures in a row was.
    since: float
    failures: int = 0
    # Above zero while its breaker is open.
    pause_s: float = 0.0
    until: float = 0.0
    trying: bool = False

    def pause(self, seconds: float, now: float) -> None:
        self.pause_s = seconds
        self.until = now + seconds
        self.trying = False


class Breaker:
    """What is known of the targets that failed of late; one that works is not remembered."""

    def __init__(self, *, targets: int = TARGETS) -> None:
        self._limit = targets
        self._targets: dict[str, _TargetState] = {}

    def __len__(self) -> int:
        return len(self._targets)

    def allows(self, target: str, now: float) -> bool:
        """Whether a delivery may go out. Where its breaker is open this hands out the one try that is due."""
        found = self._targets.get(target)
        if found is None or not found.pause_s:
            return True
        if now < found.until:
            return False
        found.trying = True
        found.until = now + TRY_S
        return True

    def due(self, target: str) -> float:
        """When the next delivery may go out; 0 while its breaker is closed."""
        found = self._targets.get(target)
        return 0.0 if found is None else found.until

    def down_s(self, target: str, now: float) -> float:
        """Return for how many seconds a target has failed without a success between; 0 if it works."""
        found = self._targets.get(target)
        return 0.0 if found is None else now - found.since

    def succeeded(self, target: str) -> None:
        """The target answered well: all is forgotten."""
        self._targets.pop(target, None)

    def failed(self, target: str, now: float) -> bool:
        """The target failed; true when it was this failure that opened the target, or opened it again."""
        # Taken out and put back, so that the targets stay in the order of their latest failures.
        found = self._targets.pop(target, None) or _TargetState(now)
        if len(self._targets) >= self._limit:
            self._forget_one()
        self._targets[target] = found
        if found.pause_s:
            # Those that were on their way when the target opened say nothing new.
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
        """The targets that let nothing out now."""
        return [name for name, target in self._targets.items() if target.pause_s and now < target.until]

    def _forget_one(self) -> None:
        """Drop the target that failed longest ago, a closed one if there is any."""
        closed = (name for name, target in self._targets.items() if not target.pause_s)
        del self._targets[next(closed, next(iter(self._targets)))]
