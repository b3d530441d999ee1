"""A site is one agent over HTTP: its card, JSON-RPC, REST, and the task API of workflow engines.

It knows paths, versions and callers, and hands the rest on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from trunkline import errors
from trunkline.auth.principal import Principal
from trunkline.config import Settings
from trunkline.http.exchange import EVENTS, Exchange, read_query
from trunkline.server import rest, rpc
from trunkline.server.admission import Admission
from trunkline.server.caller import INSTEAD, NEEDED, READ, SPELLED, WRITE, Caller, permit, read_asked
from trunkline.server.card import CARD_BESIDE, Cards, no_extended_card
from trunkline.server.encoding import EncodedOperations
from trunkline.server.refusals import note, refusal_of
from trunkline.server.streams import NO_WHOLE, WHOLE_LIMIT, StreamEncoding, Subscription
from trunkline.telemetry import traces
from trunkline.telemetry.traces import TraceSeen
from trunkline.wire import jsonrpc, sse
from trunkline.wire.delegate import read_submission, record, request_of
from trunkline.wire.jsonrpc import Envelope
from trunkline.wire.operations import NAMES, Operation, match
from trunkline.wire.read import read_tenant
from trunkline.wire.service_parameters import CORRELATION, Version, negotiate, read_correlation
from trunkline.wire.types import TaskQuery
from trunkline.wire.writer import Dialect

_UNREAD = Envelope()
_EXTENDED_CARD = Operation.EXTENDED_CARD
_V1 = Version.V1
# What a stream shall tell, and how it is written.
Following = tuple[Subscription, StreamEncoding]
Handler = Callable[[Exchange, TraceSeen], Awaitable[Following | None]]
# The task API of workflow engines, where it cannot collide with A2A's own paths.
DELEGATE = "/delegate/"
_TASKS = DELEGATE + "tasks"
# Which verb each of its paths takes.
DELEGATE_ROUTES = {_TASKS: "POST", _TASKS + "/{task}": "GET"}


class Site:
    """What one agent looks like over HTTP; whatever is wrong with a request has a code and a log line."""

    def __init__(
        self,
        operations: EncodedOperations,
        cards: Cards,
        admission: Admission,
        own: Settings,
    ) -> None:
        """Take one agent's operations and cards, and its settings: who waits, and how streams close."""
        self.cards = cards
        self.operations = operations
        self._admission = admission
        self._refusals = admission.refusals
        self._wait = own.reply == "wait"
        self._v03_parts = own.v03_parts
        self._whole_limit = WHOLE_LIMIT if own.stream_close == "whole" else NO_WHOLE
        # The cards that a tenant is shown in the place of this one's; None where all are shown the same.
        self.cards_of: Callable[[str], Cards | None] = lambda tenant: None
        card = admission.public("AgentCard", cards.answer)
        self.handlers: dict[str, Handler] = {
            # Clients that skip the card post to the base itself.
            "/": self._base,
            "/a2a": self._rpc,
            "/a2a/": self._rpc,
            CARD_BESIDE: card,
            "/.well-known/agent-card.json": card,
            "/.well-known/agent.json": card,
        }
        self._delegated = self._refusals.guard("Delegate", self._delegate, Dialect.V03)

    def handler(self, path: str) -> Handler:
        """What answers a path relative to the site."""
        found = self.handlers.get(path)
        if found is not None:
            return found
        return self._delegated if path.startswith(DELEGATE) else self._rest

    async def _delegate(self, exchange: Exchange, seen: TraceSeen) -> None:
        principal = await self._admission.admit(exchange, seen)
        permit(principal, WRITE if exchange.method == "POST" else READ)
        rest.check_path(exchange)
        headers = exchange.headers
        caller = Caller(
            principal,
            Dialect.V03,
            wait=False,
            trace=traces.recorded(headers),
            correlation=read_correlation(headers),
        )
        operations, path = self.operations.operations, exchange.path
        task_id = path.removeprefix(_TASKS + "/")
        if path != _TASKS and (task_id == path or not task_id or "/" in task_id):
            raise errors.RouteNotFound(
                "no such path here; submit to /delegate/tasks, poll /delegate/tasks/{id}"
            )
        verb = DELEGATE_ROUTES[_TASKS if path == _TASKS else _TASKS + "/{task}"]
        if exchange.method != verb:
            raise errors.RouteNotFound(f"this path takes {verb} only", allow=verb)
        if path != _TASKS:
            await exchange.respond(200, record(await operations.get(caller, TaskQuery(task_id))))
            return
        submission = read_submission(await self._admission.read_json(exchange, caller.principal))
        # The agent's own name means its default skill. Of several agents, which skills there are is known to
        # whoever opens the task.
        agent, executor = submission.agent_id, operations.executor(caller.principal.tenant)
        request = request_of(submission, agent if executor is None else executor.named(agent))
        # The correlation id is the engine's word for "the same step again": it never starts a second task.
        known = replace(caller, idempotency_key=submission.correlation_id)
        await exchange.respond(201, record(await operations.submit(known, request)))

    async def _rpc(self, exchange: Exchange, seen: TraceSeen) -> Following | None:
        envelope = _UNREAD
        try:
            principal = self._admission.enter(exchange, seen) or await self._admission.ask(exchange, seen)
            if exchange.method != "POST":
                raise errors.RouteNotFound("JSON-RPC takes POST only", allow="POST")
            rpc.check_media_type(exchange)
            body = await self._admission.read_body(exchange, principal)
            envelope = jsonrpc.read_envelope(body)
            if envelope.fault is not None:
                # Not raised: its traceback would lead back to it through this frame, a circle that keeps
                # the whole body in memory until somebody collects garbage.
                await self._refuse_rpc(exchange, seen, envelope, envelope.fault)
                return None
            operation, dialect = rpc.operation_of(envelope.method, _asked(exchange))
            seen.operation = NAMES[operation]
            permit(principal, NEEDED[operation], INSTEAD.get(operation))
            self._check_work(principal, operation, body)
            caller = self._caller(exchange, principal, dialect, wait=self._wait)
            if operation is _EXTENDED_CARD:
                answer = self._extended(exchange, caller, read_tenant(envelope.params))
            else:
                params = rpc.read_params(operation, envelope.params, dialect, self._v03_parts)
                answer = await self.operations.perform(caller, operation, params)
            self._name_extensions(exchange, caller)
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            await self._refuse_rpc(exchange, seen, envelope, refusal_of(error))
            return None
        if envelope.notification:
            await exchange.respond(204, b"")
        elif isinstance(answer, bytes):
            await exchange.respond(200, jsonrpc.result(envelope.id, answer or b"null"))
        else:
            return answer, StreamEncoding(dialect, *jsonrpc.envelope_parts(envelope.id), self._whole_limit)
        return None

    def _base(self, exchange: Exchange, seen: TraceSeen) -> Awaitable[Following | None]:
        return (self._rpc if exchange.method == "POST" else self._rest)(exchange, seen)

    async def _refuse_rpc(
        self, exchange: Exchange, seen: TraceSeen, envelope: Envelope, refused: errors.Refused
    ) -> None:
        note(exchange, seen, refused)
        status = rpc.http_status(refused)
        # Also without an id: A2A has no notifications, so whoever left it out should hear what is wrong.
        body = jsonrpc.error(envelope.id, refused)
        if status == 200 and rpc.reads_frames_only(exchange, envelope):
            await exchange.respond(200, sse.frame(None, body), EVENTS)
        else:
            await exchange.respond(status, body, headers=self._refusals.headers(refused))

    async def _rest(self, exchange: Exchange, seen: TraceSeen) -> Following | None:
        dialect = Dialect.V03_PROTO if exchange.path.startswith("/v1/") else Dialect.V03
        try:
            if exchange.headers.get(b"a2a-version") == b"1.0":
                dialect = Dialect.V1
            principal = await self._admission.admit(exchange, seen)
            asked = _asked(exchange)
            dialect = Dialect.V1 if asked is Version.V1 else dialect
            rest.check_path(exchange)
            call = match(exchange.method, exchange.path)
            seen.operation = NAMES[call.operation]
            permit(principal, NEEDED[call.operation], INSTEAD.get(call.operation))
            dialect = rest.dialect_of(call, asked)
            if call.tenant and call.tenant != principal.tenant:
                raise errors.RouteNotFound("no such path here; the card names the interfaces")
            body = await self._admission.read_json(exchange, principal)
            self._check_work(principal, call.operation, body)
            wait = self._wait and dialect is Dialect.V1
            caller = self._caller(exchange, principal, dialect, wait=wait)
            given = read_query(exchange.query_string)
            if call.operation is _EXTENDED_CARD:
                answer = self._extended(exchange, caller, given.get("tenant", ""))
            else:
                params = rest.read_params(call, body, given, dialect)
                answer = await self.operations.perform(caller, call.operation, params)
            self._name_extensions(exchange, caller)
        except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
            # Before 1.0 nobody named a version: who names an unknown one reads the errors of 1.0.
            named = isinstance(error, errors.VersionNotSupported)
            await self._refusals.answer(exchange, seen, refusal_of(error), Dialect.V1 if named else dialect)
            return None
        if isinstance(answer, Subscription):
            return answer, StreamEncoding(dialect, whole_limit=self._whole_limit)
        status = rest.success_status(call, dialect)
        await exchange.respond(status, answer or b"{}", rest.media_type(exchange, dialect))
        return None

    def _check_work(self, principal: Principal, operation: Operation, body: bytes) -> None:
        # What may be an answer is judged where it has been read: answers cost nobody anything.
        # `find`, as `in` takes `bytes` for a number first, at the price of an error.
        if operation in rpc.SENDS and body.find(b"taskId") < 0 and body.find(b"task_id") < 0:
            self._admission.check_work(principal.tenant, principal.name)

    def _caller(self, exchange: Exchange, principal: Principal, dialect: Dialect, *, wait: bool) -> Caller:
        headers = exchange.headers
        key = headers[b"idempotency-key"].decode("latin-1") if b"idempotency-key" in headers else ""
        place = headers.get(b"last-event-id")
        if key and (len(key) > 256 or not key.isprintable()):
            raise errors.InvalidParams(
                "Idempotency-Key must be 1 to 256 printable characters", field="Idempotency-Key"
            )
        return Caller(
            principal,
            dialect,
            wait,
            key,
            None if place is None else place.decode("latin-1"),
            traces.recorded(headers),
            None if SPELLED.keys().isdisjoint(headers) else read_asked(headers),
            self._admission.lasting(exchange),
            read_correlation(headers) if CORRELATION[0] in headers or CORRELATION[1] in headers else None,
        )

    def _extended(self, exchange: Exchange, caller: Caller, tenant: str) -> bytes:
        """The extended card for a caller who may have named its tenant.

        Raises:
            Refused: there is none.
        """
        caller.check_tenant(tenant)
        own = self.cards_of(caller.principal.tenant)
        pure = caller.dialect is Dialect.V1
        card = self.cards.extended(exchange, pure=pure) if own is None else own.whole(exchange, pure=pure)
        if card is None:
            raise no_extended_card(caller.dialect)
        return card

    def _name_extensions(self, exchange: Exchange, caller: Caller) -> None:
        if caller.extensions is not None:
            exchange.also = [*exchange.also, *caller.extensions.answer(self.cards.extensions)]


def _asked(exchange: Exchange) -> Version | None:
    header = exchange.headers.get(b"a2a-version")
    if header == b"1.0":
        return _V1
    named = read_query(exchange.query_string).get("A2A-Version") if exchange.query_string else None
    return negotiate(None if header is None else header.decode("latin-1"), named)
