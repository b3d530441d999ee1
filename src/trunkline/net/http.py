"""The seam of whoever calls out: a carrier takes a request to where it goes and brings the reply's head.

`net.caller` carries over sockets, `net.inside` into an ASGI application in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from msgspec import Struct

Headers = tuple[tuple[str, str], ...]


class HttpRequest(Struct, frozen=True):
    """One HTTP request. A body of None is none at all; header names may be in any case."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        # Headers, queries and bodies hold credentials, and a traceback may show any value.
        return f"Request({self.method} {self.url.partition('?')[0]!r}, {len(self.headers)} headers)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("method", self.method), ("url", self.url.partition("?")[0])]


class HttpResponse(Protocol):
    """The head of an answer; its body is still to come. Whoever has one closes it."""

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
        """Done with it, read or not; may be called twice."""
        ...


class HttpClient(Protocol):
    """Takes requests out."""

    async def open(self, request: HttpRequest) -> HttpResponse:
        """The head of the answer, whatever its status. Redirects are answers like others.

        Raises:
            TimedOut: no connection in time (`connect`).
            Unreachable: there was no answer. Its `reason` is `sent` when the request may have been taken: its
                first byte was written, and then the connection broke off or what came was no HTTP. With any
                other reason it was not taken.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...
