"""Version 0.3 in its three dialects: exact shapes out, every spelling in, waiting, closing, ending."""

from __future__ import annotations

import base64
import re
import uuid
from typing import Any

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Alias03, Binding, Proto03, Rpc, Rpc03, refused
from tests.conformance.wire.tasks import done_in_03, finished, held, state_in_03

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(params=["rpc03", "alias03"])
def kinded(request: pytest.FixtureRequest, rpc03: Rpc03, alias03: Alias03) -> Binding:
    """The dialects that carry `kind`."""
    return rpc03 if request.param == "rpc03" else alias03


# Shapes with `kind`


def test_kind_is_on_task_message_and_parts(kinded: Binding) -> None:
    task = done_in_03(kinded, "ask why")
    assert set(task) == {"kind", "id", "contextId", "status", "history"}
    assert task["kind"] == "task"
    assert (task["status"]["state"], set(task["status"])) == (
        "input-required",
        {"state", "message", "timestamp"},
    )
    asked = task["status"]["message"]
    assert (asked["kind"], asked["role"], asked["parts"]) == (
        "message",
        "agent",
        [{"kind": "text", "text": "why"}],
    )
    assert (asked["taskId"], asked["contextId"]) == (task["id"], task["contextId"])
    (said,) = task["history"]
    assert (said["kind"], said["role"], said["parts"]) == (
        "message",
        "user",
        [{"kind": "text", "text": "ask why"}],
    )
    assert TIME.fullmatch(task["status"]["timestamp"])


def test_files_and_data_in_0_3(kinded: Binding) -> None:
    (file,) = done_in_03(kinded, "file")["artifacts"][0]["parts"]
    encoded = base64.b64encode(b"Hello, file.\n").decode()
    assert file == {"kind": "file", "file": {"bytes": encoded, "mimeType": "text/plain", "name": "hello.txt"}}
    (data,) = done_in_03(kinded, "data")["artifacts"][0]["parts"]
    assert data == {"kind": "data", "data": {"answer": 42, "list": [1, 2, 3], "nothing": None}}


def test_a_direct_message_in_0_3(kinded: Binding) -> None:
    reply = kinded.send_message(kinded.message("message hi"), wait=True).result
    assert (reply["kind"], reply["role"], reply["parts"]) == (
        "message",
        "agent",
        [{"kind": "text", "text": "hi"}],
    )
    with kinded.stream("message hi") as frames:
        (only,) = frames.all()
    assert only.result["kind"] == "message"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("echo", "completed"),
        ("fail", "failed"),
        ("reject", "rejected"),
        ("ask", "input-required"),
        ("auth", "auth-required"),
    ],
)
def test_states_in_0_3(v03: Binding, word: str, state: str) -> None:
    assert done_in_03(v03, word)["status"]["state"] == state_in_03(v03, state)


def test_a_canceled_task_in_0_3(rpc03: Rpc03, alias03: Alias03, proto03: Proto03) -> None:
    assert rpc03.cancel(held(rpc03)["id"]).result["status"]["state"] == "canceled"
    assert alias03.cancel(held(alias03)["id"]).result["status"]["state"] == "canceled"
    # The proto of 0.3 spells it with two L.
    assert proto03.cancel(held(proto03)["id"]).result["status"]["state"] == "TASK_STATE_CANCELLED"


# Shapes of the ProtoJSON of 0.3


def test_proto_json_has_content_and_no_kind(proto03: Proto03) -> None:
    answer = proto03.send_message(proto03.message("ask why"), wait=True)
    task = answer.result["task"]
    assert (answer.http, set(task)) == (200, {"id", "contextId", "status", "history"})
    asked = task["status"]["message"]
    assert (asked["role"], asked["content"]) == ("ROLE_AGENT", [{"text": "why"}])
    assert task["history"][0]["content"] == [{"text": "ask why"}]
    assert b'"kind"' not in answer.body
    assert proto03.get(task["id"]).result == task


def test_proto_json_files_and_data(proto03: Proto03) -> None:
    (file,) = done_in_03(proto03, "file")["artifacts"][0]["parts"]
    encoded = base64.b64encode(b"Hello, file.\n").decode()
    assert file == {"file": {"fileWithBytes": encoded, "mimeType": "text/plain", "name": "hello.txt"}}
    (data,) = done_in_03(proto03, "data")["artifacts"][0]["parts"]
    assert data == {"data": {"data": {"answer": 42, "list": [1, 2, 3], "nothing": None}}}


