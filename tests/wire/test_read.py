from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire import samples
from trunkline.errors import InvalidParams, ParseError, Refused
from trunkline.wire.read import (
    list_query_from,
    read_list_query,
    read_send,
    read_task_query,
    task_query_from,
)
from trunkline.wire.types import Message, Part, PushConfig, Role, TaskState
from trunkline.wire.writer import Dialect


def body(message: dict[str, Any] | None = None, **params: Any) -> bytes:
    usual = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return msgspec.json.encode({"message": usual | (message or {}), **params})


def without(member: str) -> bytes:
    params = msgspec.json.decode(body())
    del params["message"][member]
    return msgspec.json.encode(params)


def refused(raw: bytes, **options: Any) -> InvalidParams:
    with pytest.raises(InvalidParams) as caught:
        read_send(raw, **options)
    return caught.value


def test_a_plain_send() -> None:
    request = read_send(
        body(
            {"contextId": "c1", "taskId": "t1", "extensions": ["urn:x"], "referenceTaskIds": ["t0"]},
            configuration={"acceptedOutputModes": ["text/plain"], "historyLength": 0},
            metadata={"a": 1},
            tenant="acme",
        )
    )
    assert request.message == Message(
        "m1", "c1", "t1", Role.USER, (Part(text="hello"),), None, ("urn:x",), ("t0",)
    )
    assert request.accepted_output_modes == ("text/plain",)
    assert request.history_length == 0
    assert request.wait is None
    assert request.push is None
    assert request.metadata == {"a": 1}
    assert request.tenant == "acme"


def test_a_raw_value_is_read_as_bytes_are() -> None:
    assert read_send(msgspec.Raw(body())) == read_send(body())


@pytest.mark.parametrize("member", ["messageId", "role", "parts"])
def test_SND_21_missing_members(member: str) -> None:
    assert refused(without(member)).field == f"message.{member}"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"messageId": ""}, "message.messageId"),
        ({"messageId": "a\nb"}, "message.messageId"),
        ({"messageId": "x" * 257}, "message.messageId"),
        ({"messageId": 5}, "message.messageId"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"role": "agent"}, "message.role"),
        ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
        ({"role": 1}, "message.role"),
        ({"parts": []}, "message.parts"),
        ({"parts": {}}, "message.parts"),
        ({"parts": ["text"]}, "message.parts[0]"),
        ({"parts": [{"text": "a"}, {"text": 5}]}, "message.parts[1].text"),
        ({"contextId": "\x00"}, "message.contextId"),
        ({"contextId": 5}, "message.contextId"),
        ({"metadata": []}, "message.metadata"),
        ({"extensions": [5]}, "message.extensions[0]"),
    ],
)
def test_SND_21_ERR_06_a_bad_member_is_named(message: dict[str, Any], field: str) -> None:
    error = refused(body(message))
    assert error.field == field
    assert error.message.startswith(field)


