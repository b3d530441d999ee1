from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from tests.wire.samples import plain
from trunkline.errors import InvalidParams
from trunkline.wire import requests
from trunkline.wire import types as t
from trunkline.wire.operations import Operation, match
from trunkline.wire.push import read_push_query, read_push_request, write_push_request
from trunkline.wire.read import read_list_query, read_send, read_task_query
from trunkline.wire.writer import Dialect

V1, V03, PROTO = Dialect.V1, Dialect.V03, Dialect.V03_PROTO
SAID = t.Message("m", role=t.Role.USER, parts=(t.Part(text="hi"),))
CONFIG = t.PushConfig("https://hooks.example/x", id="c", token="t", scheme="Bearer", credentials="s")
dialects = st.sampled_from([V1, V03])
configs = st.none() | st.builds(
    t.PushConfig,
    st.just("https://hooks.example/x"),
    samples.ids.map(lambda text: text.replace(" ", "")).filter(bool) | st.just(""),
    st.sampled_from(["", "token"]),
    st.sampled_from(["", "Bearer"]),
    st.just(""),
)
sends = st.builds(
    t.SendRequest,
    samples.messages(),
    st.lists(samples.texts, max_size=2).map(tuple),
    st.none() | st.integers(0, 99),
    st.none() | st.booleans(),
    configs,
    samples.metadata,
)


@given(sends)
def test_what_is_asked_in_1_0_is_what_is_read(request: t.SendRequest) -> None:
    assert read_send(requests.send_params(request, V1)) == request


@given(sends)
def test_what_is_asked_before_is_read_as_far_as_it_can_say(request: t.SendRequest) -> None:
    read = read_send(requests.send_params(request, V03))
    assert (read.wait, read.history_length, read.push) == (request.wait, request.history_length, request.push)
    assert (read.message.message_id, read.message.role) == (request.message.message_id, t.Role.USER)
    read = read_send(requests.send_params(request, PROTO), PROTO)
    assert read.wait is (request.wait is not False)
    assert read.push == request.push
    assert len(read.message.parts) == len(request.message.parts)


FULL = t.SendRequest(
    t.Message("m", "c", "t", t.Role.USER, (t.Part(text="hi"), t.Part(url="https://x", media_type="a/b"))),
    ("text/plain",),
    3,
    True,
    CONFIG,
    {"k": 1},
    "acme",
)
AUTHENTICATION = {"scheme": "Bearer", "credentials": "s"}
OLD_AUTHENTICATION = {"schemes": ["Bearer"], "credentials": "s"}
HOOK = {"id": "c", "url": CONFIG.url, "token": "t"}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            V1,
            {
                "tenant": "acme",
                "message": {
                    "messageId": "m",
                    "contextId": "c",
                    "taskId": "t",
                    "role": "ROLE_USER",
                    "parts": [{"text": "hi"}, {"url": "https://x", "mediaType": "a/b"}],
                },
                "configuration": {
                    "acceptedOutputModes": ["text/plain"],
                    "historyLength": 3,
                    "returnImmediately": False,
                    "taskPushNotificationConfig": {**HOOK, "authentication": AUTHENTICATION},
                },
                "metadata": {"k": 1},
            },
        ),
        (
            V03,
            {
                "message": {
                    "kind": "message",
                    "messageId": "m",
                    "contextId": "c",
                    "taskId": "t",
                    "role": "user",
                    "parts": [
                        {"kind": "text", "text": "hi"},
                        {"kind": "file", "file": {"uri": "https://x", "mimeType": "a/b"}},
                    ],
                },
                "configuration": {
                    "acceptedOutputModes": ["text/plain"],
                    "historyLength": 3,
                    "blocking": True,
                    "pushNotificationConfig": {**HOOK, "authentication": OLD_AUTHENTICATION},
                },
                "metadata": {"k": 1},
                "contextId": "c",
                "taskId": "t",
            },
        ),
        (
            PROTO,
            {
                "message": {
                    "messageId": "m",
                    "contextId": "c",
                    "taskId": "t",
                    "role": "ROLE_USER",
                    "content": [
                        {"text": "hi"},
                        {"file": {"fileWithUri": "https://x", "mimeType": "a/b"}},
                    ],
                },
                "configuration": {
                    "acceptedOutputModes": ["text/plain"],
                    "historyLength": 3,
                    "blocking": True,
                    "pushNotification": {**HOOK, "authentication": OLD_AUTHENTICATION},
                },
                "metadata": {"k": 1},
            },
        ),
    ],
)
def test_each_version_has_its_own_words(dialect: Dialect, body: Any) -> None:
    assert plain(requests.send_params(FULL, dialect)) == body


