"""Thousands of streams in one process: a protocol that keeps places and times, and nothing else."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

_ID = re.compile(rb"(?:^|\n)id: ?(\d+)")
_TICK = re.compile(rb"\bt(\d{13}) ")


class Reader(asyncio.Protocol):
    """One subscription."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self.last_id = 0
        self.opened = False
        self.comments = 0
        self.retry = 0
        self.last_at = 0.0
        self.received = 0
        self.ended = asyncio.get_running_loop().create_future()
        self.clean = False
        self.lags: list[float] = []
        self.on_id: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.received += len(data)
        if not self.opened:
            self.opened = data.startswith(b"HTTP/1.1 200") and b"text/event-stream" in data
        if b"retry:" in data and not self.retry:
            self.retry = int(data.partition(b"retry:")[2].split(b"\n")[0])
        self.comments += data.count(b"\n:") + data.count(b"\r\n:")
        ids = _ID.findall(data)
        if ids:
            self.last_id = int(ids[-1])
            self.last_at = time.monotonic()
            if self.on_id is not None:
                self.on_id()
        self.lags += [now - int(tick) / 1000 for tick in _TICK.findall(data)]
        self.clean = data.endswith(b"0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()


class Crawler:
    """A subscription that is read a byte a second."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._reading = asyncio.create_task(self._crawl())

    async def _crawl(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while await loop.sock_recv(self._line, 1):  # noqa: ASYNC110 - its pace is the point
                await asyncio.sleep(1)

    async def close(self) -> None:
        """Hang up."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._line.close()


async def crawl(port: int, request: bytes) -> Crawler:
    """Open a stream with as small a window as there is."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    line.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(line, ("127.0.0.1", port))
    await loop.sock_sendall(line, request)
    answer = b""
    async with asyncio.timeout(30):
        while len(answer) < 12:
            answer += await loop.sock_recv(line, 12 - len(answer))
    assert answer == b"HTTP/1.1 200", answer
    return Crawler(line)


async def open_all(port: int, requests: list[bytes], *, at_once: int = 200) -> list[Reader]:
    """Open so many streams, some at a time, and wait until each has been answered."""
    readers: list[Reader] = []
    for start in range(0, len(requests), at_once):
        readers += await asyncio.gather(*(_open(port, one) for one in requests[start : start + at_once]))
    return readers


async def _open(port: int, request: bytes) -> Reader:
    loop = asyncio.get_running_loop()
    for _ in range(50):
        try:
            _, reader = await loop.create_connection(lambda: Reader(request), "127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.1)
    else:
        raise ConnectionError(f"nobody listens at {port}")
    deadline = time.monotonic() + 30
    while not reader.opened and not reader.ended.done() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return reader
