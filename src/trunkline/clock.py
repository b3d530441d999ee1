"""Where time, waits, chance and ids come from; everyone else has them passed in or takes them from here."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable
from time import monotonic_ns

_WORD_BITS = 64
_POOL = struct.Struct("512Q")


class _RandomPool:
    """The system's randomness, fetched a page at a time: a system call per id would cost more than the id."""

    def __init__(self) -> None:
        self._words: list[int] = []
        # A forked child must not draw what its parent draws.
        os.register_at_fork(after_in_child=self._drop)

    def _drop(self) -> None:
        self._words = []

    def bits(self, count: int) -> int:
        if count > _WORD_BITS:
            # A token now and then.
            return self.bits(count - _WORD_BITS) << _WORD_BITS | self.bits(_WORD_BITS)
        try:
            # One step of the interpreter: no two threads draw the same word.
            drawn = self._words.pop()
        except IndexError:
            drawn, *self._words = _POOL.unpack(os.urandom(_POOL.size))
        return drawn >> (_WORD_BITS - count)


random_bits = _RandomPool().bits


def random_bytes(count: int) -> bytes:
    """So many bytes by chance, for keys and what seals them."""
    return random_bits(count * 8).to_bytes(count, "big")


class _WallClock:
    """The time of day: of this machine, or of a database server that several machines share.

    The server's time goes on by the monotonic clock between two readings, whatever this machine's clock does.
    """

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        # How far the server's time is ahead of the monotonic clock; None while no server is followed.
        self._ahead_ns: int | None = None

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return (time.time_ns() if self._ahead_ns is None else monotonic_ns() + self._ahead_ns) // 1_000_000

    def follow(self, now_ms: int | None) -> None:
        """Follow a server whose time is `now_ms` at this moment; None to use this machine's clock again."""
        self._ahead_ns = None if now_ms is None else now_ms * 1_000_000 - monotonic_ns()


_wall_clock = _WallClock()
now_ms, follow_server = _wall_clock.now_ms, _wall_clock.follow


def monotonic_ms() -> int:
    """Return the milliseconds of the monotonic clock, which nobody sets."""
    return monotonic_ns() // 1_000_000


async def wait_event(event: asyncio.Event, limit_s: float | None) -> bool:
    """Wait for an event, at most this long; whether it has come."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False


class Ids:
    """Makes UUIDv7: ids that sort by time keep the durable write rate five times higher."""

    __slots__ = ("_counter", "_last", "_now", "_prefix", "_random")

    def __init__(
        self, now_ms: Callable[[], int] = now_ms, random_bits: Callable[[int], int] = random_bits
    ) -> None:
        self._now = now_ms
        self._random = random_bits
        self._last = 0
        self._counter = 0
        self._prefix = ""

    def new(self) -> str:
        """A fresh id, greater than every earlier one of this source."""
        now = self._now()
        # Within one millisecond, or when the clock steps back, the counter keeps the order.
        self._counter += 1
        if now > self._last:
            self._begin(now, self._random(10))
        elif self._counter > 0xFFF:
            self._begin(self._last + 1, 0)
        tail = self._random(62)
        # Twice as fast as an f-string, which calls a method for each number that it spells in hexadecimal.
        rest = (self._counter, tail >> 48 | 0x8000, tail & 0xFFFFFFFFFFFF)
        return self._prefix + "%03x-%04x-%012x" % rest  # noqa: UP031

    def _begin(self, millisecond: int, counter: int) -> None:
        # `_last` comes last: a thread that sees it must find a prefix.
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"
        self._counter = counter
        self._last = millisecond


def first_id(millisecond: int) -> str:
    """Where the ids begin that are made from a moment on: all earlier ones sort before it."""
    return f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}"


# For who has no source of its own. Threads that share it lose the order of ids, never their being unique:
# 62 bits of each are drawn.
new_id = Ids().new