def test_who_does_not_say_whether_to_wait() -> None:
    silent = t.SendRequest(SAID)
    assert "configuration" not in plain(requests.send_params(silent, V1))
    assert "configuration" not in plain(requests.send_params(silent, V03))
    # Absent means "do not wait" there, to the servers of that time.
    assert plain(requests.send_params(silent, PROTO))["configuration"] == {"blocking": True}
    hasty = t.SendRequest(SAID, wait=False)
    assert plain(requests.send_params(hasty, V1))["configuration"] == {"returnImmediately": True}
    assert plain(requests.send_params(hasty, V03))["configuration"] == {"blocking": False}
    assert plain(requests.send_params(hasty, PROTO))["configuration"] == {"blocking": False}


def test_a_message_of_nobody_is_the_users() -> None:
    nobody = t.SendRequest(t.Message("m", parts=SAID.parts))
    assert plain(requests.send_params(nobody, V03))["message"]["role"] == "user"


@given(dialects, samples.ids, st.none() | st.integers(0, 9))
def test_queries_are_read_as_they_are_asked(dialect: Dialect, task_id: str, length: int | None) -> None:
    tenant = "acme" if dialect is V1 else ""
    task = t.TaskQuery(task_id, length, tenant)
    assert read_task_query(requests.task_params(task, dialect)) == task
    push = t.PushQuery(task_id, "c", tenant)
    assert read_push_query(requests.push_params(push, dialect)) == push
    request = t.PushRequest(task_id, CONFIG, tenant)
    assert read_push_request(write_push_request(request, dialect)) == request


QUERY = t.ListQuery("c", t.TaskState.INPUT_REQUIRED, 7, "next", 0, 1_700_000_000_123, True)


@pytest.mark.parametrize("dialect", [V1, V03])
def test_lists_are_asked_for(dialect: Dialect) -> None:
    assert read_list_query(requests.list_params(QUERY, dialect)) == QUERY
    spelled = plain(requests.list_params(QUERY, dialect))["status"]
    assert spelled == {V1: "TASK_STATE_INPUT_REQUIRED", V03: "input-required"}[dialect]
    assert plain(requests.list_params(t.ListQuery(tenant="acme"), V03)) == {"pageSize": 50}


def test_the_card_is_asked_for() -> None:
    assert requests.card_params("acme", V1) == b'{"tenant":"acme"}'
    assert requests.card_params("acme", V03) == requests.card_params("", V1) == b"{}"


def test_TEN_01_rest_has_the_tenant_in_its_path() -> None:
    query = t.TaskQuery("t", 2, "ac/me")
    assert requests.rest_task(Operation.GET, query, V1).path == "/ac%2Fme/tasks/t?historyLength=2"
    assert requests.rest_task(Operation.GET, query, PROTO).path == "/v1/tasks/t?historyLength=2"
    assert requests.rest_card(V1, "acme").path == "/acme/extendedAgentCard"
    assert requests.rest_card(PROTO, "acme").path == "/v1/card"
    listed = requests.rest_list(t.ListQuery(include_artifacts=True, tenant="acme"), V1).path
    assert listed == "/acme/tasks?pageSize=50&includeArtifacts=true"


