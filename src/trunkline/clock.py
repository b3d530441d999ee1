"""Where time and chance come from; everyone else has them passed in or takes them from here."""

from __future__ import annotations

import os
import time

_POOL_BYTES = 4096


class _Pool:
    """The system's randomness, fetched a page at a time: a system call per id would cost more than the id."""

    def __init__(self) -> None:
        self._bytes = b""
        self._used = 0
        # A forked child must not draw what its parent draws.
        os.register_at_fork(after_in_child=self._drop)

    def _drop(self) -> None:
        self._bytes = b""

    def bits(self, count: int) -> int:
        need = (count + 7) // 8
        if self._used + need > len(self._bytes):
            self._bytes, self._used = os.urandom(_POOL_BYTES), 0
        drawn = int.from_bytes(self._bytes[self._used : self._used + need], "big")
        self._used += need
        return drawn >> (need * 8 - count)


random_bits = _Pool().bits


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
