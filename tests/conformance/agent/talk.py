"""A conversation with one agent in one version: the operations by their plain names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness import Agent, Frame, Frames, params, plain_state

VERSIONS = ("1.0", "0.3")
METHODS = {
    "1.0": {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "list": "ListTasks",
        "cancel": "CancelTask",
        "resubscribe": "SubscribeToTask",
        "push set": "CreateTaskPushNotificationConfig",
        "push get": "GetTaskPushNotificationConfig",
        "push list": "ListTaskPushNotificationConfigs",
        "push delete": "DeleteTaskPushNotificationConfig",
    },
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "list": "tasks/list",
        "cancel": "tasks/cancel",
        "resubscribe": "tasks/resubscribe",
        "push set": "tasks/pushNotificationConfig/set",
        "push get": "tasks/pushNotificationConfig/get",
        "push list": "tasks/pushNotificationConfig/list",
        "push delete": "tasks/pushNotificationConfig/delete",
    },
}
_URI = "https://proto-labs.ai/a2a/ext/"
_REPORT = "application/vnd.protolabs."
TERMINAL = ("completed", "failed", "canceled", "rejected")
_WRAPPERS = {
    "task": "task",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
    "message": "message",
}


class Talk:
    """One agent, one version."""

    def __init__(self, agent: Agent, version: str) -> None:
        self.agent = agent
        self.version = version
        self.methods = METHODS[version]

    def send(self, text: str, *, wait: bool = True, **message: Any) -> Any:
        return self.agent.send(text, version=self.version, wait=wait, **message)

    def send_error(self, text: str, **message: Any) -> Any:
        return self.error("send", params(text, self.version, **message))

    def result(self, operation: str, given: Any) -> Any:
        return self.agent.result(self.methods[operation], given, version=self.version)

    def error(self, operation: str, given: Any) -> Any:
        return self.agent.error(self.methods[operation], given, version=self.version)

    def get(self, task_id: str) -> Any:
        return self.agent.get(task_id, version=self.version)

    def until(self, task_id: str, *states: str) -> Any:
        return self.agent.until(task_id, *states, version=self.version)

    def count(self) -> int:
        """How many tasks the agent has of us."""
        return self.result("list", {"pageSize": 1})["totalSize"]

    @contextmanager
    def stream(self, text: str, **message: Any) -> Iterator[Frames]:
        with self.open("stream", params(text, self.version, **message)) as frames:
            yield frames

    @contextmanager
    def resubscribe(self, task_id: str, **headers: str) -> Iterator[Frames]:
        with self.open("resubscribe", {"id": task_id}, **headers) as frames:
            yield frames

    @contextmanager
    def open(self, operation: str, given: Any, **headers: str) -> Iterator[Frames]:
        with self.agent.stream(self.methods[operation], given, version=self.version, **headers) as frames:
            assert frames.response.headers["content-type"].startswith("text/event-stream"), (
                frames.response.read()
            )
            yield frames

    def log(self, task_id: str) -> list[Frame]:
        """Every event of a task that is over, from the first on."""
        with self.resubscribe(task_id, Last_Event_ID="0") as frames:
            return frames.all()


def opened(frame: Frame) -> tuple[str, Any]:
    """The kind of a frame in 0.3 spelling and what it carries, from either version."""
    result = frame.result
    if "kind" in result:
        return result["kind"], result
    (name, body), *others = result.items()
    assert not others, result
    return _WRAPPERS[name], body


def kinds(frames: list[Frame]) -> list[str]:
    return [opened(frame)[0] for frame in frames]


def bodies(frames: list[Frame], kind: str) -> list[Any]:
    return [body for found, body in map(opened, frames) if found == kind]


def text_in(artifact: Any) -> str:
    return "".join(part.get("text", "") for part in artifact["parts"])


def said(task_or_update: Any) -> str:
    """The text of a status message."""
    return text_in(task_or_update["status"].get("message", {"parts": []}))


def assembled(frames: list[Frame]) -> str:
    """The text a client ends up with that follows `append` as it is told."""
    whole: dict[str, str] = {}
    for kind, body in map(opened, frames):
        if kind == "task":
            whole = {one["artifactId"]: text_in(one) for one in body.get("artifacts", [])}
        elif kind == "artifact-update":
            artifact = body["artifact"]
            before = whole.get(artifact["artifactId"], "") if body.get("append") else ""
            whole[artifact["artifactId"]] = before + text_in(artifact)
    return "".join(whole.values())


def deltas(frames: list[Frame]) -> list[str]:
    """The texts that readers are told to add, the first of each artifact included."""
    seen: set[str] = set()
    found: list[str] = []
    for body in bodies(frames, "artifact-update"):
        artifact_id = body["artifact"]["artifactId"]
        if body.get("append") or artifact_id not in seen:
            found.append(text_in(body["artifact"]))
        seen.add(artifact_id)
    return found


def report_of(part: Any) -> str:
    """The extension that a part is a report of; in 0.3 one of them has a media type without its version."""
    kind = part.get("metadata", {}).get("mimeType", "")
    if not kind.startswith(_REPORT):
        return ""
    name = kind.removeprefix(_REPORT).removesuffix("+json")
    return "worldstate-delta-v1" if name == "worldstate-delta" else name


def data_parts(task: Any, extension: str) -> list[Any]:
    """The values of data parts that name an extension's media type."""
    return [
        part["data"]
        for artifact in task.get("artifacts", [])
        for part in artifact["parts"]
        if report_of(part) == extension
    ]


def reports_in(talk: Talk, task: Any, extension: str) -> list[Any]:
    """The reports of an extension to a caller that named none: metadata, and in 0.3 parts beside it."""
    holders = [task, *task.get("artifacts", [])]
    found = [
        one["metadata"][_URI + extension] for one in holders if _URI + extension in one.get("metadata", {})
    ]
    assert all(one["parts"] for one in task.get("artifacts", []))
    assert data_parts(task, extension) == (found if talk.version == "0.3" else [])
    return found


def states(frames: list[Frame]) -> list[str]:
    return [plain_state(body) for body in bodies(frames, "status-update")]


def until(true: Callable[[], Any], limit_s: float = 10.0) -> Any:
    """Poll until something is true, and give it."""
    deadline = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < deadline, "not true in time"
        time.sleep(0.02)
    return found


def member_names(value: Any) -> Iterator[str]:
    """All member names of protocol objects; what callers and skills fill in freely is left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in ("metadata", "data"):
                yield from member_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from member_names(inner)


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
