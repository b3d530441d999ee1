"""A way to speak to an agent: one interface, in one binding and version, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.clock import random_bits
from trunkline.doctor.exchange import ProbeExchange, encoded
from trunkline.doctor.json_access import JsonPiece, at, items, members, parsed, text, unwrapped
from trunkline.doctor.spelling import method, params, route
from trunkline.net.http import Headers, HttpRequest
from trunkline.wire import sse
from trunkline.wire.codes import CODES

if TYPE_CHECKING:
    from trunkline.doctor.subject import Subject

NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED = -32001, -32002, -32003, -32004
NO_EXTENSION, NO_VERSION = -32008, -32009
PARSE, INVALID, NO_METHOD, BAD_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
_REASONS = {"EXTENSION_SUPPORT_REQUIRED": NO_EXTENSION} | {code.reason: code.rpc for code in CODES.values()}
_JSON = "application/json"
_STREAMS = ("stream", "subscribe")


class ProbeInterface(Struct, frozen=True):
    """What a card says of one place. `version` is 1.0 or 0.3, `declared` the card's own word."""

    url: str
    binding: str
    version: str
    declared: str = ""
    tenant: str = ""


class ProbeAnswer(Struct, frozen=True):
    """An answer understood as far as it can be: a result, or a refusal with its code."""

    exchange: ProbeExchange
    result: Any = None
    refused: bool = False
    code: int = 0
    reason: str = ""
    message: str = ""
    error: Any = None

    def is_code(self, code: int) -> bool:
        """Whether it is refused with this code; over HTTP+JSON by the reason, else by the status."""
        if not self.refused:
            return False
        if self.code:
            return self.code == code
        rows = [row for row in CODES.values() if row.rpc == code]
        return any(self.exchange.status in (row.http, row.http_03) for row in rows)

    @property
    def is_shut(self) -> bool:
        """Whether it is refused for want of credentials."""
        return self.exchange.status in (401, 403) or self.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")

    def told(self) -> str:
        """In a few words what came."""
        if self.refused and self.code:
            return f"error {self.code} {self.message!r}"
        if self.refused:
            return f"HTTP {self.exchange.status} {self.message!r}"
        return self.exchange.told()


class ProbeFrame(Struct, frozen=True):
    """One event of a stream: its id, the envelope, what is in it, and the object of the protocol."""

    id: str
    envelope: Any
    result: Any
    piece: JsonPiece | None


class FrameLog(Struct, frozen=True):
    """A stream as it was heard. `answer` is what came instead of one."""

    exchange: ProbeExchange
    frames: tuple[ProbeFrame, ...] = ()
    answer: ProbeAnswer | None = None

    @property
    def is_stream(self) -> bool:
        """Whether it was server-sent events at all."""
        return self.exchange.media_type == "text/event-stream" and self.exchange.status == 200

    @property
    def task_id(self) -> str:
        """The task that it is about; empty if it never says so."""
        for frame in self.frames:
            if frame.piece is not None:
                name = frame.piece.value.get("id" if frame.piece.kind == "task" else "taskId")
                if text(name):
                    return text(name)
        return ""


