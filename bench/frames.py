"""Readers of event streams that keep the moment at which every frame came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

from bench.generator import HOST, Endpoint

DATA = b"data:"


class Reader(asyncio.Protocol):
    """One subscriber. `frames` has the moment in nanoseconds and the bytes of each whole event."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.lost = False
        self._rest = b""
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is sent before `subscribe`."""
        self._transport: Any = transport

    def subscribe(self, request: bytes) -> None:
        """Ask for the stream."""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Cut it into events; what is not an event (the head, keep-alives) is left out."""
        now = monotonic_ns()
        *whole, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        self.frames += [(now, frame) for frame in whole if DATA in frame]
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is over."""
        self.lost = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def until(self, mark: bytes, limit: float = 30.0) -> tuple[int, bytes]:
        """The first event that holds the mark, waited for.

        Raises:
            TimeoutError: it did not come.
            ConnectionError: the stream ended without it.
        """
        seen = 0
        async with asyncio.timeout(limit):
            while True:
                for found in self.frames[seen:]:
                    if mark in found[1]:
                        return found
                seen = len(self.frames)
                if self.lost:
                    raise ConnectionError(f"the stream ended without {mark!r}")
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def close(self) -> None:
        """Drop the connection."""
        self._transport.abort()


async def subscribe(endpoint: Endpoint, task_ids: Sequence[str]) -> list[Reader]:
    """A subscriber for each task, past its first event."""
    readers: list[Reader] = []
    for task_id in task_ids:
        loop = asyncio.get_running_loop()
        _, reader = await loop.create_connection(Reader, HOST, endpoint.port)
        reader.subscribe(endpoint.subscribe(task_id)())
        readers.append(reader)
    for reader in readers:
        await reader.until(DATA)
    return readers