@pytest.mark.parametrize("dialect", [V1, PROTO])
def test_RST_01_paths_are_those_that_a_server_has(dialect: Dialect) -> None:
    task, push = t.TaskQuery("a b"), t.PushQuery("a b", "c d")
    asked = {
        Operation.SEND: requests.rest_send(FULL, dialect),
        Operation.STREAM: requests.rest_send(FULL, dialect, stream=True),
        Operation.GET: requests.rest_task(Operation.GET, task, dialect),
        Operation.CANCEL: requests.rest_task(Operation.CANCEL, task, dialect),
        Operation.SUBSCRIBE: requests.rest_task(Operation.SUBSCRIBE, task, dialect),
        Operation.LIST: requests.rest_list(QUERY, dialect),
        Operation.PUSH_SET: requests.rest_set_push(t.PushRequest("a b", CONFIG), dialect),
        Operation.PUSH_GET: requests.rest_push(Operation.PUSH_GET, push, dialect),
        Operation.PUSH_LIST: requests.rest_push(Operation.PUSH_LIST, push, dialect),
        Operation.PUSH_DELETE: requests.rest_push(Operation.PUSH_DELETE, push, dialect),
        Operation.EXTENDED_CARD: requests.rest_card(dialect, ""),
    }
    assert asked.keys() == set(Operation)
    for operation, request in asked.items():
        path = request.path.partition("?")[0].replace("%20", " ")
        call = match(request.verb, path)
        assert (call.operation, call.v1_prefixed) == (operation, dialect is PROTO)
        assert call.task_id in ("", "a b")
        assert (request.body is None) == (request.verb != "POST")


@pytest.mark.parametrize("task_id", ["", ".", ".."])
def test_ids_that_would_be_another_path_are_refused(task_id: str) -> None:
    with pytest.raises(InvalidParams, match="path"):
        requests.rest_task(Operation.GET, t.TaskQuery(task_id), V1)


def test_push_configs_of_rest_0_3_come_in_two_bodies() -> None:
    request = t.PushRequest("t", CONFIG)
    whole = requests.rest_set_push(request, PROTO).body
    assert plain(whole)["parent"] == "tasks/t"
    assert plain(whole)["config"] == plain(requests.rest_set_push(request, PROTO, bare=True).body)
    for body in (whole, requests.rest_set_push(request, PROTO, bare=True).body):
        assert read_push_request(body).config == CONFIG


NAMED = {"skillHint": "s", "correlationId": "co", "parentId": "pa"}
metadata = st.none() | st.dictionaries(st.sampled_from([*NAMED, "own"]), st.text(max_size=3))


def correlated(said: t.Metadata | None, beside: t.Metadata | None) -> t.SendRequest:
    message = t.Message("m", role=t.Role.USER, parts=SAID.parts, metadata=said)
    return t.SendRequest(message, metadata=beside, correlation=t.Correlation("co", "pa"))


@pytest.mark.parametrize("dialect", [V03, PROTO])
def test_0_3_requests_name_their_work_in_the_params_and_in_the_message(dialect: Dialect) -> None:
    written = plain(requests.send_params(correlated({"skillHint": "s", "a": 1}, {"b": 2}), dialect))
    assert written["metadata"] == {**NAMED, "b": 2}
    assert written["message"]["metadata"] == {**NAMED, "a": 1}


def test_1_0_requests_keep_the_metadata_of_the_caller() -> None:
    written = plain(requests.send_params(correlated({"skillHint": "s"}, None), V1))
    assert "metadata" not in written
    assert written["message"]["metadata"] == {"skillHint": "s"}


@given(st.sampled_from([V03, PROTO]), metadata, metadata)
def test_no_metadata_of_the_caller_is_replaced(
    dialect: Dialect, said: t.Metadata | None, beside: t.Metadata | None
) -> None:
    written = plain(requests.send_params(correlated(said, beside), dialect))
    assert {**written["metadata"], **(beside or {})} == written["metadata"]
    assert {**written["message"]["metadata"], **(said or {})} == written["message"]["metadata"]
    for place in (written["metadata"], written["message"]["metadata"]):
        assert {"correlationId", "parentId"} <= place.keys()
