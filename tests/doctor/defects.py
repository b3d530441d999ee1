"""The seeded defects: what is wrong with each agent, and the checks that must say so, all of them by name."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.doctor.faulty_agent import AgentAnswer, Call, Fault, Json, never, refusal

KEY = "a-key-for-the-doctor"


@dataclass
class FunctionFault(Fault):
    """A fault put together from functions."""

    asks: Callable[[Call], None] | None = None
    answers: Callable[[Call], Awaitable[AgentAnswer | None]] | None = None
    tells: Callable[[Call, AgentAnswer], None] | None = None
    frames: Callable[[Call, Json], list[Json]] | None = None
    ends: Callable[[Call], Awaitable[None]] | None = None

    def ask(self, call: Call) -> None:
        if self.asks is not None:
            self.asks(call)

    async def instead(self, call: Call) -> AgentAnswer | None:
        return None if self.answers is None else await self.answers(call)

    def tell(self, call: Call, answer: AgentAnswer) -> None:
        if self.tells is not None:
            self.tells(call, answer)

    def frame(self, call: Call, frame: Json) -> list[Json]:
        return [frame] if self.frames is None else self.frames(call, frame)

    async def end(self, call: Call) -> None:
        if self.ends is not None:
            await self.ends(call)


@dataclass
class Defect:
    """One sick agent. `checks` are all that fail; the first is the one that names it."""

    name: str
    checks: tuple[str, ...]
    fault: Fault
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    url: str = "http://localhost"


PUBLIC = {"url": "https://agent.example", "settings": {"public_url": "https://agent.example"}}
# What hangs is waited for, so that less than usual; sound answers must come within a quarter of it.
QUICK = {"timeout_s": 6.0}


def card(change: Callable[[Json], object]) -> FunctionFault:
    """A card that is changed on its way out."""

    def tell(call: Call, answer: AgentAnswer) -> None:
        document = answer.document
        if call.is_card and isinstance(document, dict):
            change(document)
            answer.document = document

    return FunctionFault(tells=tell)


def served(change: Callable[[AgentAnswer], object], path: str = "/.well-known/agent") -> FunctionFault:
    """A card that is served in another way."""

    def tell(call: Call, answer: AgentAnswer) -> None:
        if path in call.path:
            change(answer)

    return FunctionFault(tells=tell)


def rpc(change: Callable[[Call, Json], object], *methods: str) -> FunctionFault:
    """JSON-RPC answers that are changed on their way out; of some methods only, if any are named."""

    def tell(call: Call, answer: AgentAnswer) -> None:
        document = answer.document
        if call.is_rpc and isinstance(document, dict) and (not methods or call.is_a(*methods)):
            change(call, document)
            answer.document = document

    return FunctionFault(tells=tell)


def objects(change: Callable[[Json], object], version: str = "1.0") -> FunctionFault:
    """Every object in every result of a version, in answers and streams."""

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            change(value)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(inner)

    def fits(call: Call) -> bool:
        return call.is_rpc and (call.headers.get("a2a-version", "0.3") == version)

    def tell(call: Call, answer: AgentAnswer) -> None:
        document = answer.document
        if fits(call) and isinstance(document, dict) and "result" in document:
            walk(document["result"])
            answer.document = document

    def frame(call: Call, one: Json) -> list[Json]:
        if fits(call):
            walk(one.get("result"))
        return [one]

    return FunctionFault(tells=tell, frames=frame)


def instead(answer: Callable[[Call], AgentAnswer | None]) -> FunctionFault:
    """Some requests are answered without the agent."""

    async def answers(call: Call) -> AgentAnswer | None:
        return answer(call)

    return FunctionFault(answers=answers)


def header(name: str, value: str, also: str = "", more: str = "") -> FunctionFault:
    def tell(call: Call, answer: AgentAnswer) -> None:
        if call.is_rpc:
            answer.headers[name] = value
            if also:
                answer.headers[also] = more

    return FunctionFault(tells=tell)


def hanging(*words: str) -> FunctionFault:
    async def answer(call: Call) -> AgentAnswer | None:
        if call.is_a(*words):
            await never()
        return None

    return FunctionFault(answers=answer)


def rename(value: Json, old: str, new: str) -> None:
    if old in value:
        value[new] = value.pop(old)


def put(value: Json, name: str, was: Any, now: Any) -> None:
    if value.get(name) == was:
        value[name] = now


def message(change: Callable[[Call, Json], object]) -> FunctionFault:
    """Messages that are changed on their way in."""

    def ask(call: Call) -> None:
        found = call.params.get("message")
        if isinstance(found, dict):
            change(call, found)

    return FunctionFault(asks=ask)


def asked_version(old: str, new: str) -> FunctionFault:
    def ask(call: Call) -> None:
        put(call.headers, "a2a-version", old, new)

    return FunctionFault(asks=ask)


def _first_gone(call: Call, one: Json) -> list[Json]:
    kind = one.get("result", one)
    return [] if "task" in kind or kind.get("kind") == "task" else [one]


def _said_twice(call: Call, one: Json) -> list[Json]:
    update = one.get("result", one).get("artifactUpdate")
    return (
        [one] if update is None else [one, {**one, "result": {"artifactUpdate": {**update, "append": True}}}]
    )


def _ends_twice(call: Call, one: Json) -> list[Json]:
    update = one.get("result", one).get("statusUpdate")
    if update is None or "COMPLETED" not in update["status"]["state"] or not call.is_rpc:
        return [one]
    return [one, one]


def _without(call: Call, document: Json, *path: str) -> None:
    value: Any = document
    for name in path[:-1]:
        value = value.get(name, {}) if isinstance(value, dict) else {}
    if isinstance(value, dict):
        value.pop(path[-1], None)


async def _hold(call: Call) -> None:
    if call.is_a("SendStreamingMessage"):
        await never()


def _always_canceled(call: Call) -> AgentAnswer | None:
    if not call.is_a("CancelTask", "tasks/cancel"):
        return None
    state = "TASK_STATE_CANCELED" if call.is_a("CancelTask") else "canceled"
    task = {"id": call.params.get("id"), "contextId": "x", "status": {"state": state}}
    task |= {} if call.is_a("CancelTask") else {"kind": "task"}
    answer = refusal(call, 0)
    answer.document = {"jsonrpc": "2.0", "id": call.document["id"], "result": task}
    return answer


def _takes_every_hook(call: Call) -> AgentAnswer | None:
    if not call.is_a("CreateTaskPushNotificationConfig"):
        return None
    answer = refusal(call, 0)
    answer.document = {"jsonrpc": "2.0", "id": call.document["id"], "result": {**call.params, "id": "c"}}
    return answer


def _no_method(*words: str) -> FunctionFault:
    return instead(lambda call: refusal(call, -32601) if call.is_rpc and call.is_a(*words) else None)


_NUMBERS = itertools.count()


def _counting(call: Call, found: Json) -> None:
    if "messageId" in found:
        found["messageId"] = f"{found['messageId']}-{next(_NUMBERS)}"


def _html(call: Call, answer: AgentAnswer) -> None:
    if answer.status == 404 and call.path.endswith("/nowhere"):
        answer.headers["content-type"], answer.body = "text/html", b"<h1>Not Found</h1>"


def _trace(call: Call, document: Json) -> None:
    if "error" in document:
        document["error"]["message"] = 'Traceback (most recent call last): File "/app/a.py", line 3'


def _plain_error(call: Call, answer: AgentAnswer) -> None:
    if not call.is_rpc and answer.status == 404 and "/tasks/" in call.path:
        answer.document = {"detail": "Not Found"}


def _unprocessable(call: Call) -> AgentAnswer | None:
    if (
        call.is_rpc
        and call.body
        and not call.document
        and call.body.startswith(b'{"jsonrpc": "2.0", "id": 1')
    ):
        return AgentAnswer(422, {"content-type": "application/json"}, b'{"detail":"Unprocessable"}')
    return None


def _unlabelled(call: Call) -> None:
    call.headers.pop("content-type", None)
    call.headers["content-type"] = "application/json"


def _no_task(call: Call, found: Json) -> None:
    found.pop("taskId", None)


def _no_token(call: Call) -> None:
    for name in ("taskPushNotificationConfig", "pushNotificationConfig"):
        found = call.params.get("configuration", {})
        if isinstance(found, dict) and name in found:
            found[name].pop("token", None)


def _no_hook(call: Call) -> None:
    found = call.params.get("configuration")
    if isinstance(found, dict):
        found.pop("taskPushNotificationConfig", None)
        found.pop("pushNotificationConfig", None)


def _reversed(call: Call, document: Json) -> None:
    document.get("result", {}).get("tasks", []).reverse()


def _more_history(call: Call) -> None:
    if call.is_a("GetTask", "tasks/get"):
        call.params.pop("historyLength", None)


def _no_status(call: Call) -> None:
    call.params.pop("status", None) if call.is_a("ListTasks") else None


def _any_size(call: Call) -> None:
    if call.is_a("ListTasks"):
        call.params.pop("pageSize", None)


def _other_words(call: Call, document: Json) -> None:
    for artifact in (document.get("result") or {}).get("artifacts", []):
        artifact["parts"] = [{**part, "text": "something else"} for part in artifact["parts"]]


def _at_zone(value: Json) -> None:
    if isinstance(value.get("timestamp"), str):
        value["timestamp"] = value["timestamp"].removesuffix("Z") + "+00:00"


def _bare(call: Call, document: Json) -> None:
    result = document.get("result")
    if isinstance(result, dict) and "task" in result:
        document["result"] = result["task"]


def _open_door(document: Json) -> None:
    document["securitySchemes"] = {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
    document["securityRequirements"] = [{"schemes": {"k": {"list": []}}}]


def _interfaces(document: Json, url: str) -> None:
    for one in document["supportedInterfaces"]:
        one["url"] = url if one["protocolBinding"] == "JSONRPC" else one["url"]


async def _nobody_at_9(call: Call) -> AgentAnswer | None:
    if call.headers.get("host") == "localhost:9":
        await never()
    return None


def _dead_port() -> FunctionFault:
    fault = card(lambda one: _interfaces(one, "http://localhost:9/a2a"))
    fault.answers = _nobody_at_9
    return fault


def _older_layout(document: Json) -> None:
    document["protocolVersion"] = "1.0"
    del document["supportedInterfaces"]
    document["additionalInterfaces"] = []


def _undeclared(document: Json, *names: str) -> None:
    for name in names:
        document["capabilities"][name] = False


def _strings(call: Call, document: Json) -> None:
    document["id"] = str(document.get("id"))


DEFECTS = [
    # Discovery and the card.
    Defect("no card at its path", ("card-found",), served(lambda answer: setattr(answer, "status", 404), "agent-card.json")),
    Defect("no card at the older path", ("card-legacy-path",), served(lambda answer: setattr(answer, "status", 404), "agent.json")),
    Defect("a card as text", ("card-content-type",), served(lambda answer: answer.headers.update({"content-type": "text/plain"}))),
    Defect("no etag", ("card-etag",), served(lambda answer: answer.headers.pop("etag", None))),
    Defect("no cache control", ("card-cache-control",), served(lambda answer: answer.headers.pop("cache-control", None))),
    Defect("no description", ("card-required-members",), card(lambda one: one.pop("description"))),
    Defect("snake case card", ("card-members-camel-case",), card(lambda one: one.update(default_modes=["text/plain"]))),
    Defect("a skill without tags", ("card-skills",), card(lambda one: one["skills"][0].update(tags=[]))),
    Defect("two skills of one id", ("card-skill-ids-unique",), card(lambda one: one["skills"].append(one["skills"][0]))),
    Defect("modes that are words", ("card-modes",), card(lambda one: one.update(defaultInputModes=["text"]))),
    Defect("a scheme that is not there", ("card-security-schemes", "auth-enforced", "auth-wrong-refused"), card(lambda one: one.update(securityRequirements=[{"schemes": {"ghost": {"list": []}}}]))),
    Defect("a secret in the card", ("card-no-secrets",), card(lambda one: one.update(description="key sk-abcdefghijklmnop1234"))),
    Defect("half a provider", ("card-provider",), card(lambda one: one.update(provider={"organization": "x"}))),
    Defect("an odd binding", ("card-binding-names",), card(lambda one: one["supportedInterfaces"].append({"url": "http://localhost:80/x", "protocolBinding": "SOAP", "protocolVersion": "1.0"}))),
    Defect("a version with a patch", ("card-interface-version",), card(lambda one: one["supportedInterfaces"][0].update(protocolVersion="1.0.1"))),
    Defect("an interface without a version", ("card-interface-members",), card(lambda one: one["supportedInterfaces"].append({"url": "http://localhost:80/y", "protocolBinding": "GRPC"}))),
    Defect("a signature without a key", ("card-signature",), card(lambda one: one.update(signatures=[{"protected": "e30", "signature": "x"}]))),
    Defect("loopback in the card", ("card-url-not-private", "card-url-same-host", "card-url-https"), card(lambda one: _interfaces(one, "http://127.0.0.1:8000/a2a")), **PUBLIC),
    Defect("another host in the card", ("card-url-same-host",), card(lambda one: _interfaces(one, "https://other.example/a2a")), **PUBLIC),
    Defect("a dead port in the card", ("card-url-answers", "card-url-same-host"), _dead_port(), options=QUICK),
    Defect("http in the card", ("card-url-https",), card(lambda one: _interfaces(one, "http://agent.example/a2a")), **PUBLIC),
    # Interfaces and versions.
    Defect("a wrong path in the card", ("interface-answers",), card(lambda one: _interfaces(one, "http://localhost:80/wrong"))),
    Defect("1.0 in the older layout", ("card-layout-matches-version",), card(_older_layout)),
    Defect("a version that is not spoken", ("interface-speaks-version",), _no_method("GetTask")),
    Defect("any version", ("version-unknown-refused",), asked_version("9.9", "1.0")),
    Defect("any minor version", ("version-minor-refused",), asked_version("1.1", "1.0")),
    Defect("no patch version", ("version-patch-ignored",), asked_version("1.0.7", "7")),
    # JSON-RPC.
    Defect("422 for broken JSON", ("rpc-parse-error",), instead(_unprocessable)),
    Defect("an odd error for a method", ("rpc-unknown-method",), instead(lambda call: refusal(call, -32000) if call.method == "trunkline/doctor" and len(call.body) < 200 else None)),
    Defect("ids as texts", ("rpc-id-echoed", "rpc-notification"), rpc(_strings, "GetTask", "tasks/get")),
    Defect("JSON as text", ("rpc-content-type",), header("content-type", "text/plain")),
    Defect("no error data", ("rpc-error-data",), rpc(lambda call, one: _without(call, one, "error", "data"))),
    Defect("no jsonrpc", ("rpc-envelope",), rpc(lambda call, one: one.pop("jsonrpc", None))),
    Defect("text/plain is taken", ("rpc-text-plain",), FunctionFault(asks=_unlabelled)),
    Defect("a method is missing", ("rpc-methods-routed",), _no_method("ListTasks")),
    # Shapes.
    Defect("no kind in 0.3", ("wire-kind",), objects(lambda one: one.pop("kind", None), "0.3")),
    Defect("kind in 1.0", ("wire-kind",), objects(lambda one: one.update(kind="x") if "artifactId" in one else None)),
    Defect("older states", ("wire-states",), objects(lambda one: put(one, "state", "TASK_STATE_COMPLETED", "completed"))),
    Defect("older roles", ("wire-roles",), objects(lambda one: put(one, "role", "ROLE_USER", "user"))),
    Defect("snake case", ("wire-camel-case", "wire-required-members", "send-context-made", "send-context-kept", "stream-names-task"), objects(lambda one: rename(one, "contextId", "context_id"))),
    Defect("times with an offset", ("wire-timestamps",), objects(_at_zone)),
    Defect("no artifact ids", ("wire-required-members",), objects(lambda one: one.pop("artifactId", None))),
    Defect("parts that hold nothing", ("wire-parts",), objects(lambda one: rename(one, "text", "words"))),
    Defect("no wrapper", ("wire-wrapper",), rpc(_bare, "SendMessage")),
    # Sending, reading, canceling.
    Defect("no waiting", ("send-waits",), FunctionFault(), settings={"reply": "receipt"}),
    Defect("unknown tasks are made", ("send-unknown-task", "send-to-ended-task", "send-other-context-refused"), message(_no_task)),
    Defect("contexts are replaced", ("send-context-kept",), message(lambda call, one: one.pop("contextId", None))),
    Defect("each message is new", ("send-again-once",), message(_counting)),
    Defect("no send at all", ("send-answers", "rpc-invalid-params"), instead(lambda call: refusal(call, -32000) if call.is_a("SendMessage") else None)),
    Defect("another result is kept", ("get-equals-send", "stream-equals-task"), rpc(_other_words, "GetTask")),
    Defect("all of the history", ("history-zero", "history-negative"), FunctionFault(asks=_more_history)),
    Defect("a list without a total", ("list-members",), rpc(lambda call, one: _without(call, one, "result", "totalSize"), "ListTasks")),
    Defect("the oldest first", ("list-newest-first",), rpc(_reversed, "ListTasks")),
    Defect("any page size", ("list-bad-page-size", "list-paging"), FunctionFault(asks=_any_size)),
    Defect("any status", ("list-bad-status",), FunctionFault(asks=_no_status)),
    Defect("canceled, always", ("cancel-race", "cancel-ended-task", "cancel-unknown-task"), instead(_always_canceled)),
    # Streams.
    Defect("no stream behind its flag", ("stream-method-found",), _no_method("SendStreamingMessage", "message/stream")),
    Defect("JSON for a stream", ("stream-works",), instead(lambda call: refusal(call, -32004) if call.is_a("SendStreamingMessage") else None)),
    Defect("streams without a flag", ("stream-undeclared-refused",), card(lambda one: _undeclared(one, "streaming"))),
    Defect("no first frame", ("stream-first-frame",), FunctionFault(frames=_first_gone)),
    Defect("chunks twice", ("stream-equals-task",), FunctionFault(frames=_said_twice)),
    Defect("two ends", ("stream-one-end",), FunctionFault(frames=_ends_twice)),
    Defect("frames without an id", ("stream-envelope",), FunctionFault(frames=lambda call, one: [{**one, "id": None} if call.is_rpc else one])),
    Defect("no final flag", ("stream-final-flag",), objects(lambda one: one.pop("final", None), "0.3")),
    Defect("a stream that stays open", ("stream-closes",), FunctionFault(ends=_hold), options=QUICK),
    Defect("a subscription to nothing", ("subscribe-unknown-task", "subscribe-ended-task", "subscribe-live"), hanging("SubscribeToTask"), options={**QUICK, "only": ("subscribing",)}),
    # Push.
    Defect("push without a flag", ("push-undeclared-refused",), card(lambda one: _undeclared(one, "pushNotifications"))),
    Defect("every webhook is taken", ("push-refuses-metadata-service", "push-refuses-private-addresses", "push-refuses-other-schemes", "push-config-kept", "push-missing-url", "push-two-configs"), instead(_takes_every_hook)),
    Defect("a webhook that is forgotten", ("push-round-trip", "push-refuses-with-message"), FunctionFault(asks=_no_hook), settings={"dev": True}, options=QUICK),
    Defect("a token that is forgotten", ("push-token",), FunctionFault(asks=_no_token), settings={"dev": True}),
    # Who is let in.
    Defect("an open door", ("auth-enforced", "auth-wrong-refused"), card(_open_door)),
    Defect("no challenge", ("auth-challenge",), FunctionFault(tells=lambda call, answer: answer.headers.pop("www-authenticate", None)), settings={"keys": (KEY,)}),
    Defect("a lock that is not declared", ("auth-declared",), card(lambda one: [one.pop(name, None) for name in ("securitySchemes", "securityRequirements", "security")]), settings={"keys": (KEY,)}),
    Defect("any origin", ("cors-closed",), header("access-control-allow-origin", "https://doctor.example", "access-control-allow-credentials", "true")),
    # HTTP+JSON, errors, hanging.
    Defect("pages for routes", ("rest-unknown-route",), FunctionFault(tells=_html)),
    Defect("plain errors", ("rest-error-body", "rest-error-details"), FunctionFault(tells=_plain_error)),
    Defect("a stack trace", ("errors-say-nothing-inside",), rpc(_trace)),
    Defect("an agent that hangs", ("interface-answers",), hanging("GetTask", "tasks/get", "GET /tasks"), options=QUICK),
    Defect("a send that hangs", ("send-answers", "rpc-invalid-params"), hanging("SendMessage"), options=QUICK),
]  # fmt: skip
