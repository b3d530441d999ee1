"""A connection without a socket: what it was told to write, and whether it still reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from trunkline.http.connection import ServerConnection
from trunkline.http.connections import ServerState
from trunkline.http.exchange import Exchange

Answer = Callable[[Exchange], Any]
WRITE_LIMIT_S = 7.0


class Transport(asyncio.Transport):
    """Keeps what was written, and whether it was closed."""

    def __init__(self, **extra: Any) -> None:
        super().__init__(extra)
        self.written = b""
        self.closed = False
        self.aborted = False
        self.reading = True
        self.backlog = 100
        self.unsent_limit = 0

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the end"
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.unsent_limit = high or 0

    def get_write_buffer_size(self) -> int:
        return self.backlog


class Line:
    """One connection and its two ends; must be made where a loop runs."""

    def __init__(self, answer: Answer, *, draining: bool = False, **extra: Any) -> None:
        self.state = ServerState(answer, WRITE_LIMIT_S, clock=lambda: 784111777000)
        self.state.draining = draining
        self.state.beat(1000.0)
        self.transport = Transport(**extra)
        self.connection = ServerConnection(self.state)
        self.connection.connection_made(self.transport)

    async def feed(self, *pieces: bytes) -> None:
        """Each piece at once, then some turns of the loop; nothing goes to a side that is closed."""
        for piece in pieces:
            if not self.transport.closed:
                self.connection.data_received(piece)
            await settle()

    @property
    def said(self) -> bytes:
        return self.transport.written

    @property
    def closed(self) -> bool:
        return self.transport.closed

    def lose(self) -> None:
        self.connection.connection_lost(None)


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def run(made: Callable[[], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(60):
            return await made()

    return asyncio.run(within())


async def echo(exchange: Exchange) -> None:
    """Says what was asked for: verb, path and body."""
    body = await exchange.body(1 << 20, 5)
    await exchange.respond(200, b"%b %b %b" % (exchange.method.encode(), exchange.path.encode(), body))


def get(path: str = "/", *headers: bytes, version: bytes = b"1.1", verb: bytes = b"GET") -> bytes:
    lines = [b"%b %b HTTP/%b" % (verb, path.encode(), version), b"Host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def post(body: bytes, *headers: bytes, path: str = "/") -> bytes:
    return get(path, b"Content-Length: %d" % len(body), *headers, verb=b"POST") + body
