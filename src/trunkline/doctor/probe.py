"""Speaking to one interface of an agent, in its binding and version, byte for byte.

The operations of A2A are as each version and binding spells them; parameters come in as 1.0 has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from msgspec import Struct, json
from msgspec.structs import replace

from trunkline.clock import new_id, random_bits
from trunkline.doctor.exchange import (
    EVENTS,
    ProbeExchange,
    ProtocolObject,
    at,
    members,
    objects,
    parsed,
    protocol_object,
    text,
)
from trunkline.doctor.fixtures import Fixtures
from trunkline.net.http import Headers, HttpRequest
from trunkline.wire import sse
from trunkline.wire.codes import CODES
from trunkline.wire.operations import METHODS_V03, NAMES, Operation, routes
from trunkline.wire.requests import RestRequest

# The extended card in 0.3.
_CARD_V03 = "/card"
OPERATIONS = {operation.name.lower().replace("_", "-"): operation for operation in Operation}
# Of several names that 0.3 has for an operation the first is the specification's.
_METHODS_V03 = {operation: name for name, operation in reversed(METHODS_V03.items())}
# Verb and path of 1.0; where a path takes two verbs, the last, which both SDKs use.
_ROUTES = {operation: (verb, path) for verb, path, operation in routes() if path != _CARD_V03}


def method(operation: str, version: str) -> str:
    """The JSON-RPC method of an operation."""
    return (NAMES if version == "1.0" else _METHODS_V03)[OPERATIONS[operation]]


def params(operation: str, given: dict[str, Any], version: str) -> dict[str, Any]:
    """The parameters of an operation as this version has them."""
    if version == "1.0":
        return given
    if operation in ("send", "stream"):
        return _send(given)
    if operation == "push-set":
        config = {name: value for name, value in given.items() if name != "taskId"}
        return {"taskId": given.get("taskId"), "pushNotificationConfig": config}
    if operation in ("push-get", "push-delete"):
        return {"id": given.get("taskId"), "pushNotificationConfigId": given.get("id")}
    if operation == "push-list":
        return {"id": given.get("taskId")}
    return given


def _send(given: dict[str, Any]) -> dict[str, Any]:
    found = dict(given)
    if isinstance(given.get("message"), dict):
        found["message"] = _message(members(given["message"]))
    if isinstance(given.get("configuration"), dict):
        configuration = dict(members(given["configuration"]))
        configuration["blocking"] = not configuration.pop("returnImmediately", False)
        if "taskPushNotificationConfig" in configuration:
            configuration["pushNotificationConfig"] = configuration.pop("taskPushNotificationConfig")
        found["configuration"] = configuration
    return found


def _message(given: dict[str, Any]) -> dict[str, Any]:
    found = {"kind": "message", **given}
    if given.get("role") == "ROLE_USER":
        found["role"] = "user"
    if "parts" in given:
        found["parts"] = [{"kind": "text", **part} for part in objects(given["parts"])]
    return found


def route(operation: str, given: dict[str, Any]) -> RestRequest:
    """The request of an operation over HTTP+JSON in 1.0."""
    verb, path = _ROUTES[OPERATIONS[operation]]
    rest = dict(given)
    # A task is named by its `id`, and by `taskId` where `id` is that of a config.
    for place, name in (("{task}", "taskId" if operation.startswith("push-") else "id"), ("{config}", "id")):
        if place in path:
            path = path.replace(place, quote(str(rest.pop(name, "")), safe=""))
    if verb == "POST":
        body = json.encode(rest) if operation in ("send", "stream", "push-set") else None
        return RestRequest(verb, path, body)
    query = {name: "true" if value is True else value for name, value in rest.items()}
    return RestRequest(verb, f"{path}?{urlencode(query)}" if query else path)


if TYPE_CHECKING:
    from trunkline.doctor.subject import Subject

NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED = -32001, -32002, -32003, -32004
NO_EXTENSION, NO_VERSION = -32008, -32009
PARSE, INVALID, NO_METHOD, BAD_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
_REASONS = {"EXTENSION_SUPPORT_REQUIRED": NO_EXTENSION} | {code.reason: code.rpc for code in CODES.values()}
_JSON = ("Content-Type", "application/json")
_STREAMS = ("stream", "subscribe")


class DeclaredInterface(Struct, frozen=True):
    """An interface as the card declares it. `version` is 1.0 or 0.3, `declared` the card's own word."""

    url: str
    binding: str
    version: str
    declared: str = ""
    tenant: str = ""


