"""Where time and chance come from; everyone else has them passed in or takes them from here."""

from __future__ import annotations

import secrets
import time

random_bits = secrets.randbits


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