class ProbeBinding:
    """One interface of the agent under examination."""

    def __init__(self, subject: Subject, interface: ProbeInterface, *, trusted: bool = True) -> None:
        self.subject = subject
        self.interface = interface
        self.binding, self.version = interface.binding, interface.version
        self.url = interface.url.rstrip("/") if interface.binding == "HTTP+JSON" else interface.url
        self.is_rpc = interface.binding == "JSONRPC"
        self.name = f"{interface.binding} {interface.version}"
        # The header by which callers say which extensions they speak.
        self.extending = "A2A-Extensions" if interface.version == "1.0" else "X-A2A-Extensions"
        # Credentials go to the host that the operator named and to no other.
        self._trusted = trusted
        # Every object of the protocol that came this way, for those who look at shapes.
        self.heard: list[tuple[JsonPiece, ProbeExchange]] = []
        self.refusals: list[ProbeAnswer] = []

    def headers(self, *more: tuple[str, str], version: str | None = None) -> Headers:
        """What goes with a request; another version than this way's may be claimed, or none."""
        asked = (self.version if self.version == "1.0" else "") if version is None else version
        found: list[tuple[str, str]] = [*more]
        if not any(name == "Accept" for name, _ in more):
            found.append(("Accept", "application/json, application/a2a+json"))
        if asked:
            found.append(("A2A-Version", asked))
        required = self.subject.extensions(required=True)
        if required and not any(name == self.extending for name, _ in more):
            found.append((self.extending, ", ".join(required)))
        return (*found, *(self.subject.credentials if self._trusted else ()))

    def request(
        self,
        operation: str,
        given: dict[str, Any],
        *,
        version: str | None = None,
        request_id: object = None,
        headers: Headers = (),
    ) -> HttpRequest:
        """The request of an operation. Parameters are as in 1.0."""
        if self.interface.tenant:
            given = {"tenant": self.interface.tenant, **given}
        accept = (("Accept", "text/event-stream"),) if operation in _STREAMS else ()
        if self.is_rpc:
            body = {
                "jsonrpc": "2.0",
                "id": request_id if request_id is not None else f"doctor-{random_bits(48):012x}",
                "method": method(operation, self.version),
                "params": params(operation, given, self.version),
            }
            return self.posting(encoded(body), *accept, *headers, version=version)
        where = route(operation, given)
        content = None if where.body is None else encoded(where.body)
        more = (("Content-Type", _JSON),) if content is not None else ()
        sent = self.headers(*more, *accept, *headers, version=version)
        return HttpRequest(where.verb, self.url + where.path, sent, content)

    def posting(self, body: bytes, *headers: tuple[str, str], version: str | None = None) -> HttpRequest:
        """A POST of these bytes to the JSON-RPC endpoint."""
        named = {name.lower() for name, _ in headers}
        more = () if "content-type" in named else (("Content-Type", _JSON),)
        return HttpRequest("POST", self.url, self.headers(*more, *headers, version=version), body)

    async def call(
        self,
        operation: str,
        given: dict[str, Any],
        *,
        timeout_s: float | None = None,
        version: str | None = None,
        request_id: object = None,
        odd: bool = False,
    ) -> ProbeAnswer:
        """Do an operation. What comes of an odd request says nothing about the shape of answers."""
        request = self.request(operation, given, version=version, request_id=request_id)
        seen = await self.subject.line.fetch(request, operation, timeout_s)
        heard = len(self.heard)
        answer = self.understood(seen)
        if operation in ("send", "get", "cancel"):
            self.subject.note(self, unwrapped(answer.result), new=operation == "send")
        if odd:
            self._disregard(answer, heard)
        return answer

    def _disregard(self, answer: ProbeAnswer, heard: int) -> None:
        """Forget the shape of this answer, and of its task wherever that comes up again."""
        del self.heard[heard:]
        found = unwrapped(answer.result)
        if found is not None:
            self.subject.odd.add(text(found.value.get("id")))

    async def post(self, body: bytes, *headers: tuple[str, str], version: str | None = None) -> ProbeAnswer:
        """Send these bytes to the JSON-RPC endpoint."""
        request = self.posting(body, *headers, version=version)
        return self.understood(await self.subject.line.fetch(request))

    async def follow(
        self,
        operation: str,
        given: dict[str, Any],
        *,
        timeout_s: float | None = None,
        after: str = "",
        enough: Callable[[ProbeFrame], bool] | None = None,
    ) -> FrameLog:
        """Do an operation that streams."""
        headers = (("Last-Event-ID", after),) if after else ()
        request = self.request(operation, given, headers=headers)

        def stop(event: sse.SseEvent) -> bool:
            frame = self._frame(event)
            # At once, so that an examination that is interrupted knows what it has begun.
            self.subject.note(self, frame.piece, new=operation == "stream")
            return enough is not None and enough(frame)

        limit_s = self.subject.send_s if timeout_s is None else timeout_s
        seen = await self.subject.line.follow(request, operation, limit_s, stop)
        frames = tuple(self._frame(event) for event in seen.events)
        self.heard += [(frame.piece, seen) for frame in frames if frame.piece is not None]
        if seen.media_type == "text/event-stream":
            refusal = self._refusal_in(seen, frames)
            return FrameLog(seen, frames, refusal)
        return FrameLog(seen, frames, self.understood(seen))

    def _refusal_in(self, seen: ProbeExchange, frames: tuple[ProbeFrame, ...]) -> ProbeAnswer | None:
        """An error that came as the only event of a stream."""
        error = members(frames[0].envelope).get("error") if len(frames) == 1 else None
        return None if error is None else self._refused(seen, error)

    def _frame(self, event: sse.SseEvent) -> ProbeFrame:
        envelope = parsed(event.data)
        result = at(envelope, "result") if self.is_rpc else envelope
        return ProbeFrame(event.id, envelope, result, unwrapped(result))

    def understood(self, seen: ProbeExchange) -> ProbeAnswer:
        """Read an answer; one that says nothing readable is neither a result nor a refusal."""
        body = seen.json
        error = members(body).get("error")
        if error is not None or (not self.is_rpc and seen.status >= 400):
            answer = self._refused(seen, error if error is not None else body)
            self.refusals.append(answer)
            return answer
        if self.is_rpc:
            if "result" not in members(body):
                return ProbeAnswer(seen, refused=seen.status >= 400, message=_excerpt(seen))
            body = body["result"]
        found = unwrapped(body)
        if found is not None:
            self.heard.append((found, seen))
        for task in items(at(body, "tasks")):
            self.heard.append((JsonPiece("task", members(task), "task"), seen))
        return ProbeAnswer(seen, result=body)

    def _refused(self, seen: ProbeExchange, error: object) -> ProbeAnswer:
        details = items(at(error, "data" if self.is_rpc else "details"))
        reason = next((text(at(one, "reason")) for one in details if at(one, "reason")), "")
        code = at(error, "code")
        if not self.is_rpc:
            code = _REASONS.get(reason, 0)
        return ProbeAnswer(
            seen,
            refused=True,
            code=code if isinstance(code, int) else 0,
            reason=reason,
            message=text(at(error, "message")) or _excerpt(seen),
            error=error,
        )


def _excerpt(seen: ProbeExchange) -> str:
    return seen.body[:120].decode(errors="replace").strip()
