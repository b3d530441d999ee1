"""Checks and reads webhooks: size, signature, age, token, body; and serves them as an ASGI application.

No token and no body is ever logged.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from trunkline.clock import now_ms
from trunkline.errors import Misuse, Refused, Unauthenticated
from trunkline.http.asgi import AsgiExchange, Receive, Scope, Send
from trunkline.http.exchange import Disconnected, too_large
from trunkline.net import webhook_signature
from trunkline.webhook.notification import Notification, RecentNotifications, key_of, read_notification
from trunkline.wire.codes import code_of
from trunkline.wire.spellings import plain_state

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of a host."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(AsgiExchange(scope, receive, send))
        else:
            await send({"type": "websocket.close"})

    async def _serve(self, exchange: AsgiExchange) -> None:
        if exchange.method != "POST":
            told = b'{"error":"webhooks are sent by POST"}'
            await exchange.respond(405, told, headers=[(b"allow", b"POST")])
            return
        headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in exchange.headers.items()}
        try:
            if not headers.get("content-length", "0").isdecimal():
                raise too_large(self._body_limit)
            notification = self._read(headers, await exchange.body(self._body_limit, BODY_S))
        except Disconnected:
            return
        except Refused as refused:
            status = code_of(refused).http
            log.info("push.refused status=%d reason=%s", status, refused.details.get("reason", "body"))
            more = [(b"www-authenticate", b"Bearer")] if status == 401 else []
            await exchange.respond(status, msgspec.json.encode({"error": refused.message}), headers=more)
        except Exception:
            log.exception("push.failed cause=tokens")
            await exchange.respond(500, _FAILED)
        else:
            await exchange.respond(*await self._tell(notification))

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


async def _lifespan(receive: Receive, send: Send) -> None:
    """There is nothing to start and nothing to end, but a host may ask."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


# A JWKS document as bytes, as text or decoded; or a text `whpk_…` or `whsec_…`.
Key = bytes | str | Mapping[str, Any]
# The tokens themselves, or a function from a task's id to its token.
Tokens = Iterable[str] | Callable[[str], str | None]

_WINDOW_S = 600.0
_TOKEN = "x-a2a-notification-token"


class Receiver:
    """Receives push notifications: by `receive`, or as an ASGI application by `asgi`.

    `tokens` are those given when the push configs were set; if there are any, one must come along. `keys`
    are the sender's; if there are any, one of them must have signed.

    Raises:
        Misuse: there are neither tokens nor keys, or one of them cannot be read.
    """

    def __init__(
        self,
        *,
        tokens: Tokens = (),
        keys: Key | Iterable[Key] = (),
        tolerance_s: float = webhook_signature.TOLERANCE_S,
        body_limit: int = 1 << 20,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._tokens = tokens if callable(tokens) else _digests(tokens)
        self._keys = _keys(keys)
        self._tolerance_s = tolerance_s
        self._body_limit = body_limit
        self._clock = clock
        # A signature is good from one tolerance before its time to one after it.
        self._seen = RecentNotifications(max(_WINDOW_S, 2 * tolerance_s), clock)
        if not self._tokens and not self._keys:
            raise Misuse("a receiver without tokens and keys would believe anybody: give it tokens or keys")

    def receive(self, headers: Mapping[str, str], body: bytes) -> Notification:
        """The notification in a request; `repeated` says that it was received before.

        Raises:
            Unauthenticated: the signature or the token is missing, wrong or too old.
            TooLarge: the body is over the limit.
            ParseError: the body is not JSON.
            InvalidParams: the body is no notification.
        """
        notification = self._read(headers, body)
        return notification if self._seen.add(notification) else replace(notification, repeated=True)

    def forget(self, notification: Notification) -> None:
        """Take it as not received, because acting on it failed: the sender's next attempt is the first."""
        self._seen.discard(notification)

    def trust(self, keys: Key | Iterable[Key]) -> None:
        """Believe these keys from now on, and no others; for a JWKS document that has changed.

        Raises:
            Misuse: there is none, or one cannot be read; those before stay.
        """
        found = _keys(keys)
        if not found:
            raise Misuse("give at least one key; without any, nothing would have to be signed")
        self._keys = found

    def asgi(self, listener: Listener) -> WebhookEndpoint:
        """An ASGI application that calls the listener once for each notification.

        It answers 200 when the listener has returned. If the listener raises it answers 500, and the next
        attempt of the sender counts as the first.
        """
        return WebhookEndpoint(self._read, listener, self._seen, self._body_limit)

    def _read(self, headers: Mapping[str, str], body: bytes) -> Notification:
        if len(body) > self._body_limit:
            raise too_large(self._body_limit)
        named = {name.lower(): text for name, text in headers.items()}
        if self._keys:
            webhook_signature.verify(named, body, self._keys, self._clock() / 1000, self._tolerance_s)
        tokens = self._tokens
        given = _given(named) if tokens else []
        if not callable(tokens):
            # Nothing of a stranger's body is read.
            _check(given, tokens)
            return read_notification(body, named.get(webhook_signature.ID, ""))
        notification = read_notification(body, named.get(webhook_signature.ID, ""))
        expected = tokens(notification.task_id)
        digest = _digest(expected or _ANYTHING)
        _check(given, [digest if expected else _NOBODY])
        return notification


def _keys(keys: Key | Iterable[Key]) -> list[webhook_signature.CheckingKey]:
    one = isinstance(keys, bytes | str | Mapping)
    several = [cast("Key", keys)] if one else keys
    found: list[webhook_signature.CheckingKey] = []
    for key in several:
        if isinstance(key, str) and not key.lstrip().startswith("{"):
            found.append(webhook_signature.checking_key(key))
        else:
            found += webhook_signature.jwks_keys(key)
    return found


def _digests(tokens: Iterable[str]) -> list[bytes]:
    # A text is a series of texts too, each of one letter.
    if isinstance(tokens, str):
        raise Misuse("tokens is a list of tokens, or a function from a task's id to its token")
    found = list(tokens)
    if not all(found):
        raise Misuse("a token must not be empty")
    return [_digest(token) for token in found]


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()


# The digest of no token at all: for a task that nobody knows, as much is done as for any other.
_NOBODY = bytes(32)
_ANYTHING = "x" * 32


def _given(named: Mapping[str, str]) -> list[bytes]:
    scheme, _, bearer = named.get("authorization", "").partition(" ")
    sent = [bearer.strip() if scheme.lower() == "bearer" else "", named.get(_TOKEN, "")]
    found = [_digest(token) for token in sent if token]
    if not found:
        raise Unauthenticated(
            "no token: send it as a bearer token or as X-A2A-Notification-Token", reason="missing"
        )
    return found


def _check(given: list[bytes], known: list[bytes]) -> None:
    # All pairs are compared, so that time tells nothing about which was close.
    if known and not any([hmac.compare_digest(one, other) for one in given for other in known]):
        raise Unauthenticated("the token is not known here", reason="token")
