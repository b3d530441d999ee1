"""HTTP+JSON 1.0: routes, verbs, query names, media types, tenants in the path."""

from __future__ import annotations

import uuid

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Rest
from tests.harness import V1

ROUTES = [
    ("POST", "/message:send", 400),
    ("POST", "/message:stream", 400),
    ("GET", "/tasks", 200),
    ("GET", f"/tasks/{UNKNOWN}", 404),
    ("POST", f"/tasks/{UNKNOWN}:cancel", 404),
    ("POST", f"/tasks/{UNKNOWN}:subscribe", 404),
    ("GET", f"/tasks/{UNKNOWN}:subscribe", 404),
    ("POST", f"/tasks/{UNKNOWN}/pushNotificationConfigs", 400),
    ("GET", f"/tasks/{UNKNOWN}/pushNotificationConfigs", 404),
    ("GET", f"/tasks/{UNKNOWN}/pushNotificationConfigs/c1", 404),
    ("DELETE", f"/tasks/{UNKNOWN}/pushNotificationConfigs/c1", 404),
    ("GET", "/extendedAgentCard", 400),
]


@pytest.mark.parametrize(("verb", "path", "status"), ROUTES)
def test_RST_01_every_route_and_verb(rest: Rest, verb: str, path: str, status: int) -> None:
    answer = rest.call(verb, path, {} if verb == "POST" else None)
    assert answer.http == status
    assert answer.error is None or answer.reason != "ROUTE_NOT_FOUND"


@pytest.mark.parametrize("body", [None, {}, {"id": "ignored"}])
def test_RST_01_cancel_takes_any_body_or_none(rest: Rest, body: object) -> None:
    asked = rest.send("ask")
    answer = rest.call("POST", f"/tasks/{asked['id']}:cancel", body)
    assert answer.result["status"]["state"] == "TASK_STATE_CANCELED"


def test_RST_02_query_names_values_and_decoding(rest: Rest) -> None:
    context = f"a b/ü&=+ {uuid.uuid4()}"
    task = rest.send("echo", contextId=context)
    page = rest.list(
        contextId=context, status="TASK_STATE_COMPLETED", pageSize=1, historyLength=1,
        includeArtifacts=True, statusTimestampAfter=task["status"]["timestamp"],
    ).result  # fmt: skip
    assert page["tasks"] == [task] and page["pageSize"] == 1
    for value in ("maybe", "TRUE!", "2"):
        answer = rest.call("GET", f"/tasks?includeArtifacts={value}")
        rest.expect(answer, "INVALID_PARAMS")


def test_RST_02_an_unreadable_query_is_refused(rest: Rest) -> None:
    rest.expect(rest.call("GET", "/tasks?contextId=%ff"), "INVALID_PARAMS")


@pytest.mark.parametrize("given", ["application/json", "application/a2a+json"])
def test_RST_03_the_callers_media_type_comes_back(rest: Rest, given: str) -> None:
    answer = rest.call("POST", "/message:send", rest.body(rest.message("echo")), {"Content-Type": given})
    assert (answer.http, answer.headers["content-type"]) == (200, given)
    error = rest.call("POST", "/message:send", {}, {"Content-Type": given})
    assert (error.http, error.headers["content-type"]) == (400, given)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/a2a+json"),
        ("application/a2a+json, application/json", "application/a2a+json"),
        ("application/json", "application/json"),
    ],
)
def test_RST_03_a_get_is_answered_as_it_accepts(rest: Rest, accept: str, kind: str) -> None:
    assert rest.call("GET", "/tasks", None, {"Accept": accept}).headers["content-type"] == kind


def test_RST_03_another_media_type_is_415(rest: Rest) -> None:
    answer = rest.call(
        "POST", "/message:send", rest.body(rest.message("echo")), {"Content-Type": "text/plain"}
    )
    assert (answer.http, answer.reason) == (415, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/message", "/message:shout", "/tasks/a/b", "/tasks/a:shout", "/task"]
)
def test_RST_04_an_unknown_path_is_404_with_a_body(rest: Rest, path: str) -> None:
    answer = rest.call("GET", path)
    assert (answer.http, answer.error["code"], answer.error["status"]) == (404, 404, "NOT_FOUND")
    assert answer.reason == "ROUTE_NOT_FOUND"


@pytest.mark.parametrize(
    ("verb", "path", "allow"),
    [
        ("GET", "/message:send", "POST"),
        ("DELETE", "/tasks", "GET"),
        ("PUT", f"/tasks/{UNKNOWN}", "GET"),
        ("GET", f"/tasks/{UNKNOWN}:cancel", "POST"),
        ("DELETE", f"/tasks/{UNKNOWN}:subscribe", "GET, POST"),
        ("POST", "/.well-known/agent-card.json", "GET, HEAD"),
    ],
)
def test_RST_04_a_wrong_verb_is_405_with_a_body(rest: Rest, verb: str, path: str, allow: str) -> None:
    answer = rest.call(verb, path)
    assert (answer.http, answer.headers["allow"], answer.error["code"]) == (405, allow, 405)


def test_RST_06_the_tenant_may_stand_in_the_path(rest: Rest) -> None:
    made = rest.call("POST", "/default/message:send", rest.body(rest.message("echo tenant"))).task
    assert rest.call("GET", f"/default/tasks/{made['id']}").result == made
    assert made["id"] in [one["id"] for one in rest.call("GET", "/default/tasks").result["tasks"]]
    assert rest.call("POST", f"/default/tasks/{made['id']}:cancel").reason == "TASK_NOT_CANCELABLE"
    assert rest.call("GET", "/default/extendedAgentCard").reason == "UNSUPPORTED_OPERATION"


def test_TEN_02_another_tenant_sees_nothing(rest: Rest) -> None:
    task = rest.send("echo")
    for verb, path in (
        ("GET", f"tasks/{task['id']}"),
        ("POST", f"tasks/{task['id']}:cancel"),
        ("GET", "tasks"),
    ):
        answer = rest.call(verb, f"/other/{path}")
        assert (answer.http, answer.reason) == (404, "ROUTE_NOT_FOUND")
    unknown = rest.call("GET", f"/tasks/{UNKNOWN}?tenant=other")
    known = rest.call("GET", f"/tasks/{task['id']}?tenant=other")
    assert known.body.replace(task["id"].encode(), UNKNOWN.encode()) == unknown.body


def test_TEN_03_two_tenants_in_one_request_are_refused(rest: Rest) -> None:
    body = {**rest.body(rest.message("echo")), "tenant": "other"}
    answer = rest.call("POST", "/default/message:send", body)
    rest.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["tenant"]
    assert rest.call("GET", "/default/tasks?tenant=other").reason == "INVALID_PARAMS"


def test_RST_01_version_1_0_also_under_v1(rest: Rest) -> None:
    response = rest.exchange("POST", f"{rest.base}/v1/message:send", rest.body(rest.message("echo")), V1)
    assert response.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
