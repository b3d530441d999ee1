"""Push configs: what every client sends is understood, and each version reads its own shape back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.errors import InvalidParams, ParseError
from trunkline.wire import push
from trunkline.wire.push import read_push_query, read_push_request, write_config, write_configs
from trunkline.wire.read import read_send
from trunkline.wire.types import (
    Artifact,
    Message,
    Part,
    PushConfig,
    PushQuery,
    PushRequest,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from trunkline.wire.writer import Dialect

URL = "https://hooks.example/a"
NAME = "tasks/t-1/pushNotificationConfigs/c-1"
FULL = PushConfig(URL, "c-1", "tok", "Bearer", "cred")
OLD = {
    "id": "c-1",
    "url": URL,
    "token": "tok",
    "authentication": {"schemes": ["Bearer"], "credentials": "cred"},
}
NEW = {"id": "c-1", "url": URL, "token": "tok", "authentication": {"scheme": "Bearer", "credentials": "cred"}}


def given(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"taskId": "t-1", **NEW}, id="1.0"),
        pytest.param({"task_id": "t-1", **NEW}, id="1.0 in snake_case"),
        pytest.param({"taskId": "t-1", "pushNotificationConfig": OLD}, id="0.3"),
        pytest.param({"id": "t-1", "pushNotificationConfig": OLD}, id="0.2"),
        pytest.param({"name": NAME, "pushNotificationConfig": {**OLD, "id": ""}}, id="JavaScript SDK 0.3"),
        pytest.param(
            {
                "parent": "tasks/t-1",
                "config_id": "c-1",
                "config": {"name": NAME, "push_notification_config": {**OLD, "id": ""}},
            },
            id="Python SDK, REST of 0.3",
        ),
    ],
)
def test_every_shape_of_setting(body: Any) -> None:
    assert read_push_request(given(body)) == PushRequest("t-1", FULL)


def test_the_task_of_a_path_wins() -> None:
    assert read_push_request(given({"taskId": "other", "url": URL}), "t-1") == PushRequest(
        "t-1", PushConfig(URL)
    )


def test_the_tenant_is_kept() -> None:
    assert read_push_request(given({"taskId": "t-1", "url": URL, "tenant": "x"})).tenant == "x"
    assert read_push_query(given({"taskId": "t-1", "tenant": "x"})).tenant == "x"


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ({"taskId": "t-1", "id": "c-1"}, PushQuery("t-1", "c-1")),
        ({"id": "t-1", "pushNotificationConfigId": "c-1"}, PushQuery("t-1", "c-1")),
        ({"id": "t-1"}, PushQuery("t-1")),
        ({"taskId": "t-1"}, PushQuery("t-1")),
        ({"name": NAME}, PushQuery("t-1", "c-1")),
        ({"parent": "tasks/t-1", "pageSize": 5}, PushQuery("t-1")),
    ],
)
def test_every_shape_of_asking(body: Any, query: PushQuery) -> None:
    assert read_push_query(given(body)) == query


@pytest.mark.parametrize(
    "name",
    ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification", "push_notification_config"],
)
@pytest.mark.parametrize("shape", [OLD, NEW], ids=["schemes", "scheme"])
def test_every_shape_that_comes_with_a_message(name: str, shape: Any) -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"text": "go"}]}
    assert read_send(given({"message": message, "configuration": {name: shape}})).push == FULL
    assert read_send(given({"message": message, "configuration": {name: None}})).push is None
    assert read_send(given({"message": message})).push is None


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": "https://hooks.example/\r\nx"}, "url"),
        ({"url": "https://hooks.example/" + "x" * 2048}, "url"),
        ({"url": URL, "token": "a\r\nEvil: b"}, "token"),
        ({"url": URL, "token": "tök"}, "token"),
        ({"url": URL, "token": " padded"}, "token"),
        ({"url": URL, "token": "padded "}, "token"),
        ({"url": URL, "token": "x" * 4097}, "token"),
        ({"url": URL, "authentication": {"scheme": "Bea rer"}}, "authentication.scheme"),
        ({"url": URL, "authentication": {"scheme": "x" * 65}}, "authentication.scheme"),
        ({"url": URL, "authentication": {"schemes": ["a:b"]}}, "authentication.scheme"),
        ({"url": URL, "authentication": {"credentials": "a\0b"}}, "authentication.credentials"),
        ({"url": URL, "id": "a\nb"}, "id"),
        ({"url": URL, "id": "x" * 257}, "id"),
    ],
)
def test_what_no_request_could_carry_is_refused_by_its_path(config: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_push_request(given({"taskId": "t-1", **config}))
    assert refused.value.field == field
    with pytest.raises(InvalidParams) as refused:
        read_push_request(given({"taskId": "t-1", "pushNotificationConfig": config}))
    assert refused.value.field == f"pushNotificationConfig.{field}"
    message = {"messageId": "m", "role": "user", "parts": [{"text": "go"}]}
    with pytest.raises(InvalidParams) as refused:
        read_send(given({"message": message, "configuration": {"pushNotificationConfig": config}}))
    assert refused.value.field == f"configuration.pushNotificationConfig.{field}"


@pytest.mark.parametrize(
    "body", [{"url": URL}, {"pushNotificationConfig": {"url": URL}}, {"id": "c", "url": URL}]
)
def test_a_config_needs_a_task(body: Any) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_push_request(given(body))
    assert refused.value.field == "taskId"


def test_a_question_needs_a_task() -> None:
    for body in (b"{}", None, given({"pushNotificationConfigId": "c-1"})):
        with pytest.raises(InvalidParams) as refused:
            read_push_query(body)
        assert refused.value.field == "taskId"


def test_what_is_not_json_is_no_config() -> None:
    with pytest.raises(ParseError):
        read_push_request(b"{")
    with pytest.raises(InvalidParams):
        read_push_request(given({"taskId": "t-1", "url": 5}))


@pytest.mark.parametrize(
    ("dialect", "shape"),
    [
        (Dialect.V1, {"taskId": "t-1", **NEW}),
        (Dialect.V03, {"taskId": "t-1", "pushNotificationConfig": OLD}),
        (Dialect.V03_PROTO, {"name": NAME, "pushNotificationConfig": OLD}),
    ],
)
def test_each_dialect_is_answered_in_its_shape_and_reads_it_back(dialect: Dialect, shape: Any) -> None:
    written = write_config("t-1", FULL, dialect)
    assert json.loads(written) == shape
    assert read_push_request(written) == PushRequest("t-1", FULL)
    listed = json.loads(write_configs("t-1", [FULL, FULL], dialect))
    assert listed == (
        [shape] * 2 if dialect is Dialect.V03 else {"configs": [shape] * 2, "nextPageToken": ""}
    )
    empty = json.loads(write_configs("t-1", [], dialect))
    assert empty == ([] if dialect is Dialect.V03 else {"configs": [], "nextPageToken": ""})


def test_what_is_not_there_is_not_written() -> None:
    bare = PushConfig(URL, "c-1")
    assert json.loads(write_config("t-1", bare, Dialect.V1)) == {"id": "c-1", "taskId": "t-1", "url": URL}
    inner = json.loads(write_config("t-1", bare, Dialect.V03))["pushNotificationConfig"]
    assert inner == {"id": "c-1", "url": URL}
    hidden = PushConfig(URL, "c-1", scheme="Bearer")
    assert json.loads(write_config("t-1", hidden, Dialect.V1))["authentication"] == {"scheme": "Bearer"}
    old = json.loads(write_config("t-1", hidden, Dialect.V03))["pushNotificationConfig"]
    assert old["authentication"] == {"schemes": ["Bearer"]}


@pytest.mark.parametrize("name", ["a/b", "a:b", "a\\b"])
def test_an_id_that_no_path_can_carry(name: str) -> None:
    with pytest.raises(InvalidParams, match="path") as refused:
        read_push_request(json.dumps({"taskId": "t", "id": name, "url": "http://x"}).encode())
    assert refused.value.field == "id"


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
    return json.loads(push.notification_body(given, version, whole=whole, **more))


@pytest.mark.parametrize("state", ENDS)
def test_0_3_tells_an_end_with_its_whole_artifact(state: TaskState) -> None:
    answer = {
        "artifactId": "answer",
        "parts": [{"kind": "text", "text": "the answer"}],
        "append": False,
        "lastChunk": True,
    }
    assert body(task(state, "answer"), "0.3") == {
        "kind": "status-update",
        "taskId": "t-1",
        "contextId": "c-1",
        "status": {"state": ENDS[state], "timestamp": STAMP},
        "final": True,
        "artifact": answer,
        "artifacts": [answer],
    }


def test_0_3_has_the_last_artifact_and_all_of_them() -> None:
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
