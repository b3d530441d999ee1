"""The server: knows paths, versions and callers, and hands the rest on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil

from trunkline import errors
from trunkline.auth.identity import Identity
from trunkline.auth.principal import Principal
from trunkline.config import Settings
from trunkline.http.asgi import AsgiExchange, Receive, Scope, Send
from trunkline.http.exchange import EVENTS, Disconnected, Exchange, Headers, query, text
from trunkline.server import delegate, rest, rpc
from trunkline.server.admin import PREFIX, Admin
from trunkline.server.admission import Admission, permit
from trunkline.server.card import Cards, etag_of, respond
from trunkline.server.cors import PREFLIGHT, Cors
from trunkline.server.encoding import EncodedOperations
from trunkline.server.extensions import read_asked
from trunkline.server.health import Health
from trunkline.server.operations import Caller, Subscription
from trunkline.server.scopes import ADMIN, METRICS, NEEDED, READ, WRITE
from trunkline.server.streams import StreamEncoding, Streams
from trunkline.telemetry import traces
from trunkline.telemetry.counters import Counters
from trunkline.telemetry.traces import TraceSeen
from trunkline.wire import jsonrpc, sse
from trunkline.wire import rest as routes
from trunkline.wire.codes import code_of
from trunkline.wire.jsonrpc import Envelope
from trunkline.wire.operations import NAMES, Operation
from trunkline.wire.service_parameters import Version, negotiate
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
_UNREAD = Envelope()
# What a stream shall tell, and how it is written.
Following = tuple[Subscription, StreamEncoding]
Route = Callable[[Exchange, TraceSeen], Awaitable[Following | None]]
# The page of metrics and its media type, for what the reader accepts.
Render = Callable[[str], tuple[bytes, bytes]]


class Server:
    """Answers every request; whatever is wrong with one has a code, a text and a log line."""

    def __init__(
        self,
        operations: EncodedOperations,
        streams: Streams,
        cards: Cards,
        settings: Settings,
        door: Admission,
        *,
        identity: Identity,
        cors: Cors | None,
        health: Health,
        counts: Counters,
        metrics: Render | None,
        operators: Admin,
        jwks: Callable[[], bytes] | None,
    ) -> None:
        self._operations = operations
        self._streams = streams
        self._cards = cards
        self._settings = settings
        self._door = door
        self._identity = identity
        self._cors = cors
        self._operators = operators
        self._wait = settings.reply == "wait"
        self._counts = counts
        self._probes = {"/healthz": health.alive, "/readyz": health.ready}
        self._fixed: dict[str, Route] = {
            "/a2a": self._rpc,
            "/a2a/": self._rpc,
            "/.well-known/agent-card.json": self._card,
            "/.well-known/agent.json": self._card,
        }
        if metrics is not None:
            self._fixed["/metrics"] = partial(self._metrics, metrics)
        if jwks is not None:
            self._fixed["/.well-known/jwks.json"] = partial(self._jwks, jwks)
        self._below: dict[str, Route] = {delegate.PREFIX: self._delegate, PREFIX: self._admin}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request of a host."""
        await self.answer(AsgiExchange(scope, receive, send))

    async def answer(self, exchange: Exchange) -> None:
        """Serve one HTTP request."""
        if self._cors is not None:
            self._cors.mark(exchange)
        probe = self._probes.get(exchange.path)
        if probe is not None:
            await probe(exchange)
            return
        seen = TraceSeen()
        try:
            if traces.tracing():
                with traces.request(exchange.headers, seen):
                    following = await self._route(exchange)(exchange, seen)
            else:
                following = await self._route(exchange)(exchange, seen)
            self._counts.request(seen.operation, seen.outcome)
            if following is not None:
                # From here: a stream may stay for days, and its request should not stay in memory with it.
                lasting = self._identity.lasting(exchange.headers)
                exchange.headers = {}
                await self._streams.serve(exchange, *following, lasting)
        except Disconnected:
            log.debug("request.left path=%a", exchange.path[:64])
            self._counts.request(seen.operation, "DISCONNECTED")
        finally:
            if seen.holds is not None:
                self._door.leave(seen)

    @property
    def paths(self) -> list[str]:
        """Every path beside those of REST; a star stands for what is below one."""
        return [*self._probes, *self._fixed, *(f"{prefix}*" for prefix in self._below)]

    def crowded(self) -> None:
        """A connection was one too many and was turned away before it could ask for anything."""
        self._counts.request("Connect", "CONNECTION_LIMIT")

    def _route(self, exchange: Exchange) -> Route:
        path = exchange.path
        if self._cors is not None and self._cors.is_preflight(exchange):
            return self._preflight
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed
        return next((route for prefix, route in self._below.items() if path.startswith(prefix)), self._rest)

    async def _preflight(self, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Preflight"
        try:
            self._door.check(exchange)
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V1)
        else:
            await exchange.respond(204, b"", headers=PREFLIGHT)

    async def _metrics(self, render: Render, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Metrics"
        try:
            principal = await self._door.admit(exchange, seen)
            if ADMIN not in principal.scopes:
                permit(principal, METRICS)
            if exchange.method not in ("GET", "HEAD"):
                raise errors.RouteNotFound("metrics take GET only", allow="GET, HEAD")
            await exchange.respond(200, *render(text(exchange, b"accept") or ""))
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V1)

    async def _delegate(self, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Delegate"
        try:
            principal = await self._door.admit(exchange, seen)
            permit(principal, WRITE if exchange.method == "POST" else READ)
            rest.check_path(exchange)
            caller = Caller(principal, Dialect.V03, wait=False, trace=traces.recorded(exchange.headers))
            status, body = await delegate.perform(self._operations.operations, exchange, caller, self._body)
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V03)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rest(exchange, seen, _internal(error), Dialect.V03)
        else:
            await exchange.respond(status, body)

    async def _admin(self, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Admin"
        try:
            self._door.check(exchange)
            who = self._operators.operator(exchange.headers)
            if who is None:
                who = await self._door.admit(exchange, seen)
            permit(who, ADMIN)
            rest.check_path(exchange)
            asked, body = query(exchange), await self._body(exchange)
            status, answer = await self._operators.perform(
                exchange.method, exchange.path, asked, body, by=who.name
            )
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V1)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rest(exchange, seen, _internal(error), Dialect.V1)
        else:
            await exchange.respond(status, answer, headers=[(b"cache-control", b"no-store")])

    async def _jwks(self, jwks: Callable[[], bytes], exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Jwks"
        try:
            self._door.check(exchange)
            if exchange.method not in ("GET", "HEAD"):
                raise errors.RouteNotFound("the keys take GET only", allow="GET, HEAD")
            body = jwks()
            await respond(exchange, body, etag_of(body))
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V1)

    async def _card(self, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "AgentCard"
        try:
            self._door.check(exchange)
            await self._cards.answer(exchange)
        except errors.Refused as refused:
            await self._refuse_rest(exchange, seen, refused, Dialect.V1)

    async def _rpc(self, exchange: Exchange, seen: TraceSeen) -> Following | None:
        envelope = _UNREAD
        try:
            principal = self._door.enter(exchange, seen) or await self._door.ask(exchange, seen)
            if exchange.method != "POST":
                raise errors.RouteNotFound("JSON-RPC takes POST only", allow="POST")
            rpc.check_media_type(exchange)
            body = await exchange.body(self._settings.body_limit, self._settings.body_timeout)
            envelope = jsonrpc.read_envelope(body)
            if envelope.fault is not None:
                # Not raised: its traceback would lead back to it through this frame, a circle that keeps
                # the whole body in memory until somebody collects garbage.
                await self._refuse_rpc(exchange, seen, envelope, envelope.fault)
                return None
            operation, version = rpc.operation_of(envelope.method, _asked(exchange))
            seen.operation = NAMES[operation]
            permit(principal, NEEDED[operation])
            dialect = Dialect.V1 if version is Version.V1 else Dialect.V03
            caller = self._caller(exchange, principal, dialect, wait=self._wait)
            answer = self._extended(exchange, operation, dialect)
            if answer is None:
                answer = await rpc.perform(self._operations, operation, envelope, caller)
            self._name_extensions(exchange, caller)
        except errors.Refused as refused:
            await self._refuse_rpc(exchange, seen, envelope, refused)
            return None
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rpc(exchange, seen, envelope, _internal(error))
            return None
        if envelope.notification:
            await exchange.respond(204, b"")
        elif isinstance(answer, bytes):
            await exchange.respond(200, jsonrpc.result(envelope.id, answer))
        else:
            return answer, StreamEncoding(dialect, *jsonrpc.envelope_parts(envelope.id))
        return None

    async def _refuse_rpc(
        self, exchange: Exchange, seen: TraceSeen, envelope: Envelope, refused: errors.Refused
    ) -> None:
        _note(exchange, seen, refused)
        status = rpc.http_status(refused)
        # Also without an id: A2A has no notifications, so whoever left it out should hear what is wrong.
        body = jsonrpc.error(envelope.id, refused)
        if status == 200 and rpc.reads_frames_only(exchange, envelope):
            await exchange.respond(200, sse.frame(None, body), EVENTS)
        else:
            await exchange.respond(status, body, headers=self._headers(refused))

    async def _rest(self, exchange: Exchange, seen: TraceSeen) -> Following | None:
        dialect = Dialect.V03_PROTO if exchange.path.startswith("/v1/") else Dialect.V03
        try:
            if exchange.headers.get(b"a2a-version") == b"1.0":
                dialect = Dialect.V1
            principal = await self._door.admit(exchange, seen)
            asked = _asked(exchange)
            dialect = Dialect.V1 if asked is Version.V1 else dialect
            rest.check_path(exchange)
            call = routes.match(exchange.method, exchange.path)
            seen.operation = NAMES[call.operation]
            permit(principal, NEEDED[call.operation])
            dialect = rest.dialect_of(call, asked)
            if call.tenant and call.tenant != principal.tenant:
                raise errors.RouteNotFound("no such path here; the card names the interfaces")
            body = await self._body(exchange)
            wait = self._wait and dialect is Dialect.V1
            caller = self._caller(exchange, principal, dialect, wait=wait)
            answer = self._extended(exchange, call.operation, dialect)
            if answer is None:
                answer = await rest.perform(self._operations, call, caller, body, query(exchange))
            self._name_extensions(exchange, caller)
        except errors.Refused as refused:
            # Before 1.0 nobody named a version: who names an unknown one reads the errors of 1.0.
            named = isinstance(refused, errors.VersionNotSupported)
            await self._refuse_rest(exchange, seen, refused, Dialect.V1 if named else dialect)
            return None
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rest(exchange, seen, _internal(error), dialect)
            return None
        if isinstance(answer, Subscription):
            return answer, StreamEncoding(dialect)
        status = rest.success_status(call, dialect)
        await exchange.respond(status, answer, rest.media_type(exchange, dialect))
        return None

    async def _body(self, exchange: Exchange) -> bytes:
        if exchange.method in ("GET", "HEAD", "DELETE"):
            return b""
        body = await exchange.body(self._settings.body_limit, self._settings.body_timeout)
        if body:
            rpc.check_media_type(exchange)
        return body

    async def _refuse_rest(
        self, exchange: Exchange, seen: TraceSeen, refused: errors.Refused, dialect: Dialect
    ) -> None:
        _note(exchange, seen, refused)
        status, body = rest.error(refused, dialect)
        await exchange.respond(status, body, rest.media_type(exchange, dialect), self._headers(refused))

    def _caller(self, exchange: Exchange, principal: Principal, dialect: Dialect, *, wait: bool) -> Caller:
        key = text(exchange, b"idempotency-key") or ""
        if key and (len(key) > 256 or not key.isprintable()):
            raise errors.InvalidParams(
                "Idempotency-Key must be 1 to 256 printable characters", field="Idempotency-Key"
            )
        return Caller(
            principal,
            dialect,
            wait,
            key,
            text(exchange, b"last-event-id"),
            traces.recorded(exchange.headers),
            read_asked(exchange.headers),
        )

    def _extended(self, exchange: Exchange, operation: Operation, dialect: Dialect) -> bytes | None:
        """The extended card, where that is what is asked for and there is one."""
        if operation is not Operation.EXTENDED_CARD:
            return None
        return self._cards.extended(exchange, pure=dialect is Dialect.V1)

    def _headers(self, refused: errors.Refused) -> Headers:
        if isinstance(refused, errors.Unauthenticated):
            return [(b"www-authenticate", self._identity.challenge)]
        if isinstance(refused, errors.RouteNotFound) and refused.allow:
            return [(b"allow", refused.allow.encode())]
        if isinstance(refused, errors.Unavailable):
            return [(b"retry-after", b"1")]
        if isinstance(refused, errors.TooManyRequests):
            return [(b"retry-after", b"%d" % max(1, ceil(refused.retry_after_s)))]
        return ()

    def _name_extensions(self, exchange: Exchange, caller: Caller) -> None:
        if caller.extensions is not None:
            exchange.also = [*exchange.also, *caller.extensions.answer(self._cards.extensions)]


def _asked(exchange: Exchange) -> Version | None:
    header = exchange.headers.get(b"a2a-version")
    if header == b"1.0":
        return Version.V1
    named = query(exchange).get("A2A-Version") if exchange.query_string else None
    return negotiate(None if header is None else header.decode("latin-1"), named)


def _note(exchange: Exchange, seen: TraceSeen, refused: errors.Refused) -> None:
    # No text of the refusal: it may quote the caller. The reason and the field are ours; a path is
    # written in ASCII with escapes, or a line end in it would forge a line of the log.
    seen.outcome = code_of(refused).reason
    log.info("request.refused path=%a reason=%s field=%s", exchange.path[:64], seen.outcome, refused.field)


def _internal(error: Exception) -> errors.Refused:
    if isinstance(error, errors.StoreError):
        log.error("store.failed error=%s", error)
        return errors.Unavailable("the store cannot answer now; try again")
    log.error("request.broke", exc_info=error)
    return errors.InternalError("something broke on our side; the log has it")
