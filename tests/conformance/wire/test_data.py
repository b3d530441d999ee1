"""The data model of 1.0 on the wire: names, enums, times, required members, values that survive."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from tests.conformance.wire.bindings import Binding
from tests.conformance.wire.tasks import INTERRUPTED, TERMINAL, kind_of, update_of

STATES = {*TERMINAL, *INTERRUPTED, "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
WORDS = [
    "echo",
    "file",
    "data",
    "usage",
    "confidence 0.5",
    "effect",
    "ask",
    "auth",
    "fail",
    "reject",
    "count 5 0",
]
FREE = ("metadata", "data")


@pytest.fixture(params=WORDS)
def everything(request: pytest.FixtureRequest, v1: Binding) -> list[Any]:
    """Every document that one task gives: its frames, the task, its place in a list."""
    with v1.stream(request.param) as frames:
        seen = [frame.result for frame in frames]
    task = v1.get(seen[0]["task"]["id"]).result
    page = v1.list(contextId=task["contextId"], includeArtifacts=True).result
    return [*seen, task, page]


def _members(value: Any) -> list[tuple[str, Any]]:
    """Every member of the protocol in a document; what callers and skills put in freely is left out."""
    if isinstance(value, list):
        return [member for item in value for member in _members(item)]
    if not isinstance(value, dict):
        return []
    found: list[tuple[str, Any]] = []
    for name, inner in value.items():
        found.append((name, inner))
        if name not in FREE:
            found += _members(inner)
    return found


def _objects(value: Any, member: str) -> list[Any]:
    """Every object in a document that has this member."""
    if isinstance(value, list):
        return [found for item in value for found in _objects(item, member)]
    if not isinstance(value, dict):
        return []
    inner = [found for name, item in value.items() if name not in FREE for found in _objects(item, member)]
    return [value, *inner] if member in value else inner


def test_DAT_01_no_snake_case(everything: list[Any]) -> None:
    names = {name for name, _ in _members(everything)}
    assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z]*", name)] == []


def test_DAT_02_enums_by_their_proto_name(everything: list[Any]) -> None:
    members = _members(everything)
    assert {value for name, value in members if name == "state"} <= STATES
    assert {value for name, value in members if name == "role"} <= {"ROLE_USER", "ROLE_AGENT"}


def test_DAT_03_times_are_utc_with_milliseconds(everything: list[Any]) -> None:
    times = [value for name, value in _members(everything) if name == "timestamp"]
    assert times and all(TIME.fullmatch(time) for time in times)


def test_DAT_04_required_members_are_there(everything: list[Any]) -> None:
    for status in _objects(everything, "state"):
        assert status["timestamp"]
    for message in _objects(everything, "messageId"):
        assert message["messageId"] and message["role"] and message["parts"]
    for artifact in _objects(everything, "artifactId"):
        assert artifact["artifactId"]
    for update in _objects(everything, "taskId"):
        assert update["taskId"] and update["contextId"]
    for task in (everything[0]["task"], everything[-2]):
        assert task["id"] and task["contextId"] and task["status"]


def test_DAT_05_artifacts_have_parts_and_their_own_ids(everything: list[Any]) -> None:
    assert all(artifact["parts"] for artifact in _objects(everything, "artifactId"))
    ids = [artifact["artifactId"] for artifact in everything[-2].get("artifacts", [])]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "text", ["", "plain", "ü\u2028\u2029😀", "\u0000\u0001\x7f\r\n\t", '"quoted" \\ back', "]}" * 50]
)
def test_DAT_06_text_comes_back_as_it_was(v1: Binding, text: str) -> None:
    task = v1.send_message(v1.message(parts=[{"text": "echo"}, {"text": text}])).task
    assert task["history"][0]["parts"][1] == {"text": text}
    assert task["artifacts"][0]["parts"][0]["text"] == f"echo\n{text}"


def test_DAT_06_raw_is_base64_of_the_bytes(v1: Binding) -> None:
    part = v1.send("file")["artifacts"][0]["parts"][0]
    assert base64.b64decode(part["raw"], validate=True) == b"Hello, file.\n"
    assert (part["filename"], part["mediaType"]) == ("hello.txt", "text/plain")
    sent = {
        "raw": base64.b64encode(bytes(range(256))).decode(),
        "mediaType": "text/plain",
        "filename": "all.bin",
    }
    task = v1.send_message(v1.message(parts=[{"text": "echo"}, sent])).task
    assert task["history"][0]["parts"][1] == sent


@pytest.mark.parametrize(
    "value",
    [0, 1, -1, 42, 2**53 + 1, 2**63, 12345678901234567890123, 1.5, 1e300, -0.1, True, None, "", "text", [], {},
     [1, [2, [3]]], {"a": {"b": [1, 2.0, None, {"c": False}]}}],
)  # fmt: skip
def test_DAT_06_any_json_value_comes_back_as_it_was(v1: Binding, value: Any) -> None:
    metadata = {"free": value}
    message = v1.message(parts=[{"text": "echo"}, {"data": value}], metadata=metadata)
    said = v1.send_message(message).task["history"][0]
    assert json.dumps(said["parts"][1]["data"]) == json.dumps(value)
    assert json.dumps(said["metadata"]) == json.dumps(metadata)


def test_DAT_06_integers_of_a_skill_stay_integers(v1: Binding) -> None:
    data = v1.send("data")["artifacts"][0]["parts"][0]["data"]
    assert json.dumps(data) == '{"answer": 42, "list": [1, 2, 3], "nothing": null}'


def test_DAT_07_no_kind_and_no_final(everything: list[Any]) -> None:
    assert {"kind", "final"} & {name for name, _ in _members(everything)} == set()


def test_DAT_08_the_agents_messages_name_context_and_task(everything: list[Any]) -> None:
    task = everything[-2]
    for message in _objects(everything, "messageId"):
        assert (message["contextId"], message["taskId"]) == (task["contextId"], task["id"])


def test_DAT_08_a_direct_message_names_its_context(v1: Binding) -> None:
    with v1.stream("message hi") as frames:
        (only,) = frames.all()
    assert kind_of(only) == "message"
    message = update_of(only)
    assert message["role"] == "ROLE_AGENT" and message["contextId"] and message["messageId"]
    # A direct message is recorded as a task, which its id leads to.
    assert v1.get(message["taskId"]).result["status"]["message"] == message
