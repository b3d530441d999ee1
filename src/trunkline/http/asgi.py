"""The exchange under somebody else's ASGI server, by messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, MutableMapping
from types import coroutine
from typing import Any, cast

from trunkline.http.exchange import (
    JSON,
    Disconnected,
    Headers,
    check_announced,
    is_list,
    too_large,
    too_late,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@coroutine
def _resumed(step: Any, rest: Generator[Any, Any, Any]) -> Generator[Any, Any, MutableMapping[str, Any]]:
    """The rest of a wait that has taken its first step."""
    try:
        while True:
            try:
                sent = yield step
            except BaseException as error:  # noqa: BLE001 - handed on to the one who waits
                step = rest.throw(error)
            else:
                step = rest.send(sent)
    except StopIteration as end:
        return end.value


def _below(scope: Scope) -> str:
    """The path relative to the mount, whether or not a proxy has stripped the prefix of the whole host."""
    path: str = scope["path"]
    base: str = scope["root_path"]
    for prefix in (base, base.removeprefix(scope.get("app_root_path", ""))):
        if f"{path}/".startswith(f"{prefix}/"):
            return path[len(prefix) :] or "/"
    return path


def _lists(given: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    named = {name for name, _ in given if is_list(name)}
    return {name: b",".join([value for each, value in given if each == name]) for name in named}


def _bare(headers: Headers, length: tuple[bytes, bytes]) -> Headers:
    # To HEAD a mounted application may name the length that its answer to GET has.
    return headers if any(name == length[0] for name, _ in headers) else [*headers, length]


class AsgiExchange:
    """An exchange with the server of a host, by messages."""

    __slots__ = (
        "_watcher", "_whole", "also", "base", "headers", "method", "path", "prefix", "query_string",
        "raw_path", "reader", "receive", "scope", "send",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.reader: Hashable = None
        self._whole = False
        self._watcher: asyncio.Task[None] | None = None
        self.also: Headers = ()
        given: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.headers: dict[bytes, bytes] = dict(given)
        if len(self.headers) < len(given):
            self.headers.update(_lists(given))
        self.method: str = scope["method"]
        self.base: str = scope.get("root_path", "")
        self.prefix = ""
        self.path: str = _below(scope) if self.base else scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or b""
        self.query_string: bytes = scope.get("query_string", b"")

    def peer(self) -> str:
        """The address of the caller."""
        client = self.scope.get("client")
        return client[0] if client else ""

    def address(self) -> tuple[str, str, int | None]:
        """Scheme, host and port at which the request came in."""
        host, port = self.scope.get("server") or ("", None)
        # Without a port it is the path of a socket, which is only on this machine.
        return self.scope.get("scheme", "http"), "127.0.0.1" if port is None else host, port

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body."""
        check_announced(self.headers, limit)
        # Nearly every body is there already, and a clock costs more than reading it: only who waits pays.
        waiting = cast("Generator[Any, Any, Any]", self.receive().__await__())
        step: Any = None
        message: MutableMapping[str, Any] = {}
        try:
            step = next(waiting)
        except StopIteration as end:
            message = end.value
            if message["type"] == "http.request" and not message.get("more_body"):
                return self._within(message.get("body", b""), limit)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._rest(message or await _resumed(step, waiting), limit)
        except TimeoutError:
            raise too_late(timeout_s) from None

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
                raise too_large(limit)
            if not message.get("more_body"):
                return self._within(b"".join(pieces), limit)
            message = await self.receive()

    def _within(self, body: bytes, limit: int) -> bytes:
        if len(body) > limit:
            raise too_large(limit)
        self._whole = True
        return body

    def _leaves_body(self) -> bool:
        """Whether the caller announced a body that nobody has read to its end."""
        headers = self.headers
        announced = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        return announced and self.scope.get("http_version", "1.1") < "2"

    async def respond(
        self, status: int, body: bytes, media_type: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Send a whole answer."""
        send = self.send
        length = (b"content-length", b"%d" % len(body))
        if self.also:
            headers = [*headers, *self.also]
        if not self._whole and self._leaves_body():
            # Else the server would go on taking in, and throwing away, whatever the caller likes to send.
            headers = [*headers, (b"connection", b"close")]
        said = [(b"content-type", media_type), length, *headers] if body else _bare(headers, length)
        await send({"type": "http.response.start", "status": status, "headers": said})
        await send({"type": "http.response.body", "body": body})

    async def begin(self, headers: Headers, status: int = 200) -> None:
        """Begin an answer whose length nobody knows yet."""
        headers = [*headers, *self.also] if self.also else headers
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, *, more: bool) -> None:
        """Send a piece of it."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        """Listen for the disconnect; ASGI tells it only to who asks."""
        if self._watcher is not None:
            self._watcher.cancel()
        self._watcher = None if left is None else asyncio.get_running_loop().create_task(self._watch(left))

    async def _watch(self, left: Callable[[], None]) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        left()
