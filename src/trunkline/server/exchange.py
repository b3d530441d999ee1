"""One HTTP request and its answer, on bare ASGI: nothing on the hot path that need not be there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from trunkline.errors import ContentTypeNotSupported, InvalidParams, InvalidRequest, TooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
EVENTS = b"text/event-stream"


class Disconnected(Exception):  # noqa: N818 - not an error: the caller went away
    """The caller left before its request was whole."""


class Exchange:
    """A request as the server reads it; `path` is relative to the mount."""

    __slots__ = ("base", "headers", "method", "path", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope["method"]
        path: str = scope["path"]
        base: str = scope.get("root_path", "")
        self.base = base
        self.path = path[len(base) :] if base and path.startswith(base) else path

    def query(self) -> dict[str, str]:
        """The query string; the last of several values counts.

        Raises:
            InvalidParams: it is not UTF-8, or has too many members.
        """
        raw: bytes = self.scope.get("query_string", b"")
        if not raw:
            return {}
        try:
            return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64))
        except ValueError:
            raise InvalidParams("the query string cannot be read", field="query") from None

    def text(self, header: bytes) -> str | None:
        """A header's text, if it is there."""
        value = self.headers.get(header)
        return None if value is None else value.decode("latin-1")

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body.

        Raises:
            TooLarge: it is over the limit; the rest is not read.
            ContentTypeNotSupported: it is compressed.
            InvalidRequest: it did not arrive in time.
            Disconnected: the caller left.
        """
        headers = self.headers
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise ContentTypeNotSupported("send the body uncompressed", field="Content-Encoding")
        length = headers.get(b"content-length")
        if length is not None and (len(length) > 18 or int(length) > limit):
            raise TooLarge(f"the body may have {limit} bytes at the most")
        message = await self.receive()
        if not message.get("more_body") and message["type"] == "http.request":
            return self._within(message.get("body", b""), limit)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._rest(message, limit)
        except TimeoutError:
            raise InvalidRequest(f"the body did not arrive within {timeout_s:g} s") from None

    async def _rest(self, message: MutableMapping[str, Any], limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise Disconnected
            piece: bytes = message.get("body", b"")
            size += len(piece)
            pieces.append(piece)
            if size > limit:
                raise TooLarge(f"the body may have {limit} bytes at the most")
            if not message.get("more_body"):
                return b"".join(pieces)
            message = await self.receive()

    def _within(self, body: bytes, limit: int) -> bytes:
        if len(body) > limit:
            raise TooLarge(f"the body may have {limit} bytes at the most")
        return body

    async def respond(self, status: int, body: bytes, media_type: bytes = JSON, headers: Headers = ()) -> None:
        """Send a whole answer."""
        send = self.send
        length = (b"content-length", b"%d" % len(body))
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", media_type), length, *headers] if body else [*headers, length],
            }
        )
        await send({"type": "http.response.body", "body": body})
