from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from tests.wire.test_answers import written
from trunkline import errors as e
from trunkline.wire import types as t
from trunkline.wire import v1
from trunkline.wire.answers import read_notice
from trunkline.wire.replies import (
    read_config,
    read_configs,
    read_page,
    rest_notice,
    rpc_notice,
    rpc_result,
    task_of,
)
from trunkline.wire.v03 import V03 as v03
from trunkline.wire.v03 import V03_PROTO as v03proto

OURS = "0123456789ab-7"
TASK = t.Task("t", "c", t.TaskStatus(t.TaskState.COMPLETED))
BARE = {"id": "t", "contextId": "c", "status": {"state": "completed"}}


def reply(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": OURS, **members}).encode()


@given(written, st.sampled_from([v1, v03, v03proto]))
def test_in_its_envelope_an_answer_is_the_same(drawn: Any, writer: Any) -> None:
    value, write = drawn
    body = write(writer, value)
    envelope = b'{"jsonrpc":"2.0","id":"%b","result":%b}' % (OURS.encode(), body)
    assert rpc_notice(envelope, OURS) == read_notice(body)
    assert rest_notice(body) == read_notice(body)


@pytest.mark.parametrize("given_id", [OURS, None, "1", 1, 1.5, {}, [], "abc-7"])
def test_an_id_that_means_nothing_is_forgiven(given_id: Any) -> None:
    assert rpc_notice(reply(id=given_id, result=BARE), OURS).answer == TASK


def test_an_id_of_another_request_is_not() -> None:
    with pytest.raises(e.Unreadable, match="answered request 0123456789ab-6"):
        rpc_notice(reply(id="0123456789ab-6", result=BARE), OURS)


def test_a_missing_envelope_is_forgiven() -> None:
    assert rpc_notice(json.dumps(BARE).encode(), OURS).answer == TASK
    assert rpc_notice(json.dumps({"result": {"task": BARE}}).encode(), OURS).answer == TASK


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'[{"jsonrpc":"2.0"}]',
        b"<html>504 \x1b[31mGateway Timeout</html>",
        b'{"jsonrpc":"2.0","id":1',
        b"null",
        b"7",
        b'"\xff"',
        reply(),
        reply(result=None),
        reply(result={}),
        reply(result=[BARE]),
        reply(result={"task": {"id": "t"}}),
        reply(result={**BARE, "status": {"state": "asleep"}}),
        b'{"jsonrpc":"2.0","result":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_what_is_no_answer_is_shown(body: bytes) -> None:
    with pytest.raises(e.Unreadable) as unreadable:
        rpc_notice(body, OURS)
    shown = str(unreadable.value)
    assert shown.isprintable()
    assert len(shown) < 600


def test_an_error_is_raised_even_beside_a_result() -> None:
    with pytest.raises(e.TaskNotFound, match="no such"):
        rpc_notice(reply(error={"code": -32001, "message": "no such"}, result=BARE), OURS)
    assert rpc_notice(reply(error=None, result=BARE), OURS).answer == TASK
    with pytest.raises(e.PeerError):
        rpc_notice(reply(error="out of order"), OURS)
    for nested in (b"[" * 5000 + b"]" * 5000, b'"\xff"', b"[" + b"{}," * 200_000 + b"{}]"):
        with pytest.raises((e.PeerError, e.Unreadable)):
            rpc_notice(b'{"jsonrpc":"2.0","error":%b}' % nested, OURS)
    assert rpc_result(reply(result=[1]), OURS) == b"[1]"
    assert rpc_result(reply(result=None), OURS) == b"null"
    assert rpc_result(reply(), OURS) == b""


def test_rest_reads_errors_and_envelopes_in_its_frames_too() -> None:
    with pytest.raises(e.InternalError, match="broke"):
        rest_notice(b'{"error":{"code":500,"message":"broke","details":[{"reason":"INTERNAL"}]}}')
    assert rest_notice(reply(result=BARE)).answer == TASK
    for body in (b"[]", b"{}", b"what?", b'{"a":1}'):
        with pytest.raises(e.Unreadable, match="no task, message or update"):
            rest_notice(body)


def test_get_and_cancel_answer_with_tasks() -> None:
    assert task_of(rpc_notice(reply(result={"task": BARE}), OURS)) == TASK
    with pytest.raises(e.Unreadable, match="Message where a Task is due"):
        task_of(rpc_notice(reply(result={"message": {"messageId": "m", "parts": []}}), OURS))


@given(st.lists(samples.tasks(), max_size=3), samples.texts)
def test_pages_are_read_as_they_are_written(tasks: list[t.Task], token: str) -> None:
    page = t.TaskPage(tuple(tasks), token, 50, 99)
    assert read_page(v1.page(page)) == page
    old = read_page(v03.page(page))
    assert (len(old.tasks), old.next_page_token, old.total_size) == (len(tasks), token, 99)


@pytest.mark.parametrize(
    ("body", "page"),
    [
        ([BARE], t.TaskPage((TASK,), "", 1, 1)),
        ({"tasks": [BARE]}, t.TaskPage((TASK,), "", 1, 1)),
        ({"tasks": None, "nextPageToken": None}, t.TaskPage((), "", 0, 0)),
        (
            {"tasks": [], "next_page_token": "n", "page_size": 5, "total_size": "7"},
            t.TaskPage((), "n", 5, 7),
        ),
        ({"tasks": [], "pageSize": "many", "totalSize": -1, "nextPageToken": 3}, t.TaskPage((), "", 0, 0)),
        ({"tasks": [], "pageSize": "²"}, t.TaskPage((), "", 0, 0)),
        ({}, t.TaskPage((), "", 0, 0)),
    ],
)
def test_pages_of_every_shape(body: Any, page: t.TaskPage) -> None:
    assert read_page(json.dumps(body).encode()) == page


@pytest.mark.parametrize("odd", [b"1e400", b'{"deep":["\xff"]}'])
def test_what_else_a_page_has_need_not_be_readable(odd: bytes) -> None:
    assert read_page(b'{"tasks":[],"cost":%b,"totalSize":7}' % odd) == t.TaskPage((), "", 0, 7)


@pytest.mark.parametrize("body", [b"null", b"7", b'{"tasks":[7]}', b'{"tasks":{}}', b"[", b""])
def test_what_is_no_page(body: bytes) -> None:
    with pytest.raises(e.Unreadable):
        read_page(body)


HOOK = "https://hooks.example/x"
CONFIG = t.PushConfig(HOOK, id="c")


@pytest.mark.parametrize(
    "body",
    [
        {"id": "c", "taskId": "t", "url": HOOK},
        {"id": "c", "url": HOOK},
        {"taskId": "t", "pushNotificationConfig": {"id": "c", "url": HOOK}},
        {"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"url": HOOK}},
        {"task_id": "t", "push_notification_config": {"id": "c", "url": HOOK}},
    ],
)
def test_push_configs_of_every_shape(body: Any) -> None:
    alone = json.dumps(body).encode()
    assert read_config(alone) == CONFIG
    assert read_configs(alone) == (CONFIG,)
    assert read_configs(json.dumps([body]).encode()) == (CONFIG,)
    for name in ("configs", "pushNotificationConfigs", "push_notification_configs"):
        assert read_configs(json.dumps({name: [body], "nextPageToken": ""}).encode()) == (CONFIG,)


def test_no_push_configs() -> None:
    for body in (b"", b"null", b"[]", b"{}", b'{"configs":null}', b'{"configs":[]}'):
        assert read_configs(body) == ()
    for body in (b"7", b"[7]", b'{"configs":7}', b"["):
        with pytest.raises(e.Unreadable, match="push config"):
            read_configs(body)
    with pytest.raises(e.Unreadable, match="url is missing"):
        read_config(b"{}")


@given(
    st.binary(max_size=40)
    | samples.values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["result", "error", "id", "jsonrpc", "task"]), samples.values).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_nothing_that_is_answered_breaks_a_reader(body: bytes) -> None:
    readers = [partial(rpc_notice, request_id=OURS), rest_notice, read_page, read_config, read_configs]
    for read in readers:
        try:
            read(body)
        except (e.Refused, e.Unreadable) as error:
            assert str(error).isprintable()


@pytest.mark.parametrize(("body", "said"), [(b"", "nothing"), (b"<html>", "<html>")])
def test_what_is_no_json_rpc_is_shown(body: bytes, said: str) -> None:
    with pytest.raises(e.Unreadable, match=f"did not answer with JSON-RPC but with: {said}$"):
        rpc_result(body, OURS)
