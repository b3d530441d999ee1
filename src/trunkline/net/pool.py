"""The lines to one origin: how many there may be at once, who is next, and those that are free."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from trunkline.net.connection import ClientConnection
from trunkline.net.egress import Target

# Most servers close after five seconds, and who closes first does not lose a request.
IDLE_S = 4.0
# Who waits longer for a line waits behind calls that take long: streams, and agents that think.
PATIENCE_S = 0.1


class ConnectionPool:
    """Permits to use a line, handed out in the order they are asked for; free lines, the warmest first.

    There are few permits at first, and more, up to `most`, for those who would wait long.

    Invariant: a line is dialled by who has a permit and only when none is free, so there are never more
    lines than permits.
    """

    def __init__(self, at: Target, limit: int, resting: Callable[[], None], *, most: int = 0) -> None:
        self.host = at.host
        self.at = at
        self.free = limit
        self.limit = limit
        self._most = most
        self.lines: set[ClientConnection] = set()
        self.idle: list[ClientConnection] = []
        self._resting = resting
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    @property
    def is_unused(self) -> bool:
        """Whether nobody has a line here, or wants one."""
        return self.free == self.limit and not self.lines

    async def enter(self) -> None:
        """Take a permit, after those who came before."""
        if self.free > 0:
            self.free -= 1
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = self._loop.call_later(PATIENCE_S, self._widen, waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise
        finally:
            timer.cancel()

    def _widen(self, waiter: asyncio.Future[None]) -> None:
        """Another permit, for who has waited long enough."""
        if self.limit < self._most and not waiter.done():
            self.limit += 1
            waiter.set_result(None)

    def leave(self) -> None:
        """Give a permit back: to the next who waits, if there is one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1

    def take(self) -> ClientConnection | None:
        """A free line that still stands."""
        while self.idle:
            line = self.idle.pop()
            if line.is_fresh() and self._loop.time() - line.idle_at < IDLE_S:
                return line
            line.abort()
        return None

    def gain(self, line: ClientConnection) -> None:
        """A line stands."""
        self.lines.add(line)

    def settle(self, line: ClientConnection, keep: bool) -> None:
        """An exchange is over."""
        if keep:
            line.idle_at = self._loop.time()
            self.idle.append(line)
            self._resting()
        self.leave()

    def lose(self, line: ClientConnection) -> None:
        """A line is gone."""
        self.lines.discard(line)
        if line in self.idle:
            self.idle.remove(line)

    def sweep(self) -> None:
        """Close what nobody has used for too long."""
        until = self._loop.time() - IDLE_S
        for line in [line for line in self.idle if line.idle_at <= until]:
            self.idle.remove(line)
            line.abort()

    def drop(self) -> None:
        """Close every free line."""
        idle, self.idle = self.idle, []
        for line in idle:
            line.abort()
