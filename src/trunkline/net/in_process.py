"""An HTTP client into an ASGI application in this process: the same bytes as over a socket, and no socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from trunkline.errors import Misuse, Unreachable
from trunkline.net.egress import HttpTarget, target
from trunkline.net.http import Body, HttpRequest

log = logging.getLogger("trunkline.net")
BASE = "http://localhost"
# How long a request that nobody waits for may take to notice.
LEAVE_S = 1.0

App = Callable[[Any, Any, Any], Awaitable[None]]


class InProcessHttpClient:
    """Sends to one application, which answers at `base` and nowhere else; empty is everywhere.

    The application's lifespan is its owner's. Closing this waits for the requests that still run.
    """

    def __init__(self, app: App, *, base: str = BASE) -> None:
        self._app = app
        self._origin = target(base).origin if base else ""
        if base and target(base).path != "/":
            raise Misuse(f"base is an origin such as {BASE}, without a path")
        self._requests: dict[InProcessResponse, asyncio.Task[None]] = {}

    async def open(self, request: HttpRequest) -> InProcessResponse:
        """See `HttpClient`. What the application raises is `sent`, with its cause."""
        at = target(request.url)
        if self._origin and at.origin != self._origin:
            raise Unreachable(f"{at.host}: only {self._origin} is in this process", reason="connect")
        running = InProcessResponse(at, request)
        self._requests[running] = asyncio.get_running_loop().create_task(self._serve(running))
        try:
            await running.head
        except BaseException:
            running.leave()
            raise
        return running

    async def _serve(self, running: InProcessResponse) -> None:
        try:
            await self._app(running.scope, running.receive, running.send)
            running.finish(None)
        except asyncio.CancelledError as error:
            running.finish(error)
            raise
        except Exception as error:  # noqa: BLE001 - whoever waits is told; if nobody does, the log is
            if not running.finish(error):
                log.error("inside.broke", exc_info=error)
        finally:
            del self._requests[running]

    async def close(self) -> None:
        """Leave every request, and wait until its application has noticed."""
        for running in self._requests:
            running.leave()
        if self._requests:
            _, deaf = await asyncio.wait(self._requests.values(), timeout=LEAVE_S)
            for task in deaf:
                task.cancel()
            await asyncio.gather(*deaf, return_exceptions=True)


class InProcessResponse:
    """A response of the application, from the call of it to its return."""

    def __init__(self, at: HttpTarget, request: HttpRequest) -> None:
        loop = asyncio.get_running_loop()
        self.scope = _scope(at, request)
        self._host = at.host
        # Empty until the application has begun to answer; done when whoever asked may know it.
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head: asyncio.Future[None] = loop.create_future()
        self._room = asyncio.Event()
        self._room.set()
        self._body = Body(loop, self._host, self._room.set)
        self._ended = asyncio.Event()
        self._asked: bytes | None = request.body or b""
        self._left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        """Give the application the request, and then nothing until nobody waits for the answer any longer."""
        if self._asked is not None:
            body, self._asked = self._asked, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Take a message of the application's answer."""
        if self._left.is_set():
            return
        if message["type"] == "http.response.start":
            if self.status:
                raise RuntimeError("http.response.start comes once")
            self.status, self.headers = message["status"], _named(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            await self._add(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not known here")

    async def _add(self, piece: bytes, is_more: bool) -> None:
        if not self.status or self._body.whole:
            raise RuntimeError("http.response.body comes after the start and before the end")
        # As on a socket, the head waits for the first piece.
        if not self.head.done():
            self.head.set_result(None)
        is_full = self._body.feed(bytes(piece)) if piece else False
        if not is_more:
            self._body.end()
            self._left.set()
        elif is_full:
            self._room.clear()
            await self._room.wait()

    def finish(self, error: BaseException | None) -> bool:
        """The application has returned; true if somebody hears of the error."""
        told = not self.head.done() or not self._body.whole
        if not self.head.done():
            why = "the application broke" if error else "the application returned without an answer"
            self.head.set_exception(self._failure(why, "sent", error))
        elif not self._body.whole:
            self._body.end(self._failure("the answer ends too soon", "protocol", error))
        self._left.set()
        self._ended.set()
        return told

    def _failure(self, why: str, reason: str, cause: BaseException | None) -> Unreachable:
        failure = Unreachable(f"{self._host}: {why}", reason=reason)
        failure.__cause__ = cause
        return failure

    def leave(self) -> None:
        """Leave: nobody waits any longer, which to the application is a disconnect."""
        self._left.set()
        self._room.set()
        self.head.cancel()
        self._body.drop()

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        """See `HttpResponse`."""
        return await self._body.read(limit, idle_s)

    def chunks(self, *, idle_s: float | None = None) -> Body:
        """See `HttpResponse`."""
        return self._body.chunks(idle_s)

    async def close(self) -> None:
        """See `HttpResponse`."""
        self.leave()

    async def ended(self) -> None:
        """Wait until the application has returned; it may go on after its answer."""
        await self._ended.wait()


def _scope(at: HttpTarget, request: HttpRequest) -> dict[str, Any]:
    raw_path, _, query = at.path.encode().partition(b"?")
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers]
    if not any(name == b"host" for name, _ in headers):
        headers.insert(0, (b"host", at.authority.encode()))
    if request.body is not None:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": at.scheme,
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": (at.host, at.port),
        "extensions": {},
    }


def _named(raw: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = bytes(raw_name).decode("latin-1").lower(), bytes(raw_value).decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
