"""JSON-RPC over real HTTP: how errors travel where a client cannot read the usual answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import Agent, params

UNKNOWN = {"id": "01980000-0000-7000-8000-000000000000"}
EVENTS = "text/event-stream"


@pytest.mark.parametrize("method", ["tasks/resubscribe", "tasks/subscribe"])
def test_an_error_of_a_0_3_stream_is_a_frame(demo: Agent, method: str) -> None:
    with demo.stream(method, UNKNOWN, version="0.3", request_id="a") as frames:
        assert frames.response.status_code == 200
        assert frames.response.headers["content-type"] == EVENTS
        [frame] = frames.all()
    assert (frame.id, frame.data["id"], frame.data["error"]["code"]) == (None, "a", -32001)


def test_an_error_of_a_1_0_stream_is_plain(demo: Agent) -> None:
    with demo.stream("SubscribeToTask", UNKNOWN) as frames:
        assert frames.response.headers["content-type"] == "application/json"
        assert b"-32001" in frames.response.read()


def test_an_error_of_a_0_3_stream_is_plain_for_who_did_not_ask_for_frames(demo: Agent) -> None:
    assert demo.error("tasks/resubscribe", UNKNOWN, version="0.3")["code"] == -32001


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"jsonrpc": "1"}, -32600),
        ({"method": 5}, -32600),
        ({"method": "message/ssend"}, -32601),
        ({"params": {}}, -32602),
    ],
)
def test_a_broken_request_without_id_is_answered(demo: Agent, members: dict[str, Any], code: int) -> None:
    answer = demo.post({"jsonrpc": "2.0", "method": "message/send", "params": {}, **members})
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (200, None, code)


def test_a_request_without_id_that_was_served_has_no_answer(demo: Agent) -> None:
    answer = demo.post({"jsonrpc": "2.0", "method": "message/send", "params": params("echo hello", "0.3")})
    assert (answer.status_code, answer.content) == (204, b"")