@pytest.mark.parametrize(
    ("message", "may_lack_it"),
    [
        ({"messageId": ""}, {Dialect.V03, Dialect.V03_PROTO}),
        ({"messageId": "", "kind": "message"}, {Dialect.V03, Dialect.V03_PROTO}),
        ({"messageId": None}, {Dialect.V03}),
        ({"messageId": None, "kind": "message"}, set()),
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_SND_21_before_1_0_a_message_may_lack_its_id(
    message: dict[str, Any], may_lack_it: set[Dialect], dialect: Dialect
) -> None:
    if dialect in may_lack_it:
        assert read_send(body(message), dialect).message.message_id == ""
    else:
        assert refused(body(message), dialect=dialect).field == "message.messageId"


def test_SND_21_no_message() -> None:
    assert refused(b"{}").field == "message"
    assert refused(b'{"message":null}').field == "message"
    with pytest.raises(InvalidParams):
        read_send(None)


@pytest.mark.parametrize("raw", [b"[]", b"5", b"null", b'"x"'])
def test_params_that_are_no_object(raw: bytes) -> None:
    error = refused(raw)
    assert error.field == ""
    assert error.message.startswith("params: expected object")


@pytest.mark.parametrize("role", ["user", "USER", "ROLE_USER", "role_user"])
def test_every_spelling_of_the_role(role: str) -> None:
    assert read_send(body({"role": role})).message.role is Role.USER


def test_SND_24_unknown_members_are_kept_in_message_and_part_and_dropped_elsewhere() -> None:
    raw = body(
        {"parts": [{"text": "x", "q": [1]}], "tckUnknownField": "y", "extra": {"z": 1}},
        tckExtraParam=42,
        configuration={"odd": 1, "blocking": True},
    )
    request = read_send(raw)
    assert request.message.extra == {"tckUnknownField": "y", "extra": {"z": 1}}
    assert request.message.parts[0].extra == {"q": [1]}
    assert request.wait is True


def test_snake_case_of_the_python_sdk_over_rest() -> None:
    raw = msgspec.json.encode(
        {
            "request": {
                "message_id": "m1",
                "role": "ROLE_USER",
                "context_id": "c1",
                "content": [
                    {"file": {"file_with_uri": "http://x", "mime_type": "a/b", "name": "n"}},
                    {"data": {"data": {"a": 1}}},
                ],
            },
            "configuration": {"push_notification": {"url": "http://y"}, "history_length": 0},
        }
    )
    request = read_send(raw, Dialect.V03_PROTO)
    assert request.message.context_id == "c1"
    assert request.message.parts == (
        Part(url="http://x", media_type="a/b", filename="n"),
        Part(data={"a": 1}),
    )
    assert request.push == PushConfig("http://y")
    assert request.history_length is None, "in the proto of 0.3 zero means not given"


def test_errors_name_the_members_as_sent() -> None:
    raw = b'{"request":{"messageId":"m","role":"user","content":[{}]}}'
    assert refused(raw).field == "request.content[0]"


def test_the_proper_spelling_wins_over_the_other() -> None:
    for twice in ({"message_id": "b", "messageId": "a"}, {"messageId": "a", "message_id": "b"}):
        params = {"message": {**twice, "role": "user", "parts": [{"text": "x"}]}}
        assert read_send(msgspec.json.encode(params)).message.message_id == "a"


def test_context_in_the_message_or_in_the_params() -> None:
    assert read_send(body({"contextId": "c1"})).message.context_id == "c1"
    assert read_send(body(contextId="c2")).message.context_id == "c2"
    assert read_send(body(context_id="c2")).message.context_id == "c2"
    assert read_send(body({"contextId": "c1"}, contextId="c1")).message.context_id == "c1"
    assert refused(body({"contextId": "c1"}, contextId="c2")).field == "message.contextId"
    assert refused(body(contextId="\n")).field == "contextId"


def test_task_in_the_message_or_in_the_params() -> None:
    assert read_send(body({"taskId": "t1"})).message.task_id == "t1"
    assert read_send(body(taskId="tasks/t2")).message.task_id == "t2"
    assert read_send(body(task_id="t2")).message.task_id == "t2"
    assert read_send(body({"taskId": "t1"}, taskId="tasks/t1")).message.task_id == "t1"
    assert refused(body({"taskId": "t1"}, taskId="t2")).field == "message.taskId"


def test_a_resource_name_as_task_id() -> None:
    assert read_send(body({"taskId": "tasks/t1"})).message.task_id == "t1"


@pytest.mark.parametrize(
    ("configuration", "wait"),
    [
        ({}, None),
        (None, None),
        ({"blocking": True}, True),
        ({"blocking": False}, False),
        ({"returnImmediately": True}, False),
        ({"return_immediately": False}, True),
        ({"blocking": True, "returnImmediately": True}, False),
    ],
)
def test_wait_or_receipt(configuration: dict[str, Any] | None, wait: bool | None) -> None:
    assert read_send(body(configuration=configuration)).wait is wait


@pytest.mark.parametrize("name", ["pushNotificationConfig", "taskPushNotificationConfig", "pushNotification"])
def test_push_wanted_at_send(name: str) -> None:
    wanted = {
        "url": "http://x",
        "id": "c",
        "token": "t",
        "authentication": {"scheme": "Basic", "credentials": "d"},
    }
    read = read_send(body(configuration={name: wanted})).push
    assert read == PushConfig("http://x", "c", "t", "Basic", "d")


@pytest.mark.parametrize("length", [-1, 2**31, 10**30, 1.5, True, "5"])
def test_HIS_05_bad_history_length(length: Any) -> None:
    error = refused(body(configuration={"historyLength": length}))
    assert error.field == "configuration.historyLength"
    assert "integer" in error.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b'{"message":{"messageId":"\xff"}}',
        b'{"message":5,',
        b'{"metadata":{"a":1e999}}',
        b'{"metadata":{"a":' + b"9" * 5000 + b"}}",
        b'{"metadata":{"a":"\\ud800"}}',
        b'{"metadata":' + b"[" * 100_000,
        b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"metadata":{"a":' + b"[" * 101 + b"]" * 101 + b"}}",
    ],
    ids=range(11),
)
def test_SEC_06_what_is_not_json(raw: bytes) -> None:
    for read in (read_send, read_task_query, read_list_query):
        with pytest.raises(ParseError):
            read(raw)


def test_wide_bodies_are_no_deep_ones() -> None:
    parts = [{"data": {"a": [["]]}}", '\\"[[']]}} for _ in range(200)]
    assert len(read_send(body({"parts": parts})).message.parts) == 200


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":"t1"}',
        b'{"taskId":"t1"}',
        b'{"task_id":"t1"}',
        b'{"name":"tasks/t1"}',
        b'{"id":"tasks/t1","x":1}',
    ],
)
def test_task_query(raw: bytes) -> None:
    assert read_task_query(raw).id == "t1"


