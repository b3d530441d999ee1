"""When an agent is left alone: its circuit breaker. Pure; whoever asks says what time it is, in milliseconds.

Five failures in a row open it; after a minute one piece of work may try the agent, and what becomes of that
decides.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

FAILURES = 5
PAUSE_MS = 60_000
BreakerState = Literal["closed", "open", "half-open"]


class AgentBreaker(Struct, frozen=True):
    """What the latest outcomes of an agent say; `until` is when the next try is due, 0 while it is closed."""

    failures: int = 0
    until: int = 0
    # A try whose end nobody tells counts as lost when the next one is due.
    trying: bool = False

    def state(self, now: int) -> BreakerState:
        """The state of the breaker at a moment: closed, open, or half-open."""
        if not self.until:
            return "closed"
        return "half-open" if self.trying or now >= self.until else "open"

    def admits(self, now: int) -> bool:
        """Whether work may go to the agent now."""
        return not self.until or now >= self.until

    def tried(self, now: int) -> AgentBreaker:
        """After work went to the agent: while it is half open, nothing more goes for a minute."""
        return replace(self, trying=True, until=now + PAUSE_MS) if self.until else self

    def succeeded(self) -> AgentBreaker:
        """After the agent answered well."""
        return AgentBreaker()

    def failed(self, now: int) -> AgentBreaker:
        """After the agent failed."""
        if self.until and not self.trying:
            # Those that were on their way when it opened say nothing new.
            return self
        failures = min(self.failures + 1, FAILURES)
        return AgentBreaker(failures, now + PAUSE_MS if failures >= FAILURES else 0)