def test_proto_json_frames(proto03: Proto03) -> None:
    with proto03.stream("echo hi") as frames:
        seen = [frame.data for frame in frames]
    assert [next(iter(one)) for one in seen] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert [one["statusUpdate"]["final"] for one in seen if "statusUpdate" in one] == [False, True]
    assert proto03.send_message(proto03.message("message hi"), wait=True).result["message"]["content"] == [
        {"text": "hi"}
    ]


@pytest.mark.parametrize("wrapper", ["message", "request"])
def test_proto_json_as_both_sdks_write_it(proto03: Proto03, wrapper: str) -> None:
    if wrapper == "message":
        said = {
            "messageId": str(uuid.uuid4()),
            "role": "ROLE_USER",
            "content": [{"text": "echo a"}, {"data": {"data": {"n": 1}}}],
        }
    else:
        said = {
            "message_id": str(uuid.uuid4()),
            "role": "ROLE_USER",
            "content": [{"text": "echo a"}, {"data": {"data": {"n": 1}}}],
        }
    task = proto03.call("POST", "/message:send", {wrapper: said, "configuration": {"blocking": True}}).result[
        "task"
    ]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["history"][0]["content"][1] == {"data": {"data": {"n": 1}}}


# Every spelling in

PARTS = [
    {"kind": "text", "text": "echo a"},
    {"type": "text", "text": "echo a"},
    {"text": "echo a"},
    {"text": "echo a", "mediaType": "text/plain"},
    {"text": "echo a", "media_type": "text/plain"},
]
FILES = [
    {"kind": "file", "file": {"bytes": "AAAA", "mimeType": "text/plain", "name": "n"}},
    {"type": "file", "file": {"bytes": "AAAA", "mime_type": "text/plain", "name": "n"}},
    {"file": {"fileWithBytes": "AAAA", "mimeType": "text/plain", "name": "n"}},
    {"file": {"file_with_bytes": "AAAA", "mime_type": "text/plain", "name": "n"}},
    {"raw": "AAAA", "mediaType": "text/plain", "filename": "n"},
]


@pytest.mark.parametrize("part", PARTS)
def test_text_parts_of_every_dialect_are_read(rpc: Rpc, rpc03: Rpc03, alias03: Alias03, part: Any) -> None:
    assert rpc.send_message(rpc.message(parts=[part])).task["artifacts"][0]["parts"] == [{"text": "echo a"}]
    for spoken in (rpc03, alias03):
        task = spoken.send_message(spoken.message(parts=[part]), wait=True).result
        assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "echo a"}]


@pytest.mark.parametrize("part", FILES)
def test_file_parts_of_every_dialect_are_read(rpc: Rpc, rpc03: Rpc03, part: Any) -> None:
    text = {"text": "echo"}
    assert rpc.send_message(rpc.message(parts=[text, part])).task["history"][0]["parts"][1] == FILES[-1]
    task = rpc03.send_message(rpc03.message(parts=[text, part]), wait=True).result
    assert task["history"][0]["parts"][1] == FILES[0]


@pytest.mark.parametrize("role", ["user", "USER", "ROLE_USER", "role_user"])
def test_roles_of_every_dialect_are_read(v1: Binding, v03: Binding, role: str) -> None:
    assert v1.send("echo", role=role)["history"][0]["role"] == "ROLE_USER"
    assert done_in_03(v03, "echo", role=role)["history"][0]["role"] in ("user", "ROLE_USER")


@pytest.mark.parametrize(
    "state", ["input-required", "input_required", "TASK_STATE_INPUT_REQUIRED", "INPUT_REQUIRED"]
)
def test_states_of_every_dialect_are_read(v1: Binding, v03: Binding, state: str) -> None:
    context = str(uuid.uuid4())
    v1.send("ask", contextId=context)
    v1.send("echo", contextId=context)
    for spoken in (v1, v03):
        assert spoken.list(contextId=context, status=state).result["totalSize"] == 1


def test_the_context_may_stand_beside_the_message(rpc: Rpc, rpc03: Rpc03) -> None:
    context = str(uuid.uuid4())
    task = rpc03.post_message({"message": rpc03.message("echo"), "contextId": context}).result
    assert task["contextId"] == context
    assert (
        rpc.post_message({"message": rpc.message("echo"), "contextId": context}).task["contextId"] == context
    )
    both = {"message": rpc.message("echo", contextId="one"), "contextId": "two"}
    rpc.expect(rpc.post_message(both), "INVALID_PARAMS")


