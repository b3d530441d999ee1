"""Other ASGI applications behind the same server: which prefix is whose, and what each of their routes takes.

A mounted application is handed what has been let in and read: it never sees a request of a path that it has
not registered, nor a body that is larger than that path takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct, field

from trunkline.clock import wait_event
from trunkline.errors import Misuse, Refused, RouteNotFound
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import Exchange, Headers

App = Callable[[Scope, Receive, Send], Awaitable[None]]
# How an application wants refusals told: status, body and media type.
RefusalWriter = Callable[[Refused], tuple[int, bytes, bytes]]
# Whether who was let in still would be.
Lasting = Callable[[], bool]
WEBSOCKET = "WEBSOCKET"
PUBLIC = "public"
WATCH_S = 1.0
_CUT_S = 1.0
_TOO_BIG, _NOT_ALLOWED = 1009, 1008
_SEGMENT = re.compile(r"\.well-known|[A-Za-z0-9_-][A-Za-z0-9._~-]*")
_PATTERN = re.compile(r"([A-Z]+) (/[A-Za-z0-9._~:{}/-]*)")
_VARIABLE = re.compile(r"\{[a-z_]+(\.\.\.)?\}")
# Set by us for every answer, or about the connection, which is ours.
_OURS = frozenset({b"content-length", b"content-type", b"transfer-encoding", b"connection", b"date"})


class Route(Struct, frozen=True):
    """A route of a mounted application, such as `GET /tasks/{id}`, with what it needs and takes.

    `{name}` stands for one segment of the path, `{rest...}` for all that follow, with slashes that may be
    escaped. A method of `WEBSOCKET` is a WebSocket. `scope` is what a caller must have, or `public`;
    `body_limit` is the most bytes of a body or of one message.
    """

    pattern: str
    scope: str
    body_limit: int

    @property
    def takes_slashes(self) -> bool:
        """Whether a part of the path may hold slashes: clients escape those of a name."""
        return "...}" in self.pattern


class _Compiled(Struct, frozen=True):
    method: str
    path: re.Pattern[str]
    route: Route


class Mount:
    """An application and its routes below one prefix."""

    def __init__(
        self, prefix: str, app: App, routes: Sequence[Route], write_refusal: RefusalWriter | None = None
    ) -> None:
        """Take an application; without `write_refusal` it is refused in the words of A2A.

        Raises:
            Misuse: the prefix is none, there are no routes, or one says too little.
        """
        root, *segments = prefix.split("/")
        if root or not segments or not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise Misuse(f"{prefix!r} is no prefix: give one like /files, without a slash at its end")
        if not routes:
            raise Misuse(f"{prefix} is mounted without routes: list them, each with scope and body_limit")
        self.prefix = prefix
        self.app = app
        self.write_refusal = write_refusal
        self.compiled = [_compile(prefix, route) for route in routes]

    def extend(self, routes: Sequence[Route]) -> None:
        """Serve further routes of the application.

        Raises:
            Misuse: one says too little.
        """
        self.compiled += [_compile(self.prefix, route) for route in routes]

    @property
    def scopes(self) -> set[str]:
        """Every scope that one of its routes needs."""
        return {each.route.scope for each in self.compiled}

    def refusal_headers(self, exchange: Exchange, refused: Refused) -> Headers:
        """The headers of a refusal that only this application has."""
        del exchange, refused
        return ()

    def match(self, method: str, path: str) -> Route:
        """The route that takes this method and path.

        Raises:
            RouteNotFound: none does; with `allow` set, not with this method.
        """
        below = path.removeprefix(self.prefix) or "/"
        found = [each for each in self.compiled if each.path.fullmatch(below)]
        verb = "GET" if method == "HEAD" else method
        for each in found:
            if each.method in (method, verb):
                return each.route
        allow = ", ".join(sorted({each.method for each in found} - {WEBSOCKET}))
        raise RouteNotFound(f"this path takes {allow} only" if allow else "no such path here", allow=allow)


def _compile(prefix: str, route: Route) -> _Compiled:
    place = f"{route.pattern!r} at {prefix}"
    found = _PATTERN.fullmatch(route.pattern)
    pieces = _VARIABLE.split(found[2]) if found is not None else []
    if found is None or any("{" in piece or "}" in piece for piece in pieces[::2]):
        raise Misuse(f"{place} is no route; give a method and a path, such as GET /tasks/{{id}}")
    if not route.scope:
        raise Misuse(f"{place} has no scope; name the one that callers need, or say that it is {PUBLIC}")
    if route.body_limit < 0:
        raise Misuse(f"{place} needs a body_limit; 0 takes no body")
    path = re.escape(pieces[0])
    for whole, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        path += (".*" if whole else "[^/]+") + re.escape(piece)
    return _Compiled(found[1], re.compile(path), route)


class Mounts:
    """The mounted applications, and the calls that are open there."""

    def __init__(self) -> None:
        self._mounts: list[Mount] = []
        self.prefixes: tuple[str, ...] = ()
        self._open: set[MountedCall | MountedSocket] = set()
        self._woken = asyncio.Event()

    def add(self, mount: Mount) -> None:
        """Mount an application.

        Raises:
            Misuse: another one is there.
        """
        if any(mount.prefix == other.prefix for other in self._mounts):
            raise Misuse(f"two applications are mounted at {mount.prefix}")
        # The longest first, so that what is mounted below another one is found.
        self._mounts = sorted([*self._mounts, mount], key=lambda one: -len(one.prefix))
        self.prefixes = tuple([one.prefix for one in self._mounts])

    @property
    def websocket_limits(self) -> list[int]:
        """The most bytes of one message, of each WebSocket that is mounted."""
        compiled = [each for mount in self._mounts for each in mount.compiled]
        return [each.route.body_limit for each in compiled if each.method == WEBSOCKET]

    def find(self, path: str) -> Mount | None:
        """The application that is mounted at the prefix of a path."""
        # Most requests are for no mount: one look at all of them says so.
        for mount in self._mounts if path.startswith(self.prefixes) else ():
            if path.startswith(mount.prefix) and (path[len(mount.prefix) :] or "/").startswith("/"):
                return mount
        return None

    @contextlib.contextmanager
    def opened(self, call: MountedCall | MountedSocket) -> Any:
        """Know of a call while it lasts."""
        self._open.add(call)
        try:
            yield
        finally:
            self._open.discard(call)

    async def watch(self) -> None:
        """Each second, cut off whoever would not be let in any more; owned by the host."""
        while True:
            await wait_event(self._woken, WATCH_S)
            self._woken.clear()
            for call in [each for each in self._open if each.lasting is not None and not each.lasting()]:
                call.cut()

    def look(self) -> None:
        """See now who would not be let in any more."""
        self._woken.set()

    def close(self) -> None:
        """The server goes down: whoever streams hears that its caller has left."""
        for call in list(self._open):
            call.end()


class MountedCall(Struct, eq=False):
    """One HTTP request of a mounted application: ASGI messages on its side, our exchange on the other."""

    _exchange: Exchange
    _body: bytes | None
    lasting: Lasting | None
    begun: bool = False
    _start: Scope = {}
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, app: App, scope: Scope) -> None:
        """Have the application answer."""
        self._exchange.on_disconnect(self._left.set)
        try:
            await app(scope, self._receive, self._send)
        except OSError:
            # What `_send` raises to an application whose caller has gone comes back here.
            if not self._left.is_set():
                raise
        finally:
            self._exchange.on_disconnect(None)

    def end(self) -> None:
        """Tell the application that its caller has left, if it streams; a short answer gets there."""
        if self.begun:
            self._left.set()

    def cut(self) -> None:
        """Close the connection: its principal is no longer let in."""
        self._left.set()

    async def _receive(self) -> Scope:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Scope) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} is not known here")
        body, more = bytes(message.get("body", b"")), bool(message.get("more_body", False))
        if self._left.is_set():
            if not body and not more:
                # The caller has closed the connection after the last event: no byte is lost.
                return
            raise ConnectionResetError("the caller has left")
        headers: list[tuple[bytes, bytes]] = [
            (name.lower(), value) for name, value in self._start.get("headers", ())
        ]
        if self.begun:
            await self._exchange.write(body, more=more)
        elif more and self._exchange.method != "HEAD":
            self.begun = True
            kept = [each for each in headers if each[0] not in _OURS or each[0] == b"content-type"]
            await self._exchange.begin(kept, self._start["status"])
            if body:
                await self._exchange.write(body, more=True)
        else:
            await self._whole(body, headers)

    async def _whole(self, body: bytes, headers: Headers) -> None:
        named = dict(headers)
        media_type = named.get(b"content-type", b"application/octet-stream")
        kept = [each for each in headers if each[0] not in _OURS]
        if not body and self._exchange.method == "HEAD":
            # The length is that of the answer which GET would have.
            kept += [(name, named[name]) for name in (b"content-type", b"content-length") if name in named]
        self.begun = True
        await self._exchange.respond(self._start["status"], body, media_type, kept)


class MountedSocket(Struct, eq=False):
    """One WebSocket of a mounted application; each of its messages is bounded."""

    _receive: Receive
    _send: Send
    _limit: int
    lasting: Lasting | None
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    # The next message; whoever gives up waiting for it leaves it to the next who waits.
    _arriving: asyncio.Future[Scope] | None = None

    async def run(self, app: App, scope: Scope) -> None:
        """Have the application talk to its caller."""
        closing = asyncio.ensure_future(self._close_when_cut())
        try:
            await app(scope, self._receive_bounded, self._send_on)
        except OSError:
            if not self._left.is_set():
                raise
        finally:
            if self._arriving is not None:
                self._arriving.cancel()
            if not self._left.is_set():
                closing.cancel()
            await asyncio.wait({closing})

    def end(self) -> None:
        """The server itself closes its WebSockets when it goes down."""

    def cut(self) -> None:
        """Close the connection: its principal is no longer let in. Nobody waits for a slow reader."""
        self._left.set()

    async def _close_when_cut(self) -> None:
        # Beside the application: that may wait for hours, and for something else than its caller.
        await self._left.wait()
        await self._close(_NOT_ALLOWED)

    async def _close(self, code: int) -> None:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            async with asyncio.timeout(_CUT_S):
                await self._send({"type": "websocket.close", "code": code})

    async def _send_on(self, message: Scope) -> None:
        if self._left.is_set():
            raise ConnectionResetError("the caller is no longer let in")
        await self._send(message)

    async def _receive_bounded(self) -> Scope:
        arriving = self._arriving = self._arriving or asyncio.ensure_future(self._receive())
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait((arriving, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
        if self._left.is_set():
            return {"type": "websocket.disconnect", "code": _NOT_ALLOWED}
        self._arriving = None
        message = await arriving
        if message["type"] == "websocket.receive":
            size = len(message.get("bytes") or b"") or len((message.get("text") or "").encode())
            if size > self._limit:
                await self._close(_TOO_BIG)
                self._left.set()
                return {"type": "websocket.disconnect", "code": _TOO_BIG}
        return message


def scope_of(exchange: Exchange, prefix: str) -> Scope:
    """The ASGI scope of a request for what is mounted at a prefix."""
    scheme, host, port = exchange.address()
    peer = exchange.peer()
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": scheme,
        "path": exchange.base + exchange.path,
        "raw_path": exchange.raw_path,
        "query_string": exchange.query_string,
        "root_path": exchange.base + prefix,
        "headers": list(exchange.headers.items()),
        "client": (peer, 0) if peer else None,
        "server": (host, port),
    }
