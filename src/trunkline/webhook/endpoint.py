"""The ASGI side of a receiver: one request, one notification, one call of the listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from trunkline.errors import InvalidRequest, Refused, TooLarge
from trunkline.webhook.notification import Notification, RecentNotifications, key_of
from trunkline.wire.codes import code_of
from trunkline.wire.spellings import plain_state

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
Listener = Callable[[Notification], Awaitable[None]]
Read = Callable[[Mapping[str, str], bytes], Notification]

# How long a body may take, and how long a second delivery waits for the first one's end.
BODY_S = 30.0
TWIN_S = 10.0
_DONE = b"{}"
_FAILED = b'{"error":"the notification could not be handled; send it again"}'
_BUSY = b'{"error":"the same notification is being handled; send it again"}'

log = logging.getLogger("trunkline.webhook")


class WebhookEndpoint:
    """An ASGI application for webhooks; it takes any path, so mount it where the sender posts."""

    def __init__(self, read: Read, listener: Listener, seen: RecentNotifications, body_limit: int) -> None:
        self._read = read
        self._listener = listener
        self._seen = seen
        self._body_limit = body_limit
        self._running: dict[bytes, asyncio.Future[bool]] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request of a host."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]}
        if scope["method"] != "POST":
            more = [(b"allow", b"POST"), *_closing(scope)]
            await _respond(send, 405, b'{"error":"webhooks are sent by POST"}', more)
            return
        try:
            body = await _body(headers, receive, self._body_limit)
            if body is None:
                return
            notification = self._read(headers, body)
        except Refused as refused:
            status = code_of(refused).http
            log.info("push.refused status=%d reason=%s", status, refused.details.get("reason", "body"))
            more = [(b"www-authenticate", b"Bearer")] if status == 401 else []
            if isinstance(refused, TooLarge | InvalidRequest):
                more = _closing(scope)
            await _respond(send, status, msgspec.json.encode({"error": refused.message}), more)
        except Exception:
            log.exception("push.failed cause=tokens")
            await _respond(send, 500, _FAILED)
        else:
            await _respond(send, *await self._tell(notification))

    async def _tell(self, notification: Notification) -> tuple[int, bytes]:
        if notification in self._seen:
            log.info("push.repeated webhook=%a task=%a", notification.id, notification.task_id)
            return 200, _DONE
        key = key_of(notification)
        twin = self._running.get(key)
        if twin is not None:
            # A sender that tired of waiting: what it hears now must be true of the delivery it gave up.
            await asyncio.wait([twin], timeout=TWIN_S)
            if not twin.done():
                return 503, _BUSY
            return (200, _DONE) if twin.result() else (500, _FAILED)
        ended = asyncio.get_running_loop().create_future()
        if key:
            self._running[key] = ended
        heard = False
        try:
            heard = await self._call(notification)
        finally:
            self._running.pop(key, None)
            ended.set_result(heard)
        return (200, _DONE) if heard else (500, _FAILED)

    async def _call(self, notification: Notification) -> bool:
        try:
            await self._listener(notification)
        except Exception:
            log.exception("push.failed webhook=%a task=%a", notification.id, notification.task_id)
            return False
        self._seen.add(notification)
        state = "" if notification.state is None else plain_state(notification.state)
        log.info("push.received webhook=%a task=%a state=%s", notification.id, notification.task_id, state)
        return True


async def _body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the sender left."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 18 or int(length) > limit:
        raise TooLarge(f"the body may have {limit} bytes at the most")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                piece: bytes = message.get("body", b"")
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise TooLarge(f"the body may have {limit} bytes at the most")
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        raise InvalidRequest(f"the body did not arrive within {BODY_S:g} s") from None


def _closing(scope: Message) -> list[tuple[bytes, bytes]]:
    """Else the server would go on taking in a body that nobody reads."""
    return [(b"connection", b"close")] if scope.get("http_version", "1.1") < "2" else []


async def _lifespan(receive: Receive, send: Send) -> None:
    """There is nothing to start and nothing to end, but a host may ask."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def _respond(send: Send, status: int, body: bytes, more: Headers = ()) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
