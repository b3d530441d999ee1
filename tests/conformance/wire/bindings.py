"""Every way to speak to an agent, with the same names for the same things.

`Rpc` and `Rest` speak 1.0; `Rpc03`, `Proto03` (HTTP+JSON of 0.3 under /v1) and `Alias03` (its short
paths) speak 0.3. Bodies are written out here, so that nothing of the product judges itself.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from tests.harness import Frames

# The table of the 1.0.1 specification: reason → JSON-RPC code, HTTP status, gRPC name.
TABLE = {
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400, "INVALID_ARGUMENT"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
    "INVALID_PARAMS": (-32602, 400, "INVALID_ARGUMENT"),
    "INVALID_REQUEST": (-32600, 400, "INVALID_ARGUMENT"),
    "PARSE_ERROR": (-32700, 400, "INVALID_ARGUMENT"),
}
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
UNKNOWN = "01900000-0000-7000-8000-000000000000"


@dataclass
class Answer:
    """A whole HTTP answer; `result` is what stands inside the JSON-RPC envelope, if there is one."""

    http: int
    headers: httpx2.Headers
    body: bytes
    document: Any
    result: Any
    error: Any

    @property
    def task(self) -> Any:
        assert self.error is None, self.body
        assert "task" in self.result, self.body
        return self.result["task"]

    @property
    def details(self) -> list[Any]:
        return self.error.get("data") or self.error.get("details") or []

    @property
    def reason(self) -> str:
        return next((one["reason"] for one in self.details if one["@type"] == ERROR_INFO), "")

    @property
    def fields(self) -> list[str]:
        return [
            violation["field"]
            for one in self.details
            if one["@type"] == BAD_REQUEST
            for violation in one["fieldViolations"]
        ]


class Binding:
    """Calls of A2A; each gives an `Answer`, streaming ones an open `Frames`."""

    name = ""
    version = ""

    def __init__(self, base: str, http: httpx2.Client, headers: dict[str, str] | None = None) -> None:
        self.base = base
        self.http = http
        self.headers = headers or {}

    def message(self, text: str = "", *, parts: list[Any] | None = None, **more: Any) -> dict[str, Any]:
        return {
            "messageId": str(uuid.uuid4()),
            "role": "ROLE_USER",
            "parts": [{"text": text}] if parts is None else parts,
            **more,
        }

    def body(self, message: Any, *, wait: bool | None = None, **configuration: Any) -> dict[str, Any]:
        if wait is not None:
            configuration["returnImmediately"] = not wait
        return {"message": message, **({"configuration": configuration} if configuration else {})}

    def post_message(self, body: Any, headers: dict[str, str] | None = None) -> Answer:
        raise NotImplementedError

    def send(self, text: str, *, wait: bool | None = None, **more: Any) -> Any:
        """The Task that a text leads to."""
        return self.post_message(self.body(self.message(text, **more), wait=wait)).task

    def send_message(
        self, message: Any, headers: dict[str, str] | None = None, **configuration: Any
    ) -> Answer:
        return self.post_message(self.body(message, **configuration), headers)

    def exchange(self, verb: str, url: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content else {}
        return self.http.request(verb, url, content=content, headers={**kind, **self.headers, **headers})

    @contextmanager
    def opened(self, verb: str, url: str, body: Any, headers: dict[str, str]) -> Iterator[Frames]:
        content = b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content else {}
        with self.http.stream(
            verb, url, content=content, headers={**kind, **self.headers, **headers}
        ) as response:
            if response.headers.get("content-type") != "text/event-stream":
                raise Refusal(self.answer(response, response.read()))
            yield Frames(response)

    def answer(self, response: httpx2.Response, body: bytes) -> Answer:
        raise NotImplementedError

    def expect(self, answer: Answer, reason: str) -> None:
        """The answer is this error, mapped as the table says."""
        raise NotImplementedError


class Refusal(Exception):
    """A stream that was not opened."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body)
        self.answer = answer


