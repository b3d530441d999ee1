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
