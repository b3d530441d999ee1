"""Defects that are looked at by one check alone: so every check is seen to fail."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any
from urllib.parse import urlsplit

from tests.doctor.defects import KEY, PUBLIC, Defect, FunctionFault, card, instead, message, objects, rpc
from tests.doctor.faulty_agent import AgentAnswer, Call, Fault, Json, refusal

JSON = {"content-type": "application/json"}
BROKEN = AgentAnswer(500, {"content-type": "text/plain"}, b"Internal Server Error")


def _when(fits: Any, answer: Any) -> FunctionFault:
    """Answer what fits with this: a status, a code, a whole answer, or what a function makes of the call."""

    def answers(call: Call) -> AgentAnswer | None:
        if not fits(call):
            return None
        if isinstance(answer, int) and answer < 0:
            return refusal(call, answer)
        if isinstance(answer, int):
            return AgentAnswer(answer, dict(JSON), b"{}")
        return answer(call) if callable(answer) else answer

    return instead(answers)


def _result(value: Any) -> Any:
    return lambda call: AgentAnswer(
        200,
        dict(JSON),
        json.dumps({"jsonrpc": "2.0", "id": call.document.get("id"), "result": value}).encode(),
    )


def _asks(change: Any) -> FunctionFault:
    return FunctionFault(asks=change)


def _params(method: str, **given: Any) -> FunctionFault:
    """Parameters of a method that are replaced; None takes one away."""

    def ask(call: Call) -> None:
        if call.is_a(method):
            for name, value in given.items():
                call.params.pop(name, None) if value is None else call.params.update({name: value})

    return FunctionFault(asks=ask)


def _unlocated(document: Json) -> None:
    for name in ("supportedInterfaces", "url", "additionalInterfaces"):
        document.pop(name, None)


def _odd_metadata(call: Call, document: Json) -> None:
    for one in document.get("error", {}).get("data", []):
        if "metadata" in one:
            one["metadata"] = {"errors": [1]}


def _filled(call: Call, found: Json) -> None:
    for name, value in (("messageId", "m"), ("role", "ROLE_USER"), ("parts", [{"text": "x"}])):
        found.setdefault(name, value)


def _parts(call: Call, found: Json) -> None:
    if not any("text" in part for part in found.get("parts", [])):
        found["parts"] = [{"text": "x"}]


def _one_id(value: Json) -> None:
    if "status" in value and "id" in value:
        value["id"] = "the-only-one"


def _one_message_more(value: Json) -> None:
    if "history" in value:
        value["history"] = value["history"] * 2


def _canceled(value: Json) -> None:
    if "state" in value:
        value["state"] = "TASK_STATE_CANCELED"


def _speechless(value: Json) -> None:
    if "state" in value:
        value.pop("message", None)


_NUMBERS = itertools.count()


def _numbered(call: Call, document: Json) -> None:
    if isinstance(document.get("result"), dict):
        document["result"]["metadata"] = {"read": next(_NUMBERS)}


def _empty_artifacts(value: Json) -> None:
    if "artifactId" in value:
        value["parts"] = []


def _forgets_the_event(call: Call) -> None:
    call.headers.pop("last-event-id", None)


def _takes_any_hook(call: Call) -> None:
    call.params.get("configuration", {}).pop("taskPushNotificationConfig", None)


def _names_no_task(value: Json) -> None:
    if "parts" in value and value.get("role") == "ROLE_AGENT":
        value["taskId"] = "of-no-task"


def _older_frames(call: Call, frame: Json) -> list[Json]:
    """Updates as in 0.3, within a stream of 1.0."""
    result = frame.get("result", {})
    for name in ("statusUpdate", "artifactUpdate"):
        if name in result:
            frame["result"] = result[name]
    return [frame]


def _follows_twice(call: Call) -> AgentAnswer | None:
    """A subscription to a running task, each piece of which is stored twice."""
    task_id = call.params.get("id")

    def task(text: str, state: str) -> Json:
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        return {"id": task_id, "contextId": "c", "status": {"state": state}, "artifacts": [artifact]}

    if call.is_a("GetTask"):
        return _result(task("one twotwo", "TASK_STATE_COMPLETED"))(call)
    if not call.is_a("SubscribeToTask"):
        return None
    piece = {"taskId": task_id, "contextId": "c", "append": True}
    frames = [
        {"task": task("one ", "TASK_STATE_WORKING")},
        {"artifactUpdate": {**piece, "artifact": {"artifactId": "a", "parts": [{"text": "two"}]}}},
    ]
    bodies = [{"jsonrpc": "2.0", "id": call.document.get("id"), "result": one} for one in frames]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in bodies)
    return AgentAnswer(200, {"content-type": "text/event-stream"}, body.encode())


def _requiring(document: Json) -> None:
    document["capabilities"]["extensions"].append({"uri": "https://must.example/v1", "required": True})


class _Babbler(Fault):
    """Tells the webhook something that is no notification."""

    async def instead(self, call: Call) -> AgentAnswer | None:
        config = call.params.get("configuration", {}).get("taskPushNotificationConfig")
        if config is None:
            return None
        del call.params["configuration"]["taskPushNotificationConfig"]
        call.body = json.dumps(call.document).encode()
        place = urlsplit(config["url"])
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        token = config["token"]
        head = (
            f"POST {place.path} HTTP/1.1\r\nX-A2A-Notification-Token: {token}\r\nContent-Length: 12\r\n\r\n"
        )
        writer.write(head.encode() + b'{"hello": 1}')
        await reader.read()
        writer.close()
        await writer.wait_closed()
        return None


def _is_v1(call: Call) -> bool:
    return call.headers.get("a2a-version") == "1.0"


_FAULTS: list[tuple[str, Fault, dict[str, Any]]] = [
    ("card-public", _when(lambda c: c.is_card and "x-api-key" not in c.headers, 401), {"settings": {"keys": (KEY,)}}),
    ("card-head", _when(lambda c: c.verb == "HEAD", BROKEN), {}),
    ("interface-listed", card(_unlocated), {}),
    ("interface-trailing-slash", _when(lambda c: c.path == "/a2a/", 404), {}),
    ("unknown-task", _when(lambda c: c.is_a("GetTask"), -32000), {}),
    ("version-query-parameter", _when(lambda c: "A2A-Version" in c.query, -32009), {}),
    ("version-absent-is-0.3", _when(lambda c: c.is_a("tasks/get") and not _is_v1(c), -32603), {}),
    ("version-mixed-method", _when(lambda c: c.is_a("tasks/get") and _is_v1(c), -32603), {}),
    ("rpc-invalid-request", _when(lambda c: "hello" in c.document, -32602), {}),
    ("rpc-batch", _when(lambda c: c.body.startswith(b"["), BROKEN), {}),
    ("error-metadata-texts", rpc(_odd_metadata), {"only": ("error-metadata-texts", "unknown-task")}),
    ("rpc-get-refused", _when(lambda c: c.verb == "GET" and c.path == "/a2a", BROKEN), {}),
    ("rest-wrong-verb", _when(lambda c: c.verb == "DELETE", 200), {}),
    ("rest-bad-json", _when(lambda c: c.body == b'{"message": ', 500), {}),
    ("rest-media-type", _when(lambda c: "a2a+json" in c.headers.get("content-type", ""), 415), {}),
    ("rest-subscribe-verbs", _when(lambda c: c.verb == "GET" and ":subscribe" in c.path, 405), {}),
    ("bindings-share-tasks", _when(lambda c: c.method.startswith("GET /tasks/"), 404), {}),
    ("send-return-immediately", _when(lambda c: c.is_a("GetTask"), -32001), {}),
    ("send-tasks-distinct", objects(_one_id), {}),
    ("send-bad-message", message(_filled), {}),
    ("send-empty-parts", message(_parts), {}),
    ("send-part-without-content", message(_parts), {}),
    ("unknown-members-ignored", _when(lambda c: "trunklineDoctor" in c.params, -32602), {}),
    ("send-result-in-artifacts", objects(lambda one: one.pop("artifacts", None)), {}),
    ("send-failure-explained", objects(_speechless), {"text": "fail"}),
    ("question-continues-task", message(lambda call, one: one.pop("taskId", None)), {"text": "ask"}),
    ("get-repeatable", rpc(_numbered, "GetTask"), {}),
    ("history-limit", objects(_one_message_more), {}),
    ("list-context-filter", _params("ListTasks", contextId=None), {}),
    ("list-artifacts-hidden", _params("ListTasks", includeArtifacts=True), {}),
    ("list-bad-page-token", _params("ListTasks", pageToken=None), {}),
    ("stream-survives-drop", rpc(lambda call, one: _canceled(one.get("result", {}).get("status", {})), "GetTask"), {}),
    ("stream-resume", _asks(_forgets_the_event), {}),
    ("push-unknown-task", _when(lambda c: c.is_a("ListTaskPush"), _result({"configs": []})), {}),
    ("push-body", _Babbler(), {"settings": {"dev": True}, "timeout_s": 2}),
    ("push-refuses-loopback", Fault(), {**PUBLIC, "settings": {**PUBLIC["settings"], "dev": True}}),
    ("extended-card", _when(lambda c: c.is_a("GetExtendedAgentCard"), _result({"name": "x"})), {}),
    ("push-refuses-with-message", _asks(_takes_any_hook), {}),
    ("extension-required", card(_requiring), {}),
    ("extension-unknown-ignored", _when(lambda c: "nobody-knows" in c.headers.get("a2a-extensions", ""), -32602), {}),
    ("send-message-task-exists", objects(_names_no_task), {"text": "message hello", "only": ("sending", "streaming", "subscribing")}),
    ("subscribe-refusal-codes", _when(lambda c: c.is_a("SubscribeToTask"), -32000), {"only": ("subscribing",)}),
    ("subscribe-changes-nothing", instead(_follows_twice), {}),
    ("wire-wrapper", FunctionFault(frames=_older_frames), {}),
    ("wire-artifacts", objects(_empty_artifacts), {"only": ("wire-artifacts", "sending")}),
    ("body-limit", _when(lambda c: len(c.body) > 1_000_000, BROKEN), {}),
    ("deep-nesting", _when(lambda c: b"[[[[" in c.body, BROKEN), {}),
    ("no-internal-errors", _when(lambda c: c.is_a("CancelTask"), -32603), {"only": ("no-internal-errors", "canceling")}),
]  # fmt: skip


def _defect(name: str, fault: Fault, more: dict[str, Any]) -> Defect:
    options = {key: more[key] for key in ("text", "only", "timeout_s") if key in more}
    options.setdefault("only", (name,))
    return Defect(
        name, (name,), fault, more.get("settings", {}), options, more.get("url", "http://localhost")
    )


SINGLE_DEFECTS = [_defect(*one) for one in _FAULTS]
