"""The ASGI application: knows paths, versions and callers, and hands the rest on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from trunkline import errors
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import Principal
from trunkline.config import Settings
from trunkline.server import rest, rpc
from trunkline.server.calls import Caller, Calls
from trunkline.server.card import Cards
from trunkline.server.exchange import EVENTS, Disconnected, Exchange, Headers, Receive, Scope, Send
from trunkline.server.guard import Guard
from trunkline.server.streams import Plan, Streams
from trunkline.wire import jsonrpc, sse
from trunkline.wire import rest as routes
from trunkline.wire.codes import code_of
from trunkline.wire.jsonrpc import Envelope
from trunkline.wire.versions import Version, negotiate
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
_UNREAD = Envelope()
_BEARER: Headers = [(b"www-authenticate", b"Bearer, ApiKey")]


class Server:
    """Answers every request; whatever is wrong with one has a code, a text and a log line."""

    def __init__(self, calls: Calls, streams: Streams, cards: Cards, settings: Settings, guard: Guard) -> None:
        self._calls = calls
        self._streams = streams
        self._cards = cards
        self._settings = settings
        self._guard = guard
        self._keys = Keyring(settings.keys)
        self._wait = settings.reply == "wait"
        self._fixed: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            "/a2a": self._rpc,
            "/a2a/": self._rpc,
            "/.well-known/agent-card.json": self._card,
            "/.well-known/agent.json": self._card,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        exchange = Exchange(scope, receive, send)
        try:
            await self._fixed.get(exchange.path, self._rest)(exchange)
        except Disconnected:
            log.debug("request.left path=%s", exchange.path)

    async def _card(self, exchange: Exchange) -> None:
        try:
            self._guard.check(exchange.headers)
            await self._cards.answer(exchange)
        except errors.Refused as refused:
            await self._refuse_rest(exchange, refused, Dialect.V1)

    async def _rpc(self, exchange: Exchange) -> None:
        envelope = _UNREAD
        try:
            if exchange.method != "POST":
                raise errors.RouteNotFound("JSON-RPC takes POST only", allow="POST")
            principal = self._admit(exchange)
            rpc.check_media_type(exchange)
            body = await exchange.body(self._settings.body_limit, self._settings.body_timeout)
            envelope = jsonrpc.read_envelope(body)
            if envelope.fault is not None:
                raise envelope.fault
            operation, version = rpc.operation_of(envelope.method, _asked(exchange))
            dialect = Dialect.V1 if version is Version.V1 else Dialect.V03
            caller = self._caller(exchange, principal, dialect, wait=self._wait)
            answer = await rpc.perform(self._calls, operation, envelope, caller)
        except errors.Refused as refused:
            await self._refuse_rpc(exchange, envelope, refused)
            return
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rpc(exchange, envelope, _internal(error))
            return
        if envelope.notification:
            await exchange.respond(204, b"")
        elif isinstance(answer, bytes):
            await exchange.respond(200, jsonrpc.result(envelope.id, answer))
        else:
            await self._streams.serve(exchange, answer, jsonrpc.envelope_parts(envelope.id))

    async def _refuse_rpc(self, exchange: Exchange, envelope: Envelope, refused: errors.Refused) -> None:
        _note(exchange, refused)
        status = rpc.http_status(refused)
        # Also without an id: A2A has no notifications, so whoever left it out should hear what is wrong.
        body = jsonrpc.error(envelope.id, refused)
        if status == 200 and rpc.reads_frames_only(exchange, envelope):
            await exchange.respond(200, sse.frame(None, body), EVENTS)
        else:
            await exchange.respond(status, body, headers=_headers(refused))

    async def _rest(self, exchange: Exchange) -> None:
        dialect = Dialect.V03_PROTO if exchange.path.startswith("/v1/") else Dialect.V03
        try:
            asked = _asked(exchange)
            dialect = Dialect.V1 if asked is Version.V1 else dialect
            principal = self._admit(exchange)
            call = routes.match(exchange.method, exchange.path)
            dialect = rest.dialect_of(call, asked)
            if call.tenant and call.tenant != principal.tenant:
                raise errors.RouteNotFound("no such path here; the card names the interfaces")
            body = await self._body(exchange)
            wait = self._wait and dialect is Dialect.V1
            caller = self._caller(exchange, principal, dialect, wait=wait)
            answer = await rest.perform(self._calls, call, caller, body, exchange.query())
        except errors.Refused as refused:
            # Before 1.0 nobody named a version: who names an unknown one reads the errors of 1.0.
            named = isinstance(refused, errors.VersionNotSupported)
            await self._refuse_rest(exchange, refused, Dialect.V1 if named else dialect)
            return
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rest(exchange, _internal(error), dialect)
            return
        if isinstance(answer, Plan):
            await self._streams.serve(exchange, answer)
        else:
            status = rest.success_status(call, dialect)
            await exchange.respond(status, answer, rest.media_type(exchange, dialect))

    async def _body(self, exchange: Exchange) -> bytes:
        if exchange.method in ("GET", "HEAD", "DELETE"):
            return b""
        body = await exchange.body(self._settings.body_limit, self._settings.body_timeout)
        if body:
            rpc.check_media_type(exchange)
        return body

    async def _refuse_rest(self, exchange: Exchange, refused: errors.Refused, dialect: Dialect) -> None:
        _note(exchange, refused)
        status, body = rest.error(refused, dialect)
        await exchange.respond(status, body, rest.media_type(exchange, dialect), _headers(refused))

    def _admit(self, exchange: Exchange) -> Principal:
        self._guard.check(exchange.headers)
        return self._keys.principal(exchange.headers)

    def _caller(self, exchange: Exchange, principal: Principal, dialect: Dialect, *, wait: bool) -> Caller:
        key = exchange.text(b"idempotency-key") or ""
        if key and (len(key) > 256 or not key.isprintable()):
            raise errors.InvalidParams("Idempotency-Key must be 1 to 256 printable characters", field="Idempotency-Key")
        return Caller(principal, dialect, wait, key, exchange.text(b"last-event-id"))


def _asked(exchange: Exchange) -> Version | None:
    header = exchange.headers.get(b"a2a-version")
    if header == b"1.0":
        return Version.V1
    query = exchange.query().get("A2A-Version") if exchange.scope.get("query_string") else None
    return negotiate(None if header is None else header.decode("latin-1"), query)


def _headers(refused: errors.Refused) -> Headers:
    if isinstance(refused, errors.Unauthenticated):
        return _BEARER
    if isinstance(refused, errors.RouteNotFound) and refused.allow:
        return [(b"allow", refused.allow.encode())]
    if isinstance(refused, errors.Unavailable):
        return [(b"retry-after", b"1")]
    return ()


def _note(exchange: Exchange, refused: errors.Refused) -> None:
    # No text of the refusal: it may quote the caller. The reason and the field are ours.
    log.info("request.refused path=%s reason=%s field=%s", exchange.path[:64], code_of(refused).reason, refused.field)


def _internal(error: Exception) -> errors.Refused:
    if isinstance(error, errors.StoreError):
        log.error("store.failed error=%s", error)
        return errors.Unavailable("the store cannot answer now; try again")
    log.error("request.broke", exc_info=error)
    return errors.InternalError("something broke on our side; the log has it")