class Rpc(Binding):
    name, version = "JSONRPC", "1.0"
    METHODS = {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "list": "ListTasks",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
        "push_set": "CreateTaskPushNotificationConfig",
        "push_get": "GetTaskPushNotificationConfig",
        "push_list": "ListTaskPushNotificationConfigs",
        "push_delete": "DeleteTaskPushNotificationConfig",
        "extended_card": "GetExtendedAgentCard",
    }

    @property
    def url(self) -> str:
        return self.base + "/a2a"

    def versioned(self, headers: dict[str, str] | None) -> dict[str, str]:
        return {"A2A-Version": self.version, **(headers or {})}

    def call(self, operation: str, params: Any, headers: dict[str, str] | None = None) -> Answer:
        body = {"jsonrpc": "2.0", "id": 1, "method": self.METHODS[operation], "params": params}
        response = self.exchange("POST", self.url, body, self.versioned(headers))
        return self.answer(response, response.content)

    def answer(self, response: httpx2.Response, body: bytes) -> Answer:
        document = json.loads(body) if body else {}
        return Answer(
            response.status_code,
            response.headers,
            body,
            document,
            document.get("result"),
            document.get("error"),
        )

    def expect(self, answer: Answer, reason: str) -> None:
        assert answer.error is not None, answer.body
        assert (answer.http, answer.error["code"], answer.reason) == (200, TABLE[reason][0], reason), (
            answer.body
        )

    def post_message(self, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.call("send", body, headers)

    def get(self, task_id: str, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.call("get", {"id": task_id, **query}, headers)

    def list(self, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.call("list", query, headers)

    def cancel(self, task_id: str, headers: dict[str, str] | None = None) -> Answer:
        return self.call("cancel", {"id": task_id}, headers)

    def push(self, what: str, task_id: str) -> Answer:
        config = {"taskId": task_id, "id": "c1", "url": "https://example.com/hook"}
        return self.call(f"push_{what}", config)

    def extended_card(self) -> Answer:
        return self.call("extended_card", {})

    @contextmanager
    def stream_of(self, operation: str, params: Any, headers: dict[str, str]) -> Iterator[Frames]:
        body = {"jsonrpc": "2.0", "id": 1, "method": self.METHODS[operation], "params": params}
        with self.opened("POST", self.url, body, self.versioned(headers)) as frames:
            yield frames

    def stream(self, message: Any, **more: Any) -> Any:
        if isinstance(message, str):
            message = self.message(message)
        return self.stream_of("stream", self.body(message, **more), {})

    def subscribe(self, task_id: str, last: str | None = None) -> Any:
        return self.stream_of("subscribe", {"id": task_id}, {} if last is None else {"Last-Event-ID": last})


class Rest(Binding):
    name, version, prefix = "HTTP+JSON", "1.0", ""

    def versioned(self, headers: dict[str, str] | None) -> dict[str, str]:
        return {"A2A-Version": self.version, **(headers or {})}

    def call(self, verb: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        response = self.exchange(verb, self.base + self.prefix + path, body, self.versioned(headers))
        return self.answer(response, response.content)

    def answer(self, response: httpx2.Response, body: bytes) -> Answer:
        document = json.loads(body) if body else {}
        error = document.get("error") if response.status_code >= 400 else None
        return Answer(response.status_code, response.headers, body, document, document, error)

    def expect(self, answer: Answer, reason: str) -> None:
        assert answer.error is not None, answer.body
        _, http, grpc = TABLE[reason]
        seen = (answer.http, answer.error["code"], answer.error["status"], answer.reason)
        assert seen == (http, http, grpc, reason), answer.body

    def post_message(self, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.call("POST", "/message:send", body, headers)

    def get(self, task_id: str, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.call("GET", f"/tasks/{quote(task_id, safe='')}{_query(query)}", None, headers)

    def list(self, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.call("GET", f"/tasks{_query(query)}", None, headers)

    def cancel(self, task_id: str, headers: dict[str, str] | None = None) -> Answer:
        return self.call("POST", f"/tasks/{task_id}:cancel", None, headers)

    def push(self, what: str, task_id: str) -> Answer:
        configs = f"/tasks/{task_id}/pushNotificationConfigs"
        if what == "set":
            return self.call("POST", configs, {"url": "https://example.com/hook"})
        verb = {"get": "GET", "list": "GET", "delete": "DELETE"}[what]
        return self.call(verb, configs if what == "list" else f"{configs}/c1")

    def extended_card(self) -> Answer:
        return self.call("GET", "/extendedAgentCard")

    def stream(self, message: Any, **more: Any) -> Any:
        if isinstance(message, str):
            message = self.message(message)
        body = self.body(message, **more)
        return self.opened("POST", f"{self.base}{self.prefix}/message:stream", body, self.versioned(None))

    def subscribe(self, task_id: str, last: str | None = None, verb: str = "POST") -> Any:
        headers = self.versioned({} if last is None else {"Last-Event-ID": last})
        return self.opened(verb, f"{self.base}{self.prefix}/tasks/{task_id}:subscribe", None, headers)


class _Spoken03:
    """What the 0.3 dialects with `kind` share."""

    def message(self, text: str = "", *, parts: list[Any] | None = None, **more: Any) -> dict[str, Any]:
        return {
            "kind": "message",
            "messageId": str(uuid.uuid4()),
            "role": "user",
            "parts": [{"kind": "text", "text": text}] if parts is None else parts,
            **more,
        }

    def body(self, message: Any, *, wait: bool | None = None, **configuration: Any) -> dict[str, Any]:
        if wait is not None:
            configuration["blocking"] = wait
        return {"message": message, **({"configuration": configuration} if configuration else {})}

    def send(self, text: str, *, wait: bool | None = None, **more: Any) -> Any:
        answer = self.post_message(self.body(self.message(text, **more), wait=wait))  # type: ignore[attr-defined]
        assert answer.error is None, answer.body
        return answer.result


class Rpc03(_Spoken03, Rpc):
    name, version = "JSONRPC", "0.3"
    METHODS = {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "list": "tasks/list",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
        "push_set": "tasks/pushNotificationConfig/set",
        "push_get": "tasks/pushNotificationConfig/get",
        "push_list": "tasks/pushNotificationConfig/list",
        "push_delete": "tasks/pushNotificationConfig/delete",
        "extended_card": "agent/getAuthenticatedExtendedCard",
    }

    def versioned(self, headers: dict[str, str] | None) -> dict[str, str]:
        return headers or {}


class _Rest03(Rest):
    """REST of 0.3 names no version; its errors are flat."""

    version = "0.3"

    def versioned(self, headers: dict[str, str] | None) -> dict[str, str]:
        return headers or {}

    def answer(self, response: httpx2.Response, body: bytes) -> Answer:
        document = json.loads(body) if body else {}
        error = document if response.status_code >= 400 else None
        return Answer(response.status_code, response.headers, body, document, document, error)


class Alias03(_Spoken03, _Rest03):
    name = "alias"


class Proto03(_Rest03):
    name, prefix = "HTTP+JSON", "/v1"

    def message(self, text: str = "", *, parts: list[Any] | None = None, **more: Any) -> dict[str, Any]:
        content = [{"text": text}] if parts is None else parts
        return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "content": content, **more}

    def body(self, message: Any, *, wait: bool | None = None, **configuration: Any) -> dict[str, Any]:
        # ProtoJSON leaves a false flag out: absent means that nobody waits.
        if wait:
            configuration["blocking"] = True
        return {"message": message, **({"configuration": configuration} if configuration else {})}

    def extended_card(self) -> Answer:
        return self.call("GET", "/card")


BINDINGS = {"rpc": Rpc, "rest": Rest}
DIALECTS = {"rpc03": Rpc03, "proto03": Proto03, "alias03": Alias03}
EVERY = {**BINDINGS, **DIALECTS}


def refused(opening: Any) -> Answer:
    """The answer to a stream that must not open."""
    try:
        with opening as frames:
            raise AssertionError(f"a stream was opened: {frames.all()}")
    except Refusal as refusal:
        return refusal.answer


def _query(query: dict[str, Any]) -> str:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return f"?{urlencode(given)}" if given else ""
