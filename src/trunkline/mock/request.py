"""What a request to a mock asks for, by whichever binding and version, and how its answer is written."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from trunkline import errors
from trunkline.mock.quirks import Quirks, spoken
from trunkline.mock.response import MockResponse, Whole
from trunkline.mock.scenario import Failure, Persona
from trunkline.server.rest import dialect_of, error, success_status
from trunkline.server.rpc import http_status, operation_of
from trunkline.wire import jsonrpc, read, rest, sse
from trunkline.wire.codes import CODES, code_of, details
from trunkline.wire.jsonrpc import RequestId
from trunkline.wire.operations import METHODS_V03, NAMES, Operation
from trunkline.wire.push import read_push_query, read_push_request
from trunkline.wire.rest import RestCall
from trunkline.wire.service_parameters import Version, negotiate
from trunkline.wire.types import (
    ListQuery,
    Message,
    PushQuery,
    PushRequest,
    SendRequest,
    Task,
    TaskQuery,
)
from trunkline.wire.writer import WRITERS, Dialect, Writer

Params = SendRequest | TaskQuery | ListQuery | PushRequest | PushQuery | None

_WORDS = {
    Operation.SEND: "send",
    Operation.STREAM: "stream",
    Operation.GET: "get",
    Operation.LIST: "list",
    Operation.CANCEL: "cancel",
    Operation.SUBSCRIBE: "subscribe",
    Operation.EXTENDED_CARD: "extended_card",
}


class MockRequest(Struct, frozen=True):
    """One operation with its params. `rest` is None for JSON-RPC."""

    operation: Operation
    params: Params
    dialect: Dialect
    manner: Quirks
    id: RequestId = None
    rest: RestCall | None = None
    last_event_id: str | None = None

    @property
    def word(self) -> str:
        """What faults call it."""
        return word_of(self.operation)

    def writer(self) -> Writer:
        """The writer of its dialect."""
        return WRITERS[self.dialect]

    def spoken(self, body: bytes) -> bytes:
        """What the writer wrote, with the habits of the mock."""
        return spoken(body, self.manner) if self.dialect is not Dialect.V1 else body

    def result(self, body: bytes) -> Whole:
        """An answer around this result."""
        body = self.spoken(body)
        if self.rest is not None:
            return Whole(body, success_status(self.rest, self.dialect))
        return Whole(jsonrpc.result(self.id, body))

    def task(self, task: Task) -> Whole:
        """A bare task, as `get` and `cancel` answer."""
        return self.result(self.writer().task(task))

    def sent(self, task: Task) -> Whole:
        """The task that a message made or continued."""
        writer = self.writer()
        return self.result(writer.answer_task(writer.task(task)))

    def said(self, message: Message) -> Whole:
        """A message instead of a task."""
        return self.result(self.writer().answer_message(message))

    def frame(self, seq: int | None, body: bytes) -> bytes:
        """One frame of a stream."""
        body = self.spoken(body)
        if self.rest is None and self.manner.envelope:
            body = jsonrpc.result(self.id, body)
        name = f"event: {self.manner.event}\n".encode() if self.manner.event else b""
        return name + sse.frame(seq if self.manner.ids else None, body)


def word_of(operation: Operation) -> str:
    """What faults and logs call an operation."""
    return _WORDS.get(operation, "push")


def read_rpc(line: MockResponse, body: bytes, persona: Persona, manner: Quirks) -> MockRequest | Whole:
    """The operation in a JSON-RPC request, or the refusal of it."""
    envelope = jsonrpc.read_envelope(body)
    try:
        if envelope.fault is not None:
            raise envelope.fault
        operation, version = _operation(envelope.method, _version(line, persona, manner), persona, manner)
        _check_has(operation, manner)
        dialect = Dialect.V1 if version is Version.V1 else Dialect.V03
        params = _rpc_params(operation, envelope.params)
    except errors.Refused as refused:
        return refuse_rpc(refused, envelope.id, manner)
    return MockRequest(
        operation, params, dialect, manner, envelope.id, None, line.headers.get("last-event-id")
    )


def _operation(
    method: str, asked: Version | None, persona: Persona, manner: Quirks
) -> tuple[Operation, Version]:
    if manner.writes == "0.3":
        if method not in METHODS_V03:
            raise errors.MethodNotFound(f"there is no method {method[:64]!r} here")
        return METHODS_V03[method], Version.V03
    operation, version = operation_of(method, Version.V1 if manner.writes else asked)
    if version.value not in persona.versions:
        raise _unsupported(version.value, persona)
    return operation, version


def _version(line: MockResponse, persona: Persona, manner: Quirks) -> Version | None:
    if not manner.checks_version:
        return None
    asked = negotiate(line.headers.get("a2a-version"), line.query.get("A2A-Version"))
    if asked is not None and asked.value not in persona.versions:
        raise _unsupported(asked.value, persona)
    return asked


def _unsupported(version: str, persona: Persona) -> errors.VersionNotSupported:
    return errors.VersionNotSupported(
        f"version {version} is not spoken here; {', '.join(persona.versions)} is"
    )


def _check_has(operation: Operation, manner: Quirks) -> None:
    if word_of(operation) in manner.lacks:
        raise errors.MethodNotFound(f"there is no {NAMES[operation]} here")


def _rpc_params(operation: Operation, raw: msgspec.Raw | None) -> Params:
    match operation:
        case Operation.SEND | Operation.STREAM:
            return read.read_send(raw)
        case Operation.GET | Operation.CANCEL | Operation.SUBSCRIBE:
            return read.read_task_query(raw)
        case Operation.LIST:
            return read.read_list_query(raw)
        case Operation.PUSH_SET:
            return read_push_request(raw)
        case Operation.PUSH_GET | Operation.PUSH_LIST | Operation.PUSH_DELETE:
            return read_push_query(raw)
        case Operation.EXTENDED_CARD:
            return None


def read_rest(line: MockResponse, body: bytes, persona: Persona, manner: Quirks) -> MockRequest | Whole:
    """The operation behind a path, or the refusal of it."""
    dialect = Dialect.V1 if "1.0" in persona.versions else Dialect.V03
    try:
        if "HTTP+JSON" not in persona.bindings:
            raise errors.RouteNotFound("no such path here; the card names the interfaces")
        call = rest.match(line.method, line.path)
        version = _version(line, persona, manner)
        dialect = dialect_of(call, version if "0.3" in persona.versions else Version.V1)
        _check_has(call.operation, manner)
        params = _rest_params(call, body, line.query, proto=dialect is Dialect.V03_PROTO)
    except errors.Refused as refused:
        return refuse_rest(refused, dialect)
    return MockRequest(call.operation, params, dialect, manner, None, call, line.headers.get("last-event-id"))


def _rest_params(call: RestCall, body: bytes, query: dict[str, str], *, proto: bool) -> Params:
    match call.operation:
        case Operation.SEND | Operation.STREAM:
            return read.read_send(body, proto=proto)
        case Operation.GET:
            return read.task_query_from(call.task_id, query)
        case Operation.CANCEL | Operation.SUBSCRIBE:
            return TaskQuery(call.task_id)
        case Operation.LIST:
            return read.list_query_from(query)
        case Operation.PUSH_SET:
            return read_push_request(body, call.task_id)
        case Operation.PUSH_GET | Operation.PUSH_LIST | Operation.PUSH_DELETE:
            return PushQuery(call.task_id, call.config_id)
        case Operation.EXTENDED_CARD:
            return None


def refuse(refused: errors.Refused, asked: MockRequest) -> Whole:
    """The refusal in the shape of the binding."""
    if asked.rest is not None:
        return refuse_rest(refused, asked.dialect)
    return refuse_rpc(refused, asked.id, asked.manner)


def refuse_rest(refused: errors.Refused, dialect: Dialect) -> Whole:
    """The refusal as REST has it."""
    status, body = error(refused, dialect)
    return Whole(body, status)


def refuse_rpc(refused: errors.Refused, request_id: RequestId, manner: Quirks) -> Whole:
    """The refusal as JSON-RPC has it."""
    code = manner.codes.get(str(code_of(refused).rpc), code_of(refused).rpc)
    said = Failure(code=code, message=refused.message, data=details(refused))
    return Whole(_error(request_id, said), http_status(refused))


def fail(failure: Failure, asked: MockRequest) -> Whole:
    """An error that the script asks for."""
    if asked.rest is None:
        return Whole(_error(asked.id, failure))
    known = [kind for kind, code in CODES.items() if code.rpc == failure.code]
    if known and known[0] is not errors.PeerError:
        return refuse_rest(known[0](failure.message), asked.dialect)
    return refuse_rest(errors.PeerError(failure.message, code=failure.code), asked.dialect)


def _error(request_id: RequestId, failure: Failure) -> bytes:
    said: dict[str, Any] = {"code": failure.code, "message": failure.message}
    if failure.data is not UNSET:
        said["data"] = failure.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": said})
