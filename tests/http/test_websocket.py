"""A WebSocket whose other end sends and does not read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.transport import Transport, echo, get, run, settle
from trunkline.http.connections import ServerState

websocket = pytest.importorskip("trunkline.http.websocket", exc_type=ImportError)

UPGRADE = get(
    "/",
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Version: 13",
)
PING = b"\x89\x80\x00\x00\x00\x00"
PONG = b"\x8a\x00"


async def accept(_: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await receive()


@pytest.mark.parametrize(
    "sent",
    [
        UPGRADE.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nhello"),
        UPGRADE.replace(
            b"\r\n\r\n", b"".join([b"\r\nx%d: y" % number for number in range(200)]) + b"\r\n\r\n"
        ),
        UPGRADE.replace(b"\r\n\r\n", b"\r\nx: " + b"y" * 20_000 + b"\r\n\r\n"),
        UPGRADE + b"\xff\xff" * 20,
    ],
)
def test_what_breaks_the_protocol_before_it_is_accepted_is_refused(sent: bytes) -> None:
    async def scenario() -> bytes:
        state = ServerState(echo, 7.0)
        connection = websocket.websocket_factory(accept, state, 1024)()
        transport = Transport()
        connection.connection_made(transport)
        connection.data_received(sent)
        await settle()
        connection.connection_lost(None)
        await asyncio.gather(*state.tasks)
        assert transport.is_closing()
        return transport.written

    said = run(scenario)
    assert bytes(said).startswith(b"HTTP/1.1 400 ")


def test_pings_of_one_who_does_not_read_are_not_answered() -> None:
    async def scenario() -> None:
        state = ServerState(echo, 7.0)
        connection = websocket.websocket_factory(accept, state, 1024)()
        transport = Transport()
        connection.connection_made(transport)
        connection.data_received(UPGRADE)
        while b"\r\n\r\n" not in transport.written:
            await settle()
        said = len(transport.written)
        connection.data_received(PING)
        assert transport.written[said:] == PONG
        connection.pause_writing()
        connection.data_received(PING * 1000)
        assert transport.written[said:] == PONG
        connection.resume_writing()
        connection.data_received(PING)
        assert transport.written[said:] == PONG * 2
        connection.connection_lost(None)
        await asyncio.gather(*state.tasks)

    run(scenario)
