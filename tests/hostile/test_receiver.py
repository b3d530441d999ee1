"""Rows 37 to 39 for webhooks: every member of every body shape spoiled; read, or refused by name, nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.hostile.shapes import Form, doubly, spoil, torn
from trunkline.errors import InvalidParams, ParseError
from trunkline.webhook import Notification, Receiver

TOKEN = "a-token-of-some-length"
HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", "webhook-id": "w-1"}
_STATUS: dict[str, Any] = {
    "state": "completed",
    "timestamp": "2026-01-31T12:00:00.000Z",
    "message": {
        "kind": "message",
        "messageId": "m",
        "role": "agent",
        "parts": [{"kind": "text", "text": "hi"}],
    },
}
_ARTIFACT: dict[str, Any] = {
    "artifactId": "a", "name": "n", "description": "d", "metadata": {"x": 1}, "extensions": ["u"],
    "parts": [
        {"kind": "text", "text": "t"}, {"kind": "data", "data": {"a": 1}},
        {"kind": "file", "file": {"bytes": "aGk=", "name": "f", "mimeType": "text/plain"}}, {"url": "https://x.example/f"},
    ],
}  # fmt: skip
_TASK: dict[str, Any] = {
    "id": "t", "contextId": "c", "kind": "task", "status": _STATUS, "artifacts": [_ARTIFACT], "history": [_STATUS["message"]],
    "metadata": {"k": []},
}  # fmt: skip
_TOLD: dict[str, Any] = {
    "kind": "status-update", "taskId": "t", "contextId": "c", "status": _STATUS, "final": True, "artifact": _ARTIFACT,
    "artifacts": [_ARTIFACT], "metadata": {},
}  # fmt: skip
_ADDED: dict[str, Any] = {
    "kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": _ARTIFACT, "append": False, "lastChunk": True,
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "0.3 status": _TOLD,
    "0.3 artifact": _ADDED,
    "0.3 task": _TASK,
    "0.3 message": _STATUS["message"],
    "1.0 status": {"statusUpdate": {**_TOLD, "status": {**_STATUS, "state": "TASK_STATE_COMPLETED"}}},
    "1.0 artifact": {"artifactUpdate": _ADDED},
    "1.0 task": {"task": _TASK},
    "1.0 message": {"message": _STATUS["message"]},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_or_refused_by_name(name: str) -> None:
    form = Form(name, "/hook", BODIES[name])
    receiver = Receiver(tokens=[TOKEN])
    outcomes: Counter[str] = Counter()
    for case in [*spoil(form), *doubly([form], 300, 1), *torn([form], 300, 1)]:
        body = case.raw.partition(b"\r\n\r\n")[2]
        try:
            assert isinstance(receiver.receive(HEADERS, body), Notification)
            outcomes["read"] += 1
        except (InvalidParams, ParseError) as refused:
            assert str(refused) and len(str(refused)) < 2_000, case.name
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{case.name}: {type(error).__name__} {error}") from error
    print(name, dict(outcomes))
    assert outcomes["read"] and outcomes["refused"]