class ProbeFrame(Struct, frozen=True):
    """One event of a stream: its id, its JSON, and the object of the protocol in it."""

    id: str
    envelope: Any
    object: ProtocolObject


class ProbeAnswer(Struct, frozen=True):
    """An answer understood as far as it can be: a result, a refusal with its code, or a stream."""

    exchange: ProbeExchange
    result: Any = None
    refused: bool = False
    code: int = 0
    reason: str = ""
    message: str = ""
    # What lies in the error's `data` over JSON-RPC, in its `details` over HTTP+JSON.
    details: tuple[dict[str, Any], ...] = ()
    # Of a stream, as far as it was received.
    frames: tuple[ProbeFrame, ...] = ()

    def is_code(self, code: int) -> bool:
        """Whether it is refused with this code; over HTTP+JSON by the reason, else by the status."""
        if not self.refused:
            return False
        if self.code:
            return self.code == code
        rows = [row for row in CODES.values() if row.rpc == code]
        return any(self.exchange.status in (row.http, row.http_03) for row in rows)

    @property
    def is_unauthorized(self) -> bool:
        """Whether it is refused for want of credentials."""
        return self.exchange.status in (401, 403) or self.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")

    @property
    def is_stream(self) -> bool:
        """Whether server-sent events came, and no refusal in their place."""
        return self.exchange.media_type == EVENTS and self.exchange.status == 200 and not self.refused

    @property
    def task_id(self) -> str:
        """The task of a stream; empty if it never says so. A message may name one that is not there."""
        ids = (frame.object.task_id for frame in self.frames if frame.object.kind != "message")
        return next(filter(None, ids), "")

    @property
    def object(self) -> ProtocolObject:
        """The task or message in the result; without a kind if it has neither."""
        return protocol_object(self.result)

    @property
    def task(self) -> dict[str, Any]:
        """The task in the result; empty if it has none."""
        found = self.object
        return found.value if found.kind == "task" else {}

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The tasks in a page of a list; none if the result is no page."""
        return objects(at(self.result, "tasks"))

    @property
    def error_infos(self) -> list[dict[str, Any]]:
        """The ErrorInfo objects of a refusal."""
        return [one for one in self.details if one.get("@type") == "type.googleapis.com/google.rpc.ErrorInfo"]

    def summary(self) -> str:
        """The answer in a few words."""
        if self.refused and self.code:
            return f"error {self.code} {self.message!r}"
        if self.refused:
            return f"HTTP {self.exchange.status} {self.message!r}"
        return self.exchange.summary()


class InterfaceProbe:
    """Speaks to one interface of the agent, and keeps what it receives for the checks that come late."""

    def __init__(self, subject: Subject, interface: DeclaredInterface, *, trusted: bool = True) -> None:
        self.subject = subject
        self.client = subject.client
        self.interface = interface
        self.binding, self.version = interface.binding, interface.version
        self.url = interface.url.rstrip("/") if interface.binding == "HTTP+JSON" else interface.url
        self.is_rpc = interface.binding == "JSONRPC"
        self.is_v1 = interface.version == "1.0"
        self.name = f"{interface.binding} {interface.version}"
        # The header by which callers say which extensions they speak.
        self.extensions_header = "A2A-Extensions" if self.is_v1 else "X-A2A-Extensions"
        # Tasks made over this interface, shared by all checks that look at them.
        self.fixtures = Fixtures(self)
        # Credentials go to the host that the operator named and to no other.
        self._trusted = trusted
        # Every object of the protocol that came over this interface, for the checks of shapes.
        self.received: list[tuple[ProtocolObject, ProbeExchange]] = []
        self.refusals: list[ProbeAnswer] = []

    def headers(self, *more: tuple[str, str], version: str | None = None) -> Headers:
        """The headers of a request, of each name the last; another version may be claimed, or none."""
        claimed = ("1.0" if self.is_v1 else "") if version is None else version
        found = dict(more)
        found.setdefault("Accept", "application/json, application/a2a+json")
        if claimed:
            found["A2A-Version"] = claimed
        if required := self.subject.extensions(required=True):
            found.setdefault(self.extensions_header, ", ".join(required))
        return (*found.items(), *(self.subject.credentials if self._trusted else ()))

    def request(
        self, operation: str, given: dict[str, Any], *, version: str | None = None, headers: Headers = ()
    ) -> HttpRequest:
        """The request of an operation. Parameters are as in 1.0."""
        if self.interface.tenant:
            given = {"tenant": self.interface.tenant, **given}
        accept = (("Accept", EVENTS),) if operation in _STREAMS else ()
        if self.is_rpc:
            body = {
                "jsonrpc": "2.0",
                "id": f"doctor-{random_bits(48):012x}",
                "method": method(operation, self.version),
                "params": params(operation, given, self.version),
            }
            return self._post_request(json.encode(body), (*accept, *headers), version)
        where = route(operation, given)
        more = () if where.body is None else (_JSON,)
        sent = self.headers(*more, *accept, *headers, version=version)
        return HttpRequest(where.verb, self.url + where.path, sent, where.body)

    def _post_request(self, body: bytes, headers: Headers, version: str | None) -> HttpRequest:
        """A POST of these bytes to the JSON-RPC endpoint."""
        return HttpRequest("POST", self.url, self.headers(_JSON, *headers, version=version), body)

    async def call(
        self, operation: str, given: dict[str, Any], timeout_s: float | None = None
    ) -> ProbeAnswer:
        """Do an operation."""
        answer = await self.ask(self.request(operation, given), operation, timeout_s)
        if operation in ("send", "get", "cancel"):
            self.subject.record_task(self, answer.object, new=operation == "send")
        return answer

    async def get_unknown(self, version: str | None = None) -> ProbeAnswer:
        """Read a task that never was, which reaches the agent and changes nothing there."""
        return await self.ask(self.request("get", {"id": new_id()}, version=version), "get")

    async def ask(self, request: HttpRequest, label: str = "", timeout_s: float | None = None) -> ProbeAnswer:
        """Send a request as it is, and read the answer."""
        return self._read(await self.client.fetch(request, label, timeout_s))

    async def post(self, body: bytes, *headers: tuple[str, str], version: str | None = None) -> ProbeAnswer:
        """Send these bytes to the JSON-RPC endpoint."""
        return await self.ask(self._post_request(body, headers, version))

    async def follow(
        self,
        operation: str,
        given: dict[str, Any],
        *,
        timeout_s: float | None = None,
        headers: Headers = (),
        enough: Callable[[ProbeFrame], bool] | None = None,
    ) -> ProbeAnswer:
        """Do an operation that streams, to its end or until a frame is enough."""
        request = self.request(operation, given, headers=headers)

        def stop(event: sse.SseEvent) -> bool:
            frame = self._frame(event)
            # At once, so that an examination that is interrupted knows what it has begun.
            self.subject.record_task(self, frame.object, new=operation == "stream")
            return enough is not None and enough(frame)

        exchange = await self.client.fetch(request, operation, timeout_s, stop)
        if exchange.media_type != EVENTS:
            return self._read(exchange)
        frames = tuple(self._frame(event) for event in exchange.events)
        self.received += [(frame.object, exchange) for frame in frames if frame.object.kind]
        # Some agents refuse by an error that is the only event of a stream.
        error = at(frames[0].envelope, "error") if len(frames) == 1 else None
        answer = ProbeAnswer(exchange) if error is None else self._refusal(exchange, error)
        return replace(answer, frames=frames)

    def _frame(self, event: sse.SseEvent) -> ProbeFrame:
        envelope = parsed(event.data)
        result = at(envelope, "result") if self.is_rpc else envelope
        return ProbeFrame(event.id, envelope, protocol_object(result))

    def _read(self, exchange: ProbeExchange) -> ProbeAnswer:
        """Read an answer; one that says nothing readable is neither a result nor a refusal."""
        body = exchange.json
        error = at(body, "error")
        if error is not None or (not self.is_rpc and exchange.status >= 400):
            answer = self._refusal(exchange, error if error is not None else body)
            self.refusals.append(answer)
            return answer
        if self.is_rpc:
            if "result" not in members(body):
                refused = exchange.status >= 400
                return ProbeAnswer(exchange, refused=refused, message=exchange.excerpt(120))
            body = body["result"]
        answer = ProbeAnswer(exchange, result=body)
        if answer.object.kind:
            self.received.append((answer.object, exchange))
        self.received += [(ProtocolObject("task", task, "task"), exchange) for task in answer.tasks]
        return answer

    def _refusal(self, exchange: ProbeExchange, error: object) -> ProbeAnswer:
        details = objects(at(error, "data" if self.is_rpc else "details"))
        reason = next((text(one["reason"]) for one in details if one.get("reason")), "")
        # The code of HTTP+JSON is the status, which several errors share.
        code = at(error, "code") if self.is_rpc else _REASONS.get(reason, 0)
        return ProbeAnswer(
            exchange,
            refused=True,
            code=code if isinstance(code, int) else 0,
            reason=reason,
            message=text(at(error, "message")) or exchange.excerpt(120),
            details=tuple(details),
        )
