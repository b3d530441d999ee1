"""The connections of a server together: who answers them, their one clock, and how many there may be."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from email.utils import formatdate
from typing import Any, Protocol

from msgspec import Struct, field

from trunkline.clock import now_ms
from trunkline.http.exchange import Exchange

log = logging.getLogger("trunkline.server")
FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# Who is turned away may be sending; closed at once, its own words would cost it ours.
LEAVE_S = 1.0
LEAVING = 256
# Files that are no connections: the store, the log, calls that go out.
FILES = 200
# What a connection may leave unread without being counted.
LARGE_BYTES = 64 << 10
# One reader may hold this part of what all may.
SHARE = 4


class OpenConnection(Protocol):
    """A connection as the state of a server knows it."""

    transport: asyncio.Transport

    def shutdown(self) -> None:
        """The server goes down."""
        ...

    def tick(self, now: float) -> None:
        """A second has passed."""
        ...


class UnreadConnection(Protocol):
    """A connection whose reader is behind."""

    def drop(self) -> None:
        """Let go of the connection and of what it has not sent."""
        ...


class UnreadAnswers(Struct):
    """Counts the bytes of large answers that their readers have not taken yet; a `limit` of 0 is none.

    Small ones are bounded by the number of connections. Of large ones a few slow readers could make a process
    hold any amount, so it is bounded for each reader and in all; who has kept us waiting longest loses its
    own.
    """

    limit: int = 0
    _by_reader: dict[Hashable, dict[UnreadConnection, int]] = {}
    _sizes: dict[Hashable, int] = {}
    total: int = 0
    # How many connections were dropped since somebody last asked.
    dropped: int = 0

    def add(self, reader: Hashable, connection: UnreadConnection, size: int) -> None:
        """Count an answer that is waiting for its reader; drops others where it is one too many.

        Never the one that was just written: however large, an answer alone can be read.
        """
        self._by_reader.setdefault(reader, {})[connection] = size
        self._sizes[reader] = self._sizes.get(reader, 0) + size
        self.total += size
        if not self.limit:
            return
        while self._sizes[reader] > self.limit // SHARE and self._drop_oldest(reader, connection):
            pass
        while self.total > self.limit:
            # From whoever holds most: a crowd of slow readers is no reason to cut a modest one.
            # This reader counts only if it holds more than the answer that is spared.
            others = [each for each, held in self._by_reader.items() if each != reader or len(held) > 1]
            if not others:
                return
            self._drop_oldest(max(others, key=lambda each: self._sizes[each]), connection)

    def remove(self, reader: Hashable, connection: UnreadConnection) -> None:
        """Forget an answer: it was taken, or its connection is gone."""
        size = self._by_reader.get(reader, {}).pop(connection, 0)
        self.total -= size
        self._sizes[reader] = self._sizes.get(reader, 0) - size
        if not self._by_reader.get(reader):
            self._by_reader.pop(reader, None)
            self._sizes.pop(reader, None)

    def _drop_oldest(self, reader: Hashable, spared: UnreadConnection) -> bool:
        oldest = next((each for each in self._by_reader[reader] if each is not spared), None)
        if oldest is None:
            return False
        self.remove(reader, oldest)
        self.dropped += 1
        oldest.drop()
        return True


class ServerState(Struct, eq=False):
    """What the connections of a server share; a `limit` of 0 is none."""

    answer: Callable[[Exchange], Coroutine[Any, Any, None]]
    write_limit_s: float
    limit: int = 0
    # Hears of each connection that was one too many.
    crowded: Callable[[], None] | None = None
    unread: UnreadAnswers = field(default_factory=UnreadAnswers)
    clock: Callable[[], int] = now_ms
    # Every connection that was let in, and the requests in work; uvicorn's WebSocket knows them by these
    # names, and the header of the date by the third.
    connections: set[OpenConnection] = set()
    tasks: set[asyncio.Task[None]] = set()
    default_headers: list[tuple[bytes, bytes]] = []
    now: float = 0.0
    date: bytes = b""
    draining: bool = False
    leaving: int = 0
    # Makes the protocol of a connection that becomes a WebSocket; None where nobody takes any.
    websocket: Callable[[], asyncio.Protocol] | None = None
    _turned_away: int = 0

    def enter(self, connection: OpenConnection, transport: asyncio.Transport) -> bool:
        """Let a connection in; one too many is told to come again."""
        if self.limit and len(self.connections) >= self.limit:
            self._turned_away += 1
            if self.crowded is not None:
                self.crowded()
            transport.set_protocol(_Leaving(self, transport))
            return False
        self.connections.add(connection)
        return True

    def drain(self) -> None:
        """The server goes down: every connection ends with the answer it owes, or soon."""
        self.draining = True
        for connection in list(self.connections):
            connection.shutdown()

    def beat(self, now: float) -> None:
        """Once a second: a new date, and who has been silent for too long."""
        self.now = now
        # Not by strftime: its names follow the locale.
        date = formatdate(self.clock() / 1000, usegmt=True).encode()
        self.default_headers = [(b"date", date)]
        self.date = b"date: %b\r\n" % date
        for connection in list(self.connections):
            connection.tick(now)
        if self._turned_away:
            log.warning("connection.refused count=%d limit=%d", self._turned_away, self.limit)
            self._turned_away = 0
        if self.unread.dropped:
            log.warning("reader.dropped count=%d held=%d", self.unread.dropped, self.unread.total)
            self.unread.dropped = 0


class _Leaving(asyncio.Protocol):
    """A connection that was one too many: it hears so, and nothing of it is read."""

    def __init__(self, state: ServerState, transport: asyncio.Transport) -> None:
        self._state = state
        self._timer: asyncio.TimerHandle | None = None
        transport.write(FULL)
        if state.leaving >= LEAVING:
            transport.close()
            return
        state.leaving += 1
        transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LEAVE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._state.leaving -= 1


def fit_connections(limit: int) -> int:
    """Return how many connections this process can serve: `limit`, or what its limit of open files allows.

    Raises the process's own limit of open files as far as the system allows. 0 means no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limit + FILES
    if not limit or soft == resource.RLIM_INFINITY or soft >= needed:
        return limit
    more = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        soft = more
    if soft >= needed:
        return limit
    return max(1, soft - FILES)


def report_connections(limit: int, fits: int) -> None:
    """Log the number of connections that fit; quietly if it is at least half of the configured limit."""
    if fits != limit:
        level = logging.DEBUG if fits * 2 >= limit else logging.WARNING
        log.log(level, "connection.limit configured=%d fits=%d fix=ulimit", limit, fits)
