"""WebSockets of `trunkline serve`: uvicorn's protocol takes over a connection once its head asks for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState as UvicornState

from trunkline.http.connections import ServerState
from trunkline.http.mounts import App

# Its own lines name the whole target, and a query may hold what is nobody's business.
_quiet = logging.getLogger("trunkline.websocket")
_quiet.setLevel(logging.ERROR)

# As it came with uvicorn 0.52.1: older ones write without end to one who does not read.
if WebSocketsSansIOProtocol.pause_writing is asyncio.BaseProtocol.pause_writing:
    raise ImportError("this uvicorn is too old for WebSockets", name="uvicorn 0.52.1 or newer")


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A connection that speaks WebSocket; a member of the server's connections as any other."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, cast("UvicornState", state), {})
        self.logger = _quiet

    def handle_ping(self) -> None:
        """Answer a ping, unless what was said before is still unread: pings would else fill the memory."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def tick(self, now: float) -> None:
        """Do nothing: pings tell whether the other side is there."""


def websocket_factory(
    application: App, state: ServerState, message_limit: int
) -> Callable[[], WebSocketConnection]:
    """What makes the protocol of a connection that becomes a WebSocket, with messages of so many bytes."""
    config = uvicorn.Config(
        application,
        http=asyncio.Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=message_limit,
    )
    return lambda: WebSocketConnection(config, state)
