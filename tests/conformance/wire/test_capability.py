"""What the card does not offer is refused by name; extensions nobody knows do no harm."""

from __future__ import annotations

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Alias03, Binding, Proto03, Rpc03
from tests.conformance.wire.conftest import Serve


@pytest.fixture
def base(serve: Serve) -> str:
    """A server that does not push."""
    return serve("trunkline.demo:agent", "--set", "push=false").base


OPERATIONS = ["set", "get", "list", "delete"]


@pytest.mark.parametrize("what", OPERATIONS)
def test_PSH_07_push_is_refused_by_name(v1: Binding, what: str) -> None:
    for task_id in (UNKNOWN, v1.send("echo")["id"]):
        v1.expect(v1.push(what, task_id), "PUSH_NOTIFICATION_NOT_SUPPORTED")


@pytest.mark.parametrize("what", OPERATIONS)
def test_PSH_07_push_is_refused_by_name_in_0_3(
    rpc03: Rpc03, proto03: Proto03, alias03: Alias03, what: str
) -> None:
    assert rpc03.push(what, UNKNOWN).error["code"] == -32003
    for spoken in (proto03, alias03):
        answer = spoken.push(what, UNKNOWN)
        assert (answer.http, answer.error["type"]) == (501, "PushNotificationNotSupportedError")


def test_PSH_07_an_inline_config_is_refused_and_no_task_made(v1: Binding) -> None:
    before = v1.list().result["totalSize"]
    config = {"url": "https://example.com/hook"}
    for name in ("taskPushNotificationConfig", "pushNotificationConfig"):
        v1.expect(v1.send_message(v1.message("echo"), **{name: config}), "PUSH_NOTIFICATION_NOT_SUPPORTED")
    assert v1.list().result["totalSize"] == before


def test_EXC_01_an_extended_card_that_is_not_offered(v1: Binding, rpc03: Rpc03, proto03: Proto03) -> None:
    v1.expect(v1.extended_card(), "UNSUPPORTED_OPERATION")
    assert rpc03.extended_card().error["code"] == -32007
    answer = proto03.extended_card()
    assert (answer.http, answer.error["code"]) == (404, -32007)


@pytest.mark.parametrize(
    "given",
    ["https://example.com/ext/v1", "a, b,c", "", "https://example.com/ext/v1,https://example.com/ext/v2"],
)
def test_EXT_02_unknown_extensions_are_ignored(v1: Binding, given: str) -> None:
    message = v1.message("echo", extensions=["https://example.com/ext/v1"])
    answer = v1.send_message(message, {"A2A-Extensions": given, "X-A2A-Extensions": given})
    assert answer.task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer.task["history"][0]["extensions"] == ["https://example.com/ext/v1"]


def test_EXT_03_no_other_version_of_an_extension_is_put_in_its_place(v1: Binding) -> None:
    wanted = "https://proto-labs.ai/a2a/ext/cost-v9"
    answer = v1.send_message(v1.message("usage"), {"A2A-Extensions": wanted})
    assert "a2a-extensions" not in answer.headers
    assert "extensions" not in answer.task["artifacts"][0]


def test_EXT_04_the_answer_names_the_activated_extensions(v1: Binding) -> None:
    cost, effects = (f"https://proto-labs.ai/a2a/ext/{name}" for name in ("cost-v1", "worldstate-delta-v1"))
    headers = {"A2A-Extensions": f"urn:unknown, {effects},{cost}"}
    message = v1.message("usage")
    answer = v1.send_message(message, headers)
    assert answer.headers["a2a-extensions"] == f"{effects}, {cost}"
    assert "x-a2a-extensions" not in answer.headers
    assert answer.task["artifacts"][0]["extensions"] == [cost]
    with type(v1)(v1.base, v1.http, headers).stream("usage") as frames:
        assert frames.response.headers["a2a-extensions"] == f"{effects}, {cost}"


def test_EXT_04_who_opened_the_task_decides(v1: Binding) -> None:
    cost, confidence = (f"https://proto-labs.ai/a2a/ext/{name}" for name in ("cost-v1", "confidence-v1"))
    task = v1.send_message(v1.message("ask"), {"A2A-Extensions": cost}).task
    follow = v1.message("this", taskId=task["id"])
    answer = v1.send_message(follow, {"A2A-Extensions": f"{confidence}, {cost}"})
    assert answer.headers["a2a-extensions"] == cost


def test_EXT_04_a_request_that_names_none_is_answered_without(v1: Binding) -> None:
    assert "a2a-extensions" not in v1.send_message(v1.message("usage")).headers
