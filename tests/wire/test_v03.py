from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.wire import samples
from tests.wire.samples import ANSWER, DONE, HELLO, ODD, ODD_TASK, TASK, plain
from trunkline.wire import v1
from trunkline.wire.read import read_send
from trunkline.wire.types import (
    STATES,
    Artifact,
    ArtifactUpdate,
    FlatTask,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)
from trunkline.wire.v03 import V03 as v03
from trunkline.wire.v03 import V03_FLAT, V03_PROTO
from trunkline.wire.writer import Dialect

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


flat_tasks = samples.tasks().map(lambda task: FlatTask(*structs.astuple(task)))


def test_a_flat_task_is_written_with_flat_parts_and_underscores() -> None:
    file = Part(raw="aGk=", filename="n", media_type="a/b", extra={"p": 1})
    asked = Message("m2", role=Role.AGENT, parts=(Part(text="which?"), Part(data=[1])))
    status = TaskStatus(TaskState.INPUT_REQUIRED, asked)
    task = FlatTask("t1", "c1", status, (Artifact("a1", parts=(file,)),))
    written = plain(v03.task(task))
    assert written["status"] == {
        "state": "input_required",
        "message": {
            "kind": "message",
            "messageId": "m2",
            "role": "agent",
            "parts": [{"text": "which?"}, {"data": {"value": [1]}}],
        },
    }
    flat = {"raw": "aGk=", "filename": "n", "mediaType": "a/b", "p": 1}
    assert written["artifacts"][0]["parts"] == [flat]


def test_each_task_of_a_page_has_the_form_of_its_own_caller() -> None:
    auth = TaskStatus(TaskState.AUTH_REQUIRED)
    page = TaskPage((Task("t1", "c", auth), FlatTask("t2", "c", auth)), "", 50, 2)
    states = [one["status"]["state"] for one in plain(v03.page(page))["tasks"]]
    assert states == ["auth-required", "auth_required"]


@given(flat_tasks)
def test_other_dialects_write_a_flat_task_like_any_other(task: FlatTask) -> None:
    same = Task(*structs.astuple(task))
    for writer in (v1, V03_PROTO):
        assert writer.task(task) == writer.task(same)


@given(flat_tasks)
def test_every_part_of_a_flat_task_can_be_read_back(task: FlatTask) -> None:
    written = plain(v03.task(task))
    assert written["status"]["state"] in {state.name.lower() for state in STATES} | {"unknown"}
    messages = [*written.get("history", []), written["status"].get("message")]
    for message, given_ in zip(messages, [*task.history, task.status.message], strict=True):
        if given_ is not None:
            body = json.dumps({"message": {**message, "role": "user", "kind": None}}).encode()
            request = read_send(body, Dialect.V03)
            assert request.flat
            assert [one.extra for one in request.message.parts] == [one.extra for one in given_.parts]


@given(samples.messages(), st.sampled_from(list(Dialect)))
def test_only_0_3_json_without_kind_is_flat(message: Message, dialect: Dialect) -> None:
    flat = samples.sent(V03_FLAT.message(message).replace(b'"kind":"message",', b"", 1))
    assert read_send(flat, dialect).flat is (dialect is Dialect.V03)
    assert not read_send(samples.sent(v03.message(message)), dialect).flat
