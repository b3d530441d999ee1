"""The carrier over sockets: HTTP/1.1 with connections that are kept, to where the guard lets it go.

It unpacks nothing, follows nothing, knows no cookies and no proxies, and never sends anything twice but what
may be sent twice: a safe request on a kept connection that turned out to be closed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from functools import lru_cache

import httpx2

from trunkline.errors import Misuse, TimedOut, Unreachable
from trunkline.net.connect import CONNECT_S, distrusted, reach
from trunkline.net.connection import ClientConnection, Received
from trunkline.net.egress import Egress, Target, target
from trunkline.net.http import Headers, HttpRequest
from trunkline.net.pool import IDLE_S, ConnectionPool

log = logging.getLogger("trunkline.net")
# Lines to one origin: so many are shared by short calls, and so many there may be when long ones hold them.
LINES = 64
MOST_LINES = 1000
# URLs whose way is remembered; those of tasks differ from each other without end.
WAYS = 1024
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
_ENTERED: tuple[tuple[str, bytes], ...] = (
    ("user-agent", b"user-agent: trunkline\r\n"),
    # What is sent packed would have to be unpacked, and a small answer can unpack to any size.
    ("accept-encoding", b"accept-encoding: identity\r\n"),
)


class SocketHttpClient:
    """Carries requests; see `net.carrier`. At most `lines` connections to one origin at a time."""

    def __init__(
        self,
        egress: Egress,
        *,
        connect_s: float = CONNECT_S,
        tls: ssl.SSLContext | None = None,
        verify: bool = True,
        lines: int = MOST_LINES,
    ) -> None:
        self._egress = egress
        self._connect_s = connect_s
        self._tls = tls
        self._verify = verify
        self._limit = lines
        self._lanes: dict[str, ConnectionPool] = {}
        self._ways: dict[str, tuple[Target, ConnectionPool]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        # Whose lines these are.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, request: HttpRequest) -> Received:
        """See `Carrier`."""
        if self._loop is not asyncio.get_running_loop():
            self._move()
        at, lane = self._ways.get(request.url) or self._way(request.url)
        head = _head(at, request)
        await lane.enter()
        line = self._taken(lane)
        if line is None:
            line = await self._dialled(lane)
        elif request.method in _SAFE:
            try:
                return await _asked(line, head, request)
            except Unreachable:
                if line.spoke:
                    raise
            # It was closed while nobody used it, and so were the others, most likely.
            lane.drop()
            await lane.enter()
            line = await self._dialled(lane)
        return await _asked(line, head, request)

    async def close(self) -> None:
        """See `Carrier`. Whoever still waits for an answer hears that there will be none."""
        self._closed = True
        self._move()
        if self._sweeping is not None:
            self._sweeping.cancel()
        lines = [line for lane in self._lanes.values() for line in lane.lines]
        for line in lines:
            line.abort()
        await asyncio.gather(*[line.gone for line in lines])
        self._lanes.clear()
        self._ways.clear()

    def _move(self) -> None:
        """Into the event loop that runs now. The lines of one that is closed are dead."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise Misuse("this client is used in another event loop; make one for each, or a SyncClient")
            self._lanes.clear()
            self._ways.clear()
            self._sweeping = None
        self._loop = loop

    def _way(self, url: str) -> tuple[Target, ConnectionPool]:
        at = target(url)
        if len(self._ways) >= WAYS:
            self._ways.clear()
            self._lanes = {name: lane for name, lane in self._lanes.items() if not lane.is_unused}
        lane = self._lanes.get(at.lane)
        if lane is None:
            lane = self._lanes[at.lane] = ConnectionPool(
                at, min(LINES, self._limit), self._rest, most=self._limit
            )
        self._ways[url] = at, lane
        return at, lane

    def _taken(self, lane: ConnectionPool) -> ClientConnection | None:
        if self._closed:
            lane.leave()
            raise Misuse("this carrier is closed; make another")
        return lane.take()

    async def _dialled(self, lane: ConnectionPool) -> ClientConnection:
        """A new line; the permit to have it is given back where there is none."""
        try:
            line = await self._dial(lane)
            if self._closed:
                line.abort()
                raise Misuse("this carrier is closed; make another")
        except BaseException:
            lane.leave()
            raise
        return line

    async def _dial(self, lane: ConnectionPool) -> ClientConnection:
        at = lane.at
        if at.scheme == "https" and self._tls is None:
            # It reads all the certificates of the machine.
            self._tls = await asyncio.to_thread(_context, self._verify)
            if not self._verify:
                log.warning("tls.unverified host=%a", at.host)
        # A name may end with a dot, a certificate's never does.
        tls, name = (self._tls, at.host.rstrip(".")) if at.scheme == "https" else (None, None)
        loop = asyncio.get_running_loop()

        async def dial(address: str) -> ClientConnection:
            try:
                _, line = await loop.create_connection(
                    lambda: ClientConnection(lane), address, at.port, ssl=tls, server_hostname=name
                )
            except ssl.SSLError as error:
                raise distrusted(at.host, error) from error
            return line

        try:
            async with asyncio.timeout(self._connect_s):
                addresses = await self._egress.addresses(at.host, at.port)
                return await reach(addresses, dial, self._connect_s)
        except TimeoutError as error:
            message = f"{at.host}:{at.port}: no connection within {self._connect_s:g} seconds"
            raise TimedOut(message, reason="connect") from error
        except OSError as error:
            raise Unreachable(f"{at.host}:{at.port}: nobody answers there", reason="connect") from error

    def _rest(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        for lane in self._lanes.values():
            lane.sweep()
        if any(lane.idle for lane in self._lanes.values()):
            self._rest()


async def _asked(line: ClientConnection, head: bytes, request: HttpRequest) -> Received:
    waiter = line.ask(head, request.body, request.method == "HEAD")
    try:
        return await waiter
    except BaseException:
        line.give_up(waiter)
        raise


def _head(at: Target, request: HttpRequest) -> bytes:
    names, lines = _fields(request.headers)
    own = [line for name, line in _ENTERED if name not in names]
    if "host" not in names:
        own.append(b"host: %b\r\n" % at.authority)
    if request.body is not None:
        own.append(b"content-length: %d\r\n" % len(request.body))
    elif request.method not in _SAFE:
        own.append(b"content-length: 0\r\n")
    method = _word(request.method).encode()
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, at.path, b"".join(own), lines)


def _fields(headers: Headers) -> tuple[Sequence[str], bytes]:
    names = [_name(name) for name, _ in headers]
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    count = len(names)
    if lines.count("\n") != count or lines.count("\r") != count or "\0" in lines:
        # Not which: it may be a credential.
        raise Unreachable("a header's value holds a line break; HTTP has no place for it", reason="protocol")
    try:
        return names, lines.encode()
    except UnicodeEncodeError:
        # Not with its cause, which holds all of them.
        raise Unreachable(
            "a header's value is no text; HTTP has no place for it", reason="protocol"
        ) from None


@lru_cache(maxsize=512)
def _name(name: str) -> str:
    lower = _word(name).lower()
    if lower in _OURS:
        raise Unreachable(f"the header {lower} is the carrier's own", reason="protocol")
    return lower


@lru_cache(maxsize=512)
def _word(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise Unreachable("a method or the name of a header holds what HTTP cannot", reason="protocol")
    return text


@lru_cache(maxsize=2)
def _context(verify: bool) -> ssl.SSLContext:
    return httpx2.create_ssl_context(verify=verify)
