"""WebSockets of `trunkline serve`: uvicorn's protocol takes over a connection once its head asks for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState as UvicornState

from trunkline.http.connection import MALFORMED
from trunkline.http.connections import ServerState
from trunkline.http.mounts import App

# Its own lines name the whole target, and a query may hold what is nobody's business.
_quiet = logging.getLogger("trunkline.websocket")
_quiet.setLevel(logging.ERROR)
_PROTOCOL_ERROR = 1002

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

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; the first of them are its head, as a whole."""
        super().data_received(data)
        if not self.handshake_initiated:
            # The library does not take this head, says nothing, and would keep the connection for ever.
            self._refuse()

    def handle_parser_exception(self) -> None:
        """Close a connection that breaks the protocol."""
        if self.conn.close_sent is None:
            # It did so before it was let in; uvicorn would fail loudly, for every stranger who tries.
            self._refuse()
        else:
            super().handle_parser_exception()

    def _refuse(self) -> None:
        self.disconnected = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": _PROTOCOL_ERROR})
        if not self.handshake_complete and not self.transport.is_closing():
            self.transport.write(MALFORMED)
        self.transport.close()

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
