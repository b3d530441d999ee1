"""Targets to call: a small HTTP server in the same event loop, and names that lead to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from msgspec import Struct

from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Kind: plain\r\n\r\nok"


class Call(Struct):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes
    peer: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def path(self) -> str:
        return self.line.split()[1]


Respond = Callable[[Call], Awaitable[bytes]]


class Site(Struct):
    """A running target."""

    port: int
    calls: list[Call]

    def url(self, path: str = "/", *, host: str = "hooks.example", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


async def plain(call: Call) -> bytes:
    return OK


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port where `serve` has every connection to itself; all of them are closed at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast(asyncio.Task[None], asyncio.current_task()))
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(5):  # those that have just been accepted
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def site(respond: Respond = plain, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """A target that answers every request with what `respond` gives; nothing closes the connection."""
    calls: list[Call] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            peer = writer.get_extra_info("peername")[1]
            call = Call(head[0], headers, body, peer, reader, writer)
            calls.append(call)
            writer.write(await respond(call))
            await writer.drain()

    async with listening(serve, tls) as port:
        yield Site(port, calls)


class Wire(asyncio.Transport):
    """A transport without a network: each request is answered with the next of these texts."""

    def __init__(self, connection: asyncio.Protocol, answers: list[bytes]) -> None:
        self._near, self._far = socket.socketpair()
        super().__init__({"socket": self._near})
        self._connection = connection
        self._answers = answers

    def write(self, data: bytes | bytearray | memoryview) -> None:
        asyncio.get_running_loop().call_soon(self._connection.data_received, self._answers.pop(0))

    def is_closing(self) -> bool:
        return self._near.fileno() < 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        if not self.is_closing():
            self._near.close()
            self._far.close()
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


def names(**known: Sequence[str]) -> Callable[[str, int], Coroutine[Any, Any, Sequence[str]]]:
    """A resolver that knows numbers, these names (dots as underscores) and `*.example`, and nothing else."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if (key := host.rstrip(".").replace(".", "_")) in known:
            return known[key]
        if host.rstrip(".").endswith(".example"):
            return ["127.0.0.1"]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [str(address[0]) for *_, address in found]

    return resolve


@asynccontextmanager
async def fetching(**options: Any) -> AsyncIterator[Fetcher]:
    """A client that may call this machine, and knows the names of `names()`."""
    egress = options.pop("egress", None) or Egress(loopback=True, resolver=names())
    client = Fetcher(egress, **options)
    try:
        yield client
    finally:
        await client.close()