def test_unknown_members_survive_in_0_3(v03: Binding) -> None:
    message = v03.message("echo", **{"x-message": {"n": 12345678901234567890}})
    result = v03.send_message(message, wait=True).result
    said = result.get("task", result)["history"][0]
    assert said["x-message"] == {"n": 12345678901234567890}


@pytest.mark.parametrize("value", [7, "text", [1, 2], True])
def test_data_that_0_3_cannot_hold_is_wrapped(rpc: Rpc, rpc03: Rpc03, value: Any) -> None:
    task = rpc.send_message(rpc.message(parts=[{"text": "echo"}, {"data": value}])).task
    assert rpc03.get(task["id"]).result["history"][0]["parts"][1] == {
        "kind": "data",
        "data": {"value": value},
    }


# Wait or receipt


def test_who_waits_when_nobody_says(rpc03: Rpc03, proto03: Proto03, alias03: Alias03) -> None:
    assert rpc03.send("echo")["status"]["state"] == "completed"
    receipt = proto03.send_message(proto03.message("hold 1"))
    assert (receipt.http, receipt.result["task"]["status"]["state"]) == (200, "TASK_STATE_SUBMITTED")
    alias = alias03.send_message(alias03.message("hold 1"))
    assert (alias.http, alias.result["status"]["state"]) == (202, "submitted")


def test_the_callers_word_wins(v03: Binding) -> None:
    assert done_in_03(v03, "echo")["status"]["state"] == state_in_03(v03, "completed")
    answer = v03.send_message(v03.message("hold 1"), wait=False)
    task = answer.result.get("task", answer.result)
    assert task["status"]["state"] == state_in_03(v03, "submitted")


# Lists, cancels, errors


def test_lists_in_0_3(v03: Binding) -> None:
    context = str(uuid.uuid4())
    task = done_in_03(v03, "echo", contextId=context)
    page = v03.list(contextId=context, pageSize=10, includeArtifacts=True).result
    assert page == {"tasks": [task], "nextPageToken": "", "pageSize": 10, "totalSize": 1}


def test_history_length_in_0_3(v03: Binding) -> None:
    asked = done_in_03(v03, "ask")
    v03.send_message(v03.message("an answer", taskId=asked["id"]), wait=True)
    assert len(v03.get(asked["id"], historyLength=2).result["history"]) == 2
    assert len(v03.get(asked["id"]).result["history"]) == 3


def test_errors_of_0_3_rpc(rpc03: Rpc03) -> None:
    done = rpc03.send("echo")["id"]
    assert rpc03.get(UNKNOWN).error["code"] == -32001
    assert rpc03.cancel(UNKNOWN).error["code"] == -32001
    assert rpc03.cancel(done).error["code"] == -32002
    assert refused(rpc03.subscribe(UNKNOWN)).error["code"] == -32001
    assert rpc03.send_message(rpc03.message("more", taskId=done)).error["code"] == -32004
    assert rpc03.send_message({}).error["code"] == -32602


@pytest.mark.parametrize("name", ["proto03", "alias03"])
def test_errors_of_0_3_rest(name: str, proto03: Proto03, alias03: Alias03) -> None:
    spoken = proto03 if name == "proto03" else alias03
    done = done_in_03(spoken, "echo")["id"]
    seen = [spoken.get(UNKNOWN), spoken.cancel(UNKNOWN), spoken.cancel(done), spoken.send_message({})]
    assert [answer.http for answer in seen] == [404, 404, 409, 400]
    kinds = ["TaskNotFoundError", "TaskNotFoundError", "TaskNotCancelableError", "InvalidParamsError"]
    assert [answer.error["type"] for answer in seen] == kinds
    assert all(answer.error["message"] for answer in seen)
    assert refused(spoken.subscribe(UNKNOWN)).http == 404
    assert spoken.call("GET", "/nothing").http == 404
    assert spoken.call("PUT", "/tasks").http == 405


def test_answer_to_a_question_in_0_3(v03: Binding) -> None:
    asked = done_in_03(v03, "ask")
    done = done_in_03(v03, "yes", taskId=asked["id"])
    assert (done["id"], done["status"]["state"]) == (asked["id"], state_in_03(v03, "completed"))
    assert finished(v03, asked["id"])["artifacts"][0]["parts"] == [{"text": "yes"}]
