from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import RouteNotFound
from trunkline.wire.codes import rest_error_v03, rest_error_v1
from trunkline.wire.operations import Operation, RestCall, match

ROUTES = [
    ("POST", "/message:send", RestCall(Operation.SEND)),
    ("POST", "/message:stream", RestCall(Operation.STREAM)),
    ("GET", "/tasks/t1", RestCall(Operation.GET, "t1")),
    ("GET", "/tasks", RestCall(Operation.LIST)),
    ("POST", "/tasks/t1:cancel", RestCall(Operation.CANCEL, "t1")),
    ("POST", "/tasks/t1:subscribe", RestCall(Operation.SUBSCRIBE, "t1")),
    ("GET", "/tasks/t1:subscribe", RestCall(Operation.SUBSCRIBE, "t1")),
    ("POST", "/tasks/t1/pushNotificationConfigs", RestCall(Operation.PUSH_SET, "t1")),
    ("GET", "/tasks/t1/pushNotificationConfigs", RestCall(Operation.PUSH_LIST, "t1")),
    ("GET", "/tasks/t1/pushNotificationConfigs/c1", RestCall(Operation.PUSH_GET, "t1", "c1")),
    ("DELETE", "/tasks/t1/pushNotificationConfigs/c1", RestCall(Operation.PUSH_DELETE, "t1", "c1")),
    ("GET", "/extendedAgentCard", RestCall(Operation.EXTENDED_CARD)),
    ("GET", "/card", RestCall(Operation.EXTENDED_CARD)),
]


@pytest.mark.parametrize(("method", "path", "call"), ROUTES)
def test_RST_01_RST_05_RST_06_routes(method: str, path: str, call: RestCall) -> None:
    assert match(method, path) == call
    prefixed = match(method, f"/v1{path}")
    assert prefixed == RestCall(call.operation, call.task_id, call.config_id, "", v1_prefixed=True)
    assert match(method, f"/acme{path}") == RestCall(call.operation, call.task_id, call.config_id, "acme")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nothing",
        "/v1",
        "/v1/",
        "/tasks/",
        "/tasks//",
        "/tasks/..",
        "/tasks/../x",
        "/tasks/.:cancel",
        "/tasks/:cancel",
        "/tasks/t1:explode",
        "/tasks/t1:cancel:cancel",
        "/tasks/t1/",
        "/tasks/t1/other",
        "/tasks/a\\b",
        "/tasks/a\nb",
        "/tasks/" + "x" * 257,
        "/tasks/t1/pushNotificationConfigs/",
        "/tasks/../pushNotificationConfigs",
        "/tasks/t1/pushNotificationConfigs/..",
        "/../tasks",
        "//tasks",
        "/v1/acme/tasks",
        "/acme/v1/tasks",
        "/acme/tasks/t1/x",
        "/message:send/",
    ],
)
def test_RST_04_unknown_paths(path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(RouteNotFound) as caught:
            match(method, path)
        assert caught.value.allow == ""


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/tasks/t1", "GET"),
        ("DELETE", "/v1/tasks/t1:subscribe", "GET, POST"),
        ("POST", "/acme/tasks/t1/pushNotificationConfigs/c1", "GET, DELETE"),
    ],
)
def test_RST_04_wrong_verbs(method: str, path: str, allow: str) -> None:
    with pytest.raises(RouteNotFound) as caught:
        match(method, path)
    assert caught.value.allow == allow
    assert rest_error_v1(caught.value)[0] == rest_error_v03(caught.value)[0] == 405


@given(st.sampled_from(["GET", "POST", "DELETE"]), st.text())
def test_any_path_is_matched_or_refused(method: str, path: str) -> None:
    try:
        assert match(method, path).operation
    except RouteNotFound as error:
        assert error.message
