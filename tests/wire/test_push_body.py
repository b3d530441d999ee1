"""The bodies of push notifications, by version, state and setting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.wire import push_body
from trunkline.wire.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

STAMP = "2026-01-01T00:00:00.000Z"
ENDS = {
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "canceled",
    TaskState.REJECTED: "rejected",
}
OPEN = {
    TaskState.WORKING: ("working", False),
    TaskState.INPUT_REQUIRED: ("input-required", True),
    TaskState.AUTH_REQUIRED: ("auth-required", True),
}


def task(state: TaskState, *artifacts: str, text: str = "") -> Task:
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),)) if text else None
    made = tuple(Artifact(name, parts=(Part(text=f"the {name}"),)) for name in artifacts)
    return Task("t-1", "c-1", TaskStatus(state, message, STAMP), made)


def body(given: Task, version: str, *, whole: bool = False, **more: Any) -> Any:
    return json.loads(push_body.body(given, version, whole=whole, **more))


@pytest.mark.parametrize("state", ENDS)
def test_0_3_tells_an_end_with_its_whole_artifact(state: TaskState) -> None:
    assert body(task(state, "answer"), "0.3") == {
        "kind": "status-update",
        "taskId": "t-1",
        "contextId": "c-1",
        "status": {"state": ENDS[state], "timestamp": STAMP},
        "final": True,
        "artifact": {
            "artifactId": "answer",
            "parts": [{"kind": "text", "text": "the answer"}],
            "append": False,
            "lastChunk": True,
        },
    }


def test_0_3_has_one_artifact_and_all_of_them_if_there_are_more() -> None:
    told_all = body(task(TaskState.COMPLETED, "notes", "answer"), "0.3")
    assert told_all["artifact"]["artifactId"] == "answer"
    assert [one["artifactId"] for one in told_all["artifacts"]] == ["notes", "answer"]
    assert all(one["lastChunk"] and not one["append"] for one in told_all["artifacts"])
    assert "artifact" not in body(task(TaskState.FAILED), "0.3")


@pytest.mark.parametrize("state", OPEN)
def test_0_3_tells_a_change_without_artifacts(state: TaskState) -> None:
    name, final = OPEN[state]
    update = body(task(state, "half", text="which?"), "0.3")
    assert (update["status"]["state"], update["final"]) == (name, final)
    assert update["status"]["message"]["parts"] == [{"kind": "text", "text": "which?"}]
    assert "artifact" not in update and "artifacts" not in update


@pytest.mark.parametrize("state", ENDS)
def test_1_0_tells_an_end_as_the_task(state: TaskState) -> None:
    wrapper = body(task(state, "notes", "answer"), "1.0")
    assert list(wrapper) == ["task"]
    assert wrapper["task"]["status"] == {"state": state.value, "timestamp": STAMP}
    assert [one["artifactId"] for one in wrapper["task"]["artifacts"]] == ["notes", "answer"]


@pytest.mark.parametrize("state", OPEN)
def test_1_0_tells_a_change_as_a_status_update(state: TaskState) -> None:
    wrapper = body(task(state, text="which?"), "1.0", metadata={"k": 1})
    assert list(wrapper) == ["statusUpdate"]
    update = wrapper["statusUpdate"]
    assert (update["taskId"], update["contextId"], update["metadata"]) == ("t-1", "c-1", {"k": 1})
    assert update["status"]["state"] == state.value
    assert update["status"]["message"]["parts"] == [{"text": "which?"}]


@pytest.mark.parametrize("state", [*ENDS, *OPEN])
def test_push_format_task_sends_the_task_whatever_happened(state: TaskState) -> None:
    new, old = (body(task(state, "answer"), version, whole=True) for version in ("1.0", "0.3"))
    assert list(new) == ["task"]
    assert new["task"]["id"] == old["id"] == "t-1"
    assert old["kind"] == "task"
    assert new["task"]["status"]["state"] == state.value
    assert old["artifacts"][0]["artifactId"] == new["task"]["artifacts"][0]["artifactId"] == "answer"
