"""A connection whose head does not end is not read for ever; one whose head does is none the worse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from trunkline.cli.connection import HEAD_LIMIT, Connection


class Transport(asyncio.Transport):
    """Keeps what was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


async def _app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def _fed(*pieces: bytes) -> Transport:
    async def within() -> Transport:
        transport = Transport()
        config = Config(_app, http=Connection, lifespan="off", log_config=None)
        connection = Connection(config, ServerState(), {})
        connection.connection_made(transport)
        for piece in pieces:
            if transport.closed:
                break
            connection.data_received(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        closed = transport.closed
        connection.connection_lost(None)
        assert connection.cycle is None
        transport.closed = closed
        return transport

    return asyncio.run(within())


LONG = b"X-Long: " + b"x" * 30_000 + b"\r\n"


@pytest.mark.parametrize(
    "pieces",
    [[b"GET /", *[b"a" * 16_384] * 9], [b"GET / HTTP/1.1\r\n", *[LONG] * 9], [b"\r\n" * 8192] * 9],
    ids=["target", "headers", "nothing"],
)
def test_a_head_without_end(pieces: list[bytes]) -> None:
    transport = _fed(*pieces)
    assert transport.closed
    assert transport.written.startswith(b"HTTP/1.1 431 ")


def test_a_head_in_small_pieces() -> None:
    transport = _fed(*[bytes([byte]) for byte in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert not transport.closed


def test_many_heads_are_not_one_long_head() -> None:
    half, rest = b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_LIMIT // 4), b"\r\n\r\n"
    transport = _fed(*[half, rest] * 20)
    assert transport.written.count(b"HTTP/1.1 200 ") == 20
    assert not transport.closed


def test_a_body_is_no_head() -> None:
    size = 4 * HEAD_LIMIT
    whole = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size
    transport = _fed(
        whole,
        *[b"x" * 65_536] * (size // 65_536 - 1),
        b"x" * 65_536 + b"GET / HTTP/1.1\r\nHo",
        b"st: x\r\n\r\n",
    )
    assert transport.written.count(b"HTTP/1.1 200 ") == 2
    assert not transport.closed
