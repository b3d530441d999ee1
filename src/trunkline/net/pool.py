"""The connections to one origin: how many there may be at once, who is next, and those that are idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from trunkline.net.connection import ClientConnection
from trunkline.net.egress import HttpTarget

# Most servers close after five seconds, and who closes first does not lose a request.
IDLE_S = 4.0
# Who waits longer for a connection waits behind calls that take long: streams, and agents that think.
PATIENCE_S = 0.1


class ConnectionPool:
    """Permits to use a connection, given in the order they are asked for; idle ones, the warmest first.

    There are few permits at first, and more, up to `most`, for those who would wait long.

    Invariant: a connection is made by who has a permit and only when none is idle, so there are never more
    connections than permits.
    """

    def __init__(self, at: HttpTarget, limit: int, on_idle: Callable[[], None], *, most: int = 0) -> None:
        self.host = at.host
        self.at = at
        self.free = limit
        self.limit = limit
        self._most = most
        self.connections: set[ClientConnection] = set()
        self.idle: list[ClientConnection] = []
        self._on_idle = on_idle
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    @property
    def is_unused(self) -> bool:
        """Whether nobody has a permit, or waits for one; connections may be idle."""
        return self.free == self.limit

    @property
    def idle_since(self) -> float:
        """When it was last used."""
        return self.idle[-1].idle_at if self.idle else 0.0

    async def acquire(self) -> None:
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
                self.release()
            raise
        finally:
            timer.cancel()

    def _widen(self, waiter: asyncio.Future[None]) -> None:
        """Another permit, for who has waited long enough."""
        if self.limit < self._most and not waiter.done():
            self.limit += 1
            waiter.set_result(None)

    def release(self) -> None:
        """Give a permit back: to the next who waits, if there is one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1

    def take_idle(self) -> ClientConnection | None:
        """An idle connection that still stands, if there is one."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_fresh() and self._loop.time() - connection.idle_at < IDLE_S:
                return connection
            connection.abort()
        return None

    def add(self, connection: ClientConnection) -> None:
        """Count a new connection."""
        self.connections.add(connection)

    def settle(self, connection: ClientConnection, keep: bool) -> None:
        """Take back the connection and the permit of an exchange that is over."""
        if keep:
            connection.idle_at = self._loop.time()
            self.idle.append(connection)
            self._on_idle()
        self.release()

    def remove(self, connection: ClientConnection) -> None:
        """Forget a connection that is gone."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self) -> None:
        """Close what nobody has used for too long."""
        until = self._loop.time() - IDLE_S
        for connection in [connection for connection in self.idle if connection.idle_at <= until]:
            self.idle.remove(connection)
            connection.abort()

    def close_idle(self) -> None:
        """Close every idle connection."""
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.abort()