def test_task_query_members() -> None:
    query = read_task_query(b'{"id":"t1","historyLength":3,"tenant":"acme","metadata":{}}')
    assert (query.history_length, query.tenant) == (3, "acme")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, "id"),
        (b"{}", "id"),
        (b'{"id":""}', "id"),
        (b'{"id":"tasks/"}', "id"),
        (b'{"":"not_a_dict"}', "id"),
        (b'{"id":5}', "id"),
        (b'{"id":"t","historyLength":-1}', "historyLength"),
        (b"[]", ""),
    ],
)
def test_bad_task_query(raw: bytes | None, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_task_query(raw)
    assert caught.value.field == field


def test_task_query_from_a_query_string() -> None:
    assert task_query_from("t1", {"history_length": "2", "A2A-Version": "1.0"}).history_length == 2
    assert task_query_from("t1", {"historyLength": ""}).history_length is None
    with pytest.raises(InvalidParams) as caught:
        task_query_from("t1", {"historyLength": "-1"})
    assert caught.value.field == "historyLength"


def test_LST_07_defaults() -> None:
    for query in (read_list_query(None), read_list_query(b"{}"), list_query_from({})):
        assert query.page_size == 50
        assert query.status is None
        assert not query.include_artifacts
        assert query.status_timestamp_after is None


def test_LST_05_RST_02_filters() -> None:
    params = {
        "contextId": "c1",
        "status": "TASK_STATE_WORKING",
        "pageSize": 7,
        "pageToken": "p",
        "historyLength": 1,
        "statusTimestampAfter": "1970-01-01T00:00:01.5Z",
        "includeArtifacts": True,
        "tenant": "acme",
    }
    query = read_list_query(msgspec.json.encode(params))
    assert query.status is TaskState.WORKING
    assert query.status_timestamp_after == 1500
    assert query.include_artifacts
    strings = {name: str(value).lower() if value is True else str(value) for name, value in params.items()}
    assert list_query_from(strings) == query
    snake = {
        "context_id": "c1",
        "status": "working",
        "page_size": "7",
        "page_token": "p",
        "history_length": "1",
        "status_timestamp_after": "1970-01-01T00:00:01.5Z",
        "include_artifacts": "true",
        "tenant": "acme",
    }
    assert list_query_from(snake) == query


@pytest.mark.parametrize("context_id", ["a\0b", "\0", "a\nb", "x" * 257])
def test_a_context_that_no_task_can_have_is_no_filter(context_id: str) -> None:
    """PostgreSQL cannot even be asked for a NUL; both stores give the same answer."""
    for ask in (
        lambda: read_list_query(msgspec.json.encode({"contextId": context_id})),
        lambda: list_query_from({"contextId": context_id}),
    ):
        with pytest.raises(InvalidParams) as caught:
            ask()
        assert caught.value.field == "contextId"


@pytest.mark.parametrize("size", [0, 101, -1, 2**40])
def test_LST_07_page_sizes_out_of_range(size: int) -> None:
    for ask in (
        lambda: read_list_query(b'{"pageSize":%d}' % size),
        lambda: list_query_from({"pageSize": str(size)}),
    ):
        with pytest.raises(InvalidParams) as caught:
            ask()
        assert caught.value.field == "pageSize"


@pytest.mark.parametrize("status", ["unknown", "TASK_STATE_NONE", "done", "TASK_STATE_"])
def test_LST_09_unknown_status(status: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        list_query_from({"status": status})
    assert caught.value.field == "status"
    assert "TASK_STATE_WORKING" in caught.value.message


def test_the_zero_value_of_the_status_is_no_filter() -> None:
    assert read_list_query(b'{"status":"TASK_STATE_UNSPECIFIED"}').status is None


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"historyLength": "-1"}, "historyLength"),
        ({"includeArtifacts": "maybe"}, "includeArtifacts"),
        ({"pageSize": "ten"}, "pageSize"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
    ],
)
def test_bad_query_strings(params: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        list_query_from(params)
    assert caught.value.field == field


keys = st.sampled_from(
    "message request messageId message_id role parts content text raw url data file bytes uri kind type "
    "metadata configuration historyLength blocking contextId id name status pageSize extra *extra x".split()
)
junk = st.recursive(
    samples.values | st.sampled_from(["user", "text", "ROLE_USER", "tasks/", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@given(st.binary() | junk.map(msgspec.json.encode), st.sampled_from(Dialect))
@example(b'{"message":{"messageId":"m","role":"user","parts":[{"*extra":{"a":1},"text":""}]}}', Dialect.V03)
def test_SEC_06_any_bytes_are_read_or_refused(raw: bytes, dialect: Dialect) -> None:
    for read in (
        lambda: read_send(raw, dialect),
        lambda: read_task_query(raw),
        lambda: read_list_query(raw),
    ):
        try:
            read()
        except Refused as error:
            assert error.message


@given(st.dictionaries(keys | st.text(max_size=5), st.text(max_size=8), max_size=4))
def test_any_query_string_is_read_or_refused(params: dict[str, str]) -> None:
    for read in (lambda: list_query_from(params), lambda: task_query_from("t", params)):
        try:
            read()
        except Refused as error:
            assert error.message
