from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.wire import samples
from tests.wire.samples import ANSWER, DONE, HELLO, ODD, ODD_TASK, TASK, plain
from trunkline.wire.types import (
    STATES,
    ArtifactUpdate,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)
from trunkline.wire.v03 import V03 as v03

DELTA = "application/vnd.protolabs.worldstate-delta{}+json"
FLAT = {
    "kind": "message",
    "messageId": "m2",
    "role": "agent",
    "parts": [{"kind": "text", "text": "x", "p": 1}],
    "extra": 2,
}


def test_VER_06_task() -> None:
    assert plain(v03.task(TASK)) == {
        "kind": "task",
        "id": "t1",
        "contextId": "c1",
        "status": {"state": "completed", "timestamp": "2026-01-31T12:00:00.000Z"},
        "artifacts": [{"artifactId": "a1", "name": "answer", "parts": [{"kind": "text", "text": "done"}]}],
        "history": [
            {
                "kind": "message",
                "messageId": "m1",
                "contextId": "c1",
                "taskId": "t1",
                "role": "user",
                "parts": [{"kind": "text", "text": "hello"}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part(text=""), {"kind": "text", "text": ""}),
        (
            Part(raw="aGk=", filename="n", media_type="a/b"),
            {"file": {"bytes": "aGk=", "name": "n", "mimeType": "a/b"}},
        ),
        (Part(url="http://x", metadata={"a": 1}), {"file": {"uri": "http://x"}, "metadata": {"a": 1}}),
        (Part(data={"a": 1}), {"kind": "data", "data": {"a": 1}}),
        (Part(data=[1]), {"kind": "data", "data": {"value": [1]}}),
        (Part(data=None), {"kind": "data", "data": {"value": None}}),
        (
            Part(data={}, media_type="a/b", filename="f", metadata={"filename": "own"}),
            {"kind": "data", "data": {}, "metadata": {"mimeType": "a/b", "filename": "own"}},
        ),
        (Part(text="x", media_type="a/b"), {"kind": "text", "text": "x", "metadata": {"mimeType": "a/b"}}),
        (
            Part(data={}, media_type=DELTA.format("-v1"), metadata={"mimeType": DELTA.format("-v1")}),
            {"kind": "data", "data": {}, "metadata": {"mimeType": DELTA.format("")}},
        ),
    ],
)
def test_parts(part: Part, expected: dict[str, Any]) -> None:
    assert plain(v03.message(Message("m", parts=(part,))))["parts"] == [{"kind": "file"} | expected]


@pytest.mark.parametrize("state", STATES)
def test_states(state: TaskState) -> None:
    body = plain(v03.task(Task("t", "c", TaskStatus(state))))
    assert body["status"]["state"] == state.name.lower().replace("_", "-")
    assert body["contextId"] == "c"


def test_unknown_members_are_flattened_and_override_nothing() -> None:
    assert plain(v03.message(ODD)) == FLAT
    body = plain(v03.task(ODD_TASK))
    assert body["status"] == {"state": "canceled", "message": FLAT}
    assert body["history"] == [FLAT]
    assert body["artifacts"][0]["parts"] == [{"kind": "data", "data": {"value": [1]}, "q": 3}]


def test_answers_and_frames_are_bare() -> None:
    assert v03.task_frame(b"{}") == b"{}"
    assert v03.message_frame(HELLO) == v03.message(HELLO)
    assert plain(v03.status_frame(StatusUpdate("t1", "c1", DONE), final=False)) == {
        "kind": "status-update",
        "taskId": "t1",
        "contextId": "c1",
        "status": plain(v03.task(TASK))["status"],
        "final": False,
    }
    assert plain(v03.artifact_frame(ArtifactUpdate("t1", "c1", ANSWER, last_chunk=True))) == {
        "kind": "artifact-update",
        "taskId": "t1",
        "contextId": "c1",
        "artifact": plain(v03.task(TASK))["artifacts"][0],
        "append": False,
        "lastChunk": True,
    }


def test_page() -> None:
    body = plain(v03.page(TaskPage((TASK,), "", 50, 1)))
    assert body == {"tasks": [plain(v03.task(TASK))], "nextPageToken": "", "pageSize": 50, "totalSize": 1}


@given(samples.tasks())
def test_kind_is_everywhere(task: Task) -> None:
    body = plain(v03.task(task))
    assert body["kind"] == "task"
    messages = [
        *body.get("history", ()),
        *([body["status"]["message"]] if "message" in body["status"] else []),
    ]
    assert all(message["kind"] == "message" for message in messages)
    for holder in (*messages, *body.get("artifacts", ())):
        for part in holder["parts"]:
            assert part["kind"] in part
            assert part["kind"] != "data" or isinstance(part["data"], dict)
