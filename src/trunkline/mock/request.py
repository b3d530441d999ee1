"""Requests to a mock read from either binding and version, and the answers to them written in the same."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from trunkline import errors
from trunkline.mock.exchange import MockAnswer, MockExchange
from trunkline.mock.quirks import Quirks, with_quirks
from trunkline.mock.scenario import Failure, Persona
from trunkline.server import rest, rpc
from trunkline.server.encoding import Params
from trunkline.wire import jsonrpc, sse
from trunkline.wire.codes import CODES, code_of, details
from trunkline.wire.jsonrpc import RequestId
from trunkline.wire.operations import METHODS_V03, NAMES, Operation, RestCall, match
from trunkline.wire.service_parameters import Version, negotiate
from trunkline.wire.types import Message, Task
from trunkline.wire.writer import WRITERS, Dialect, Writer

# As faults, quirks and logs call them: all that is done with push configs is one thing there.
_NAMES = {one: "push" if one.name.startswith("PUSH") else one.name.lower() for one in Operation}


class MockRequest(Struct, frozen=True):
    """One operation with its params, and how its answers are written. `rest` is None for JSON-RPC."""

    operation: Operation
    params: Params | None
    dialect: Dialect
    quirks: Quirks
    id: RequestId = None
    rest: RestCall | None = None
    last_event_id: str | None = None

    @property
    def operation_name(self) -> str:
        """The operation as faults and logs call it."""
        return _NAMES[self.operation]

    def writer(self) -> Writer:
        """The writer of its dialect."""
        return WRITERS[self.dialect]

    def _with_quirks(self, body: bytes) -> bytes:
        return with_quirks(body, self.quirks) if self.dialect is not Dialect.V1 else body

    def result(self, body: bytes) -> MockAnswer:
        """The answer with this result."""
        body = self._with_quirks(body)
        if self.rest is not None:
            return MockAnswer(body, rest.success_status(self.rest, self.dialect))
        return MockAnswer(jsonrpc.result(self.id, body))

    def task_result(self, task: Task) -> MockAnswer:
        """The answer to `get` and `cancel`: a bare task."""
        return self.result(self.writer().task(task))

    def send_result(self, sent: Task | Message) -> MockAnswer:
        """The answer to a send: the task that the message made or continued, or a message instead."""
        writer = self.writer()
        if isinstance(sent, Message):
            return self.result(writer.message_frame(sent))
        return self.result(writer.task_frame(writer.task(sent)))

    def frame(self, seq: int | None, body: bytes) -> bytes:
        """One frame of a stream."""
        body = self._with_quirks(body)
        if self.rest is None and self.quirks.envelope:
            body = jsonrpc.result(self.id, body)
        name = f"event: {self.quirks.event}\n".encode() if self.quirks.event else b""
        return name + sse.frame(seq if self.quirks.ids else None, body)

    def refused(self, refused: errors.Refused) -> MockAnswer:
        """A refusal in the shape of the binding."""
        if self.rest is not None:
            return _rest_refusal(refused, self.dialect)
        return _rpc_refusal(refused, self.id, self.quirks)

    def failed(self, failure: Failure) -> MockAnswer:
        """An error that the scenario asks for."""
        if self.rest is None:
            return MockAnswer(_rpc_error(self.id, failure))
        known = [kind for kind, code in CODES.items() if code.rpc == failure.code]
        if known and known[0] is not errors.PeerError:
            return self.refused(known[0](failure.message))
        return self.refused(errors.PeerError(failure.message, code=failure.code))


def read_rpc(
    exchange: MockExchange, body: bytes, persona: Persona, quirks: Quirks
) -> MockRequest | MockAnswer:
    """The operation in a JSON-RPC request, or the refusal of it."""
    envelope = jsonrpc.read_envelope(body)
    try:
        if envelope.fault is not None:
            raise envelope.fault
        operation, dialect = _operation(envelope.method, _version(exchange, persona, quirks), persona, quirks)
        _check_offered(operation, quirks)
        has_params = operation is not Operation.EXTENDED_CARD
        params = rpc.read_params(operation, envelope.params, dialect) if has_params else None
    except errors.Refused as refused:
        return _rpc_refusal(refused, envelope.id, quirks)
    return MockRequest(
        operation, params, dialect, quirks, envelope.id, None, exchange.headers.get("last-event-id")
    )


def _operation(
    method: str, request: Version | None, persona: Persona, quirks: Quirks
) -> tuple[Operation, Dialect]:
    if quirks.writes == "0.3":
        if method not in METHODS_V03:
            raise errors.MethodNotFound(f"there is no method {method[:64]!r} here")
        return METHODS_V03[method], Dialect.V03
    operation, dialect = rpc.operation_of(method, Version.V1 if quirks.writes else request)
    _check_spoken(dialect.value, persona)
    return operation, dialect


def _version(exchange: MockExchange, persona: Persona, quirks: Quirks) -> Version | None:
    if not quirks.checks_version:
        return None
    request = negotiate(exchange.headers.get("a2a-version"), exchange.query.get("A2A-Version"))
    if request is not None:
        _check_spoken(request.value, persona)
    return request


def _check_spoken(version: str, persona: Persona) -> None:
    if version not in persona.versions:
        spoken = ", ".join(persona.versions)
        raise errors.VersionNotSupported(f"version {version} is not spoken here; {spoken} is")


def _check_offered(operation: Operation, quirks: Quirks) -> None:
    if _NAMES[operation] in quirks.lacks:
        raise errors.MethodNotFound(f"there is no {NAMES[operation]} here")


def read_rest(
    exchange: MockExchange, body: bytes, persona: Persona, quirks: Quirks
) -> MockRequest | MockAnswer:
    """The operation behind a path, or the refusal of it."""
    dialect = Dialect.V1 if "1.0" in persona.versions else Dialect.V03
    try:
        if "HTTP+JSON" not in persona.bindings:
            raise errors.RouteNotFound("no such path here; the card names the interfaces")
        call = match(exchange.method, exchange.path)
        version = _version(exchange, persona, quirks)
        dialect = rest.dialect_of(call, version if "0.3" in persona.versions else Version.V1)
        _check_offered(call.operation, quirks)
        has_params = call.operation is not Operation.EXTENDED_CARD
        params = rest.read_params(call, body, exchange.query, dialect) if has_params else None
    except errors.Refused as refused:
        return _rest_refusal(refused, dialect)
    return MockRequest(
        call.operation, params, dialect, quirks, None, call, exchange.headers.get("last-event-id")
    )


def _rest_refusal(refused: errors.Refused, dialect: Dialect) -> MockAnswer:
    status, body = rest.error(refused, dialect)
    return MockAnswer(body, status)


def _rpc_refusal(refused: errors.Refused, request_id: RequestId, quirks: Quirks) -> MockAnswer:
    code = quirks.codes.get(str(code_of(refused).rpc), code_of(refused).rpc)
    failure = Failure(code=code, message=refused.message, data=details(refused))
    if isinstance(refused, errors.ParseError):
        request_id = None
    return MockAnswer(_rpc_error(request_id, failure), rpc.http_status(refused))


def _rpc_error(request_id: RequestId, failure: Failure) -> bytes:
    document: dict[str, Any] = {"code": failure.code, "message": failure.message}
    if failure.data is not UNSET:
        document["data"] = failure.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": document})
