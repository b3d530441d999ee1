from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.wire import samples
from trunkline import errors as e
from trunkline.wire import codes, jsonrpc
from trunkline.wire.codes import CODES
from trunkline.wire.error_reader import excerpt, read_http_error, read_rpc_error


def read(status: int, body: Any, **headers: str) -> e.Refused:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_http_error(status, headers, raw)


@pytest.mark.parametrize("kind", CODES)
def test_every_refusal_of_ours_is_read_as_what_it_is(kind: type[e.Refused]) -> None:
    refused = samples.refused(kind, "why")
    seen = [
        read_rpc_error(json.loads(jsonrpc.error(1, refused))["error"]),
        read(200, jsonrpc.error(1, refused)),
        read(*codes.rest_error_v1(refused)),
        read(*codes.rest_error_v03(refused)),
    ]
    assert [(type(one), one.message) for one in seen] == [(kind, "why")] * 4


def test_a_field_and_details_come_along() -> None:
    refused = e.InvalidParams("parts is empty", field="message.parts", conflict="X", message_="m")
    for body in (
        jsonrpc.error(1, refused),
        codes.rest_error_v1(refused)[1],
        codes.rest_error_v03(refused)[1],
    ):
        seen = read(400, body)
        assert (seen.field, seen.details) == ("message.parts", {"conflict": "X", "message_": "m"})
    odd = {"code": -32602, "message": "m", "data": {"reason": "X", "metadata": {"message": "n", "n": 1}}}
    assert read_rpc_error(odd).details == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": -32001, "message": "x"}, e.TaskNotFound),
        ({"code": -32002}, e.TaskNotCancelable),
        ({"code": -32007, "message": "no extended card"}, e.ExtendedCardNotConfigured),
        ({"code": -32007, "message": "Unsupported A2A version: 2.0"}, e.VersionNotSupported),
        ({"code": -32001, "message": "task is in a terminal state"}, e.TaskNotCancelable),
        ({"code": -32001, "message": "Task cannot be canceled: not cancelable"}, e.TaskNotCancelable),
        ({"code": -32600, "message": "x"}, e.InvalidRequest),
        ({"code": -32601, "message": "x"}, e.MethodNotFound),
        ({"code": -32603, "message": "x"}, e.InternalError),
        ({"code": -32006, "message": "x"}, e.PeerError),
        ({"code": -32008, "message": "x"}, e.PeerError),
        ({"code": 42, "message": "x"}, e.PeerError),
        ({"code": True, "message": "x"}, e.PeerError),
        ({"code": "-32001", "message": "x"}, e.PeerError),
        ({"code": -32000, "data": [{"reason": "TASK_NOT_FOUND"}]}, e.TaskNotFound),
        ({"code": -32001, "data": [None, 7, {"reason": "UNSUPPORTED_OPERATION"}]}, e.UnsupportedOperation),
        ({"code": -32001, "data": "anything"}, e.TaskNotFound),
        ("a text", e.PeerError),
        (None, e.PeerError),
        ([], e.PeerError),
    ],
)
def test_errors_of_other_agents(error: Any, kind: type[e.Refused]) -> None:
    refused = read_rpc_error(error)
    assert type(refused) is kind
    assert refused.message


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b"", e.Unauthenticated),
        (401, {"error": {"code": -32000, "message": "who?"}}, e.Unauthenticated),
        (401, {"error": {"code": -32603, "message": "who?"}}, e.Unauthenticated),
        (403, b"<h1>Forbidden</h1>", e.Forbidden),
        (404, b"Not Found", e.RouteNotFound),
        (404, {"detail": "Not Found"}, e.RouteNotFound),
        (405, b"", e.RouteNotFound),
        (404, {"error": {"code": -32001, "message": "x"}}, e.TaskNotFound),
        (404, {"type": "https://a2a-protocol.org/errors/task-not-found", "title": "x"}, e.TaskNotFound),
        (409, {"type": "https://x.example/errors/task-not-cancellable/", "detail": "x"}, e.TaskNotCancelable),
        (404, {"name": "TASK_NOT_FOUND", "message": "x"}, e.TaskNotFound),
        (400, {"type": "about:blank", "title": "x"}, e.PeerError),
        (404, {"type": "ExtendedAgentCardNotConfiguredError"}, e.ExtendedCardNotConfigured),
        (404, {"type": "extended-card-not-configured"}, e.ExtendedCardNotConfigured),
        (409, {"message": "x"}, e.TaskNotCancelable),
        (413, b"", e.TooLarge),
        (415, {"error": {"code": -32005, "message": "x"}}, e.ContentTypeNotSupported),
        (422, {"message": "x"}, e.InvalidParams),
        (429, b"slow down", e.TooManyRequests),
        (501, {"message": "x"}, e.UnsupportedOperation),
        (503, b"", e.Unavailable),
        (503, {"error": {"code": -32603, "message": "x"}}, e.Unavailable),
        (400, b"?", e.PeerError),
        (500, b"Internal Server Error", e.PeerError),
        (502, {"error": "bad gateway"}, e.PeerError),
        (308, b"", e.PeerError),
    ],
)
def test_http_says_it_where_nothing_else_does(status: int, body: Any, kind: type[e.Refused]) -> None:
    refused = read(status, body)
    assert type(refused) is kind
    assert refused.message.isprintable()
    if isinstance(refused, e.PeerError):
        assert refused.code == status


def test_a_task_in_the_path_may_be_what_is_not_there() -> None:
    body = b'{"message":"Task abc not found"}'
    assert type(read_http_error(404, {}, body, of_task=True)) is e.TaskNotFound
    assert type(read_http_error(404, {}, body)) is e.RouteNotFound
    assert type(read_http_error(404, {}, b'{"detail":"Not Found"}', of_task=True)) is e.RouteNotFound


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("99999", 3600.0),
        ("nan", 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
    ],
)
def test_how_long_to_wait(header: str, seconds: float) -> None:
    refused = read(429, b"", **{"retry-after": header})
    assert isinstance(refused, e.TooManyRequests)
    assert refused.retry_after_s == seconds


def test_how_long_somebody_is_away() -> None:
    assert read(503, b"", **{"retry-after": "7"}).details == {"retryAfter": "7"}
    assert read(503, b"").details == {}


def test_no_refusal_writes_onto_a_terminal() -> None:
    assert read_rpc_error({"code": -32001, "message": "gone\x1b[2J\nfor good"}).message == "gone [2J for good"


def test_which_verbs_are_allowed() -> None:
    refused = read(405, b"", allow="GET")
    assert isinstance(refused, e.RouteNotFound)
    assert refused.allow == "GET"


@given(samples.texts.map(str.encode))
def test_what_is_shown_is_printable_and_short(body: bytes) -> None:
    assert (excerpt(body * 100) + "x").isprintable()
    assert len(excerpt(body * 100)) <= 201
    assert read(500, body * 100).message.isprintable()
