"""HTTP as a client sees it: a request, the head of its response, the body that follows, and who sends it.

`net.http_client` sends over sockets, `net.in_process` into an ASGI application in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from msgspec import Struct

from trunkline.errors import TimedOut, Unreachable

Headers = tuple[tuple[str, str], ...]
# What lies here unread before its sender is asked to pause.
UNREAD_BYTES = 256 << 10


class HttpRequest(Struct, frozen=True):
    """One HTTP request. A body of None is none at all; header names may be in any case."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        # Headers, queries and bodies hold credentials, and a traceback may show any value.
        return f"HttpRequest({self.method} {self.url.partition('?')[0]!r}, {len(self.headers)} headers)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("method", self.method), ("url", self.url.partition("?")[0])]


class HttpResponse(Protocol):
    """The head of a response; its body is still to come. Whoever has one closes it."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case; what came twice is joined by commas."""
        ...

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        """The whole body.

        Raises:
            TimedOut: nothing came for `idle_s`.
            Unreachable: it is over the limit (`size`), or the connection broke off (`connect`, `protocol`).
        """
        ...

    def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
        """The body as it comes; ends where the body ends. Raises as `read` does, but for the limit."""
        ...

    async def close(self) -> None:
        """Let go of the response, read or not; may be called twice."""
        ...


class HttpClient(Protocol):
    """Sends requests and gives the heads of their responses."""

    async def open(self, request: HttpRequest) -> HttpResponse:
        """The head of the response, whatever its status. Redirects are responses like others.

        Raises:
            TimedOut: no connection in time (`connect`).
            Unreachable: there was no response. Its `reason` is `sent` when the request may have been taken:
                its first byte was written, and then the connection broke off or what came was no HTTP. With
                any other reason it was not taken.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


class Body:
    """A body on its way: pieces come in at one side and are read at the other, by one reader.

    What has already come is given without a wait, and all of it at once. `name` is the host, for the errors.
    """

    __slots__ = (
        "_error",
        "_idle_s",
        "_loop",
        "_name",
        "_pieces",
        "_room",
        "_size",
        "_timer",
        "_until",
        "_waiter",
        "whole",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, room: Callable[[], None]) -> None:
        self._loop = loop
        self._name = name
        # Called when somebody reads: there is room again.
        self._room = room
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: Unreachable | None = None
        self._waiter: asyncio.Future[None] | None = None
        # One timer for all the waits of a body: making one costs more than the wait itself.
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._idle_s: float | None = None
        # Nothing more will come.
        self.whole = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read, nor will be."""
        return self.whole and not self._pieces

    @property
    def is_read(self) -> bool:
        """Whether all of it has come, and was read."""
        return self.whole and not self._pieces and self._error is None

    def feed(self, piece: bytes) -> bool:
        """Add a piece that has come; true when too much lies here unread."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._waiter is not None:
            self._wake()
        return self._size > UNREAD_BYTES

    def end(self, error: Unreachable | None = None) -> None:
        """Nothing more will come: that was all of it, or this is why not. Only the first end counts."""
        if not self.whole:
            self.whole = True
            self._error = error
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._waiter is not None:
                self._wake()

    def drop(self) -> None:
        """Forget what has come: nobody will read it."""
        self._pieces.clear()
        self._size = 0
        if not self.whole:
            message = f"{self._name}: the answer was closed before it had come"
            self.end(Unreachable(message, reason="protocol"))

    async def read(self, limit: int, idle_s: float | None = None) -> bytes:
        """The whole body, once all of it has come.

        Raises:
            TimedOut: nothing came for `idle_s`.
            Unreachable: it is over the limit, or broke off.
        """
        while not self.whole and self._size <= limit:
            # It may be more than lies here unread at a time.
            self._room()
            await self._wait(idle_s)
        if self._size > limit:
            raise Unreachable(f"{self._name}: the answer is over {limit} bytes", reason="size")
        if self._error is not None:
            raise self._error
        return self._take()

    def chunks(self, idle_s: float | None = None) -> Body:
        """The body, to be iterated: the bytes that have come since, at least one. Raises as `read` does."""
        self._idle_s = idle_s
        return self

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self.whole:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait(self._idle_s)
        if not self.whole:
            self._room()
        return self._take()

    def _take(self) -> bytes:
        pieces = self._pieces
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        return taken

    async def _wait(self, idle_s: float | None) -> None:
        waiter = self._waiter = self._loop.create_future()
        if idle_s is not None:
            self._until = self._loop.time() + idle_s
            if self._timer is None or self._timer.when() > self._until:
                self._arm(idle_s)
        try:
            await waiter
        finally:
            self._waiter = None

    def _arm(self, idle_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._until, self._judge, idle_s)

    def _judge(self, idle_s: float) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._until:
            self._arm(idle_s)
            return
        message = f"{self._name}: nothing came for {idle_s:g} seconds"
        self._waiter.set_exception(TimedOut(message, reason="idle"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
