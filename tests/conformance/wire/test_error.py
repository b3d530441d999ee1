"""Errors: codes, statuses, ErrorInfo, field names, and nothing of our insides."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.wire.bindings import (
    BAD_REQUEST,
    ERROR_INFO,
    UNKNOWN,
    Answer,
    Binding,
    Rest,
    Rpc,
    refused,
)
from tests.conformance.wire.conftest import Serve

Cause = Callable[[Binding], Answer]

CAUSES: dict[str, Cause] = {
    "TASK_NOT_FOUND": lambda v1: v1.get(UNKNOWN),
    "TASK_NOT_CANCELABLE": lambda v1: v1.cancel(v1.send("echo")["id"]),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": lambda v1: v1.push("set", v1.send("echo")["id"]),
    "UNSUPPORTED_OPERATION": lambda v1: refused(v1.subscribe(v1.send("echo")["id"])),
    "CONTENT_TYPE_NOT_SUPPORTED": lambda v1: v1.send_message(
        v1.message(parts=[{"raw": "AAAA", "mediaType": "image/png"}])
    ),
    "INVALID_PARAMS": lambda v1: v1.send_message({}),
}


@pytest.fixture
def base(serve: Serve) -> str:
    """A server that does not push, so that it can say so."""
    return serve("trunkline.demo:agent", "--set", "push=false").base


@pytest.fixture(params=CAUSES)
def caused(request: pytest.FixtureRequest, v1: Binding) -> tuple[str, Answer]:
    return request.param, CAUSES[request.param](v1)


def test_ERR_01_every_error_has_a_code_and_a_text(caused: tuple[str, Answer]) -> None:
    error = caused[1].error
    assert isinstance(error["code"], int)
    assert len(error["message"]) > 10


def test_ERR_02_each_error_maps_as_the_table_says(v1: Binding, caused: tuple[str, Answer]) -> None:
    reason, answer = caused
    v1.expect(answer, reason)


def test_ERR_02_a_version_error_maps_as_the_table_says(rpc: Rpc, rest: Rest) -> None:
    other = {"A2A-Version": "99.0"}
    rpc.expect(rpc.get(UNKNOWN, other), "VERSION_NOT_SUPPORTED")
    rest.expect(rest.get(UNKNOWN, other), "VERSION_NOT_SUPPORTED")


def test_ERR_03_data_is_an_array_of_typed_details(rpc: Rpc) -> None:
    for cause in CAUSES.values():
        data = cause(rpc).error["data"]
        assert isinstance(data, list)
        assert {one["@type"] for one in data} <= {ERROR_INFO, BAD_REQUEST}
        info = data[0]
        assert info["@type"] == ERROR_INFO and info["domain"] == "a2a-protocol.org"
        assert re.fullmatch(r"[A-Z0-9_]+", info["reason"])


def test_ERR_04_rest_errors_are_status_objects(rest: Rest) -> None:
    for cause in CAUSES.values():
        answer = cause(rest)
        assert list(answer.document) == ["error"]
        assert set(answer.error) == {"code", "status", "message", "details"}
        assert answer.error["code"] == answer.http
        assert answer.details[0]["@type"] == ERROR_INFO


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"contextId": 7}, "message.contextId"),
        ({"parts": [{"text": 7}]}, "message.parts[0].text"),
        ({"parts": [{"text": "a"}, {"raw": "?"}]}, "message.parts[1].raw"),
        ({"parts": "text"}, "message.parts"),
        ({"metadata": []}, "message.metadata"),
        ({"extensions": "x"}, "message.extensions"),
        ({"metadata": {"skill": "none"}}, "message.metadata.skill"),
    ],
)
def test_ERR_06_validation_errors_name_the_field(v1: Binding, change: dict[str, Any], field: str) -> None:
    answer = v1.send_message({**v1.message("echo"), **change})
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == [field]
    assert all(one["description"] for one in answer.details[1]["fieldViolations"])


def test_ERR_07_no_insides_in_messages(caused: tuple[str, Answer]) -> None:
    assert not re.search(rb"Traceback|\.py|/src/|trunkline\.|msgspec|Exception|0x[0-9a-f]{6}", caused[1].body)


def test_ERR_07_a_raising_skill_gives_a_reason_id_and_no_more(v1: Binding) -> None:
    task = v1.send("raise secret-inside-the-exception")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    said = task["status"]["message"]["parts"][0]["text"]
    assert re.search(r"Reason id [0-9a-f-]{36}", said)
    assert "secret-inside" not in said and "RuntimeError" not in said


def test_ERR_08_metadata_values_are_strings(caused: tuple[str, Answer]) -> None:
    for one in caused[1].details:
        if one["@type"] == ERROR_INFO:
            assert all(isinstance(value, str) for value in one["metadata"].values())
