"""A webhook on this machine for as long as a check lasts: takes notifications and keeps them."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

from msgspec import Struct

from trunkline.clock import random_bits

_LIMIT = 1 << 20
_READ_S = 5.0
_HEAD = b"HTTP/1.1 %d %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ReceivedNotification(Struct, frozen=True):
    """The headers and body of a notification as they came; header names in lower case."""

    headers: dict[str, str]
    body: bytes


class WebhookListener:
    """Listens at a port of its own. `host` is the name under which the agent reaches this machine."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.token = f"{random_bits(128):032x}"
        self.received: list[ReceivedNotification] = []
        self.url = ""
        self._path = f"/doctor/{random_bits(64):016x}"
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen on loopback, or on all addresses if the agent comes from elsewhere."""
        local = self.host in ("127.0.0.1", "localhost", "::1")
        where = ("::1" if self.host == "::1" else "127.0.0.1") if local else None
        self._server = await asyncio.start_server(self._serve, where, 0, limit=_LIMIT)
        port = self._server.sockets[0].getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"http://{host}:{port}{self._path}"

    async def wait_for(self, wanted: Callable[[ReceivedNotification], bool], timeout_s: float) -> None:
        """Wait until a notification like this has come, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not any(map(wanted, self.received)):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                status = await self._read(reader)
                writer.write(_HEAD % (status, b"OK" if status == 200 else b"Not here"))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            # A stranger, or an agent that left: there is nothing to answer.
            pass
        finally:
            writer.close()

    async def _read(self, reader: StreamReader) -> int:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
        }
        size = int(headers.get("content-length") or 0)
        body = await reader.readexactly(min(size, _LIMIT))
        # The path is this examination's secret: whoever else posts here is nobody's agent.
        if request.split(" ")[:2] != ["POST", self._path]:
            return 404
        self.received.append(ReceivedNotification(headers, body))
        self._arrived.set()
        return 200
