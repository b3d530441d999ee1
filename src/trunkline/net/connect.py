"""Connections for the HTTP client, to judged addresses only. Host and SNI stay the name.

Resolving and dialling are one step: what the guard has judged is dialled, and nothing is looked up again.
The limit of time is the caller's, around the whole of it; here each address only gets its share.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar, cast

import httpcore2

from trunkline.errors import Unreachable
from trunkline.net.egress import Egress

CONNECT_S = 5.0
# Of a name with more addresses than this, all are judged and these are dialled.
DIALS = 4
# What a connection takes in before somebody reads it.
BUFFER_BYTES = 64 * 1024
T = TypeVar("T")


class Connection(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection, as the event loop fills it and the HTTP client reads it."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._error: Exception | None = None
        self._ended = False
        self._paused = False
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop is connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES and not self._paused:
            self._paused = True
            self._open.pause_reading()
        _wake(self._arrival)

    def eof_received(self) -> None:
        """Nothing more will come."""
        self._ended = True
        _wake(self._arrival)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._ended = True
        self._error = exc
        _wake(self._arrival)
        _wake(self._room)

    def pause_writing(self) -> None:
        """The other side does not read fast enough."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """It reads again."""
        _wake(self._room)
        self._room = None

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - their seam
        """What has come, at least a byte; empty at the end."""
        while not self._buffer and not self._ended:
            self._arrival = self._loop.create_future()
            await self._arrival
        if not self._buffer and self._error:
            raise httpcore2.ReadError(self._error)
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        if self._paused and not self._ended:
            self._paused = False
            self._open.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - their seam
        """Send, and wait while too much is on its way."""
        if self._ended:
            raise httpcore2.WriteError("the other side has closed the connection")
        self._open.write(buffer)
        if self._room:
            await self._room

    async def aclose(self) -> None:
        """Close at once: whatever was still to be sent or read is of no use to anybody."""
        self._open.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - their seam
    ) -> httpcore2.AsyncNetworkStream:
        """The same connection, in secret.

        Raises:
            Unreachable: the other side is not who it should be.
        """
        # Invariant: nothing that came in the clear is ever read as if it had come in secret.
        if self._buffer or self._ended:
            self._open.abort()
            raise Unreachable(f"{self._host}: speaks or hangs up before TLS begins", reason="tls")
        # A name may end with a dot, a certificate's never does.
        name = (server_hostname or self._host).rstrip(".")
        try:
            self._transport = await self._loop.start_tls(self._open, self, ssl_context, server_hostname=name)
        except BaseException as error:
            self._open.abort()
            if isinstance(error, ssl.SSLError):
                raise distrusted(self._host, error) from error
            if isinstance(error, OSError):
                raise httpcore2.ConnectError(error) from error
            raise
        return self

    def get_extra_info(self, info: str) -> object:
        """What the pool asks: is it secret, and has anything come that nobody asked for."""
        if info == "is_readable":
            return self._ended or bool(self._buffer)
        return self._open.get_extra_info(info)


class Dial(Protocol):
    """Opens a connection to an address."""

    async def __call__(self, host: str, address: str, port: int, /) -> httpcore2.AsyncNetworkStream:
        """The connection; `host` is what the address was found under.

        Raises:
            OSError: nobody is there.
        """
        ...


async def dial(host: str, address: str, port: int) -> httpcore2.AsyncNetworkStream:
    """A plain connection over TCP. An address that is a number is not looked up."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(host), address, port)
    return connection


class Dialler(httpcore2.AsyncNetworkBackend):
    """What the HTTP client calls instead of the network."""

    def __init__(self, egress: Egress, dial: Dial = dial, *, connect_s: float = CONNECT_S) -> None:
        self._egress = egress
        self._dial = dial
        self._connect_s = connect_s

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - their seam
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that answers.

        Raises:
            Unreachable: the name is unknown, leads where nobody may go, or nobody answers there.
        """
        addresses = await self._egress.addresses(host, port)
        try:
            return await reach(addresses, lambda address: self._dial(host, address, port), self._connect_s)
        except OSError as error:
            reason = "timeout" if isinstance(error, TimeoutError) else "connect"
            raise Unreachable(f"{host}:{port}: nobody answers there", reason=reason) from error


async def reach(addresses: Sequence[str], dial: Callable[[str], Awaitable[T]], connect_s: float) -> T:
    """The first of these addresses that answers; each gets its share of the time.

    Raises:
        OSError: none does; what the last one said.
    """
    loop = asyncio.get_running_loop()
    addresses = list(dict.fromkeys(addresses))[:DIALS]
    until = loop.time() + connect_s
    failure = OSError("there is no address")
    for left in range(len(addresses), 0, -1):
        try:
            async with asyncio.timeout((until - loop.time()) / left):
                return await dial(addresses[-left])
        except OSError as error:
            failure = error
    raise failure


def distrusted(host: str, error: ssl.SSLError) -> Unreachable:
    """The other side has no certificate for this name that could be believed, or speaks no TLS."""
    why = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
    return Unreachable(f"{host}: no trusted TLS connection: {why}", reason="tls")


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
