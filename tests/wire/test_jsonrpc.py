from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from tests.wire.samples import plain
from trunkline import errors as e
from trunkline.wire import jsonrpc
from trunkline.wire.codes import CODES
from trunkline.wire.jsonrpc import Envelope, read_envelope
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation


def envelope(**members: Any) -> Envelope:
    return read_envelope(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "GetTask"} | members))


def test_a_proper_request() -> None:
    read = envelope(params={"id": "t1"})
    assert (read.id, read.method, read.notification, read.fault) == (1, "GetTask", False, None)
    assert read.params is not None
    assert bytes(read.params) == b'{"id":"t1"}'


@pytest.mark.parametrize(
    "request_id", ["a", "", 1, -1, 2**70, 1.5, None, "x" * 256, "ß" * 128, 10**252, 2**840 - 1]
)
def test_JRP_01_ids_come_back_as_they_came(request_id: jsonrpc.RequestId) -> None:
    read = envelope(id=request_id)
    assert read.fault is None
    assert not read.notification
    assert plain(jsonrpc.result(read.id, b"null")) == {"jsonrpc": "2.0", "id": request_id, "result": None}


def test_JRP_06_a_request_without_id_is_a_notification() -> None:
    read = read_envelope(b'{"jsonrpc":"2.0","method":"GetTask"}')
    assert read.notification
    assert read.id is None
    assert read.fault is None


@pytest.mark.parametrize("body", [b'{"jsonrpc":"1","method":"GetTask"}', b'{"jsonrpc":"2.0","params":{}}'])
def test_JRP_02_what_is_no_request_is_no_notification(body: bytes) -> None:
    read = read_envelope(body)
    assert isinstance(read.fault, e.InvalidRequest)
    assert (read.id, read.notification) == (None, False)


@pytest.mark.parametrize("params", [b"", b',"params":null', b', "params" : null'])
def test_absent_params(params: bytes) -> None:
    assert read_envelope(b'{"jsonrpc":"2.0","id":1,"method":"x"%b}' % params).params is None


@pytest.mark.parametrize(
    ("members", "fault", "field", "request_id"),
    [
        ({"jsonrpc": "aaa"}, e.InvalidRequest, "jsonrpc", 1),
        ({"jsonrpc": None}, e.InvalidRequest, "jsonrpc", 1),
        ({"jsonrpc": 2.0, "id": "a"}, e.InvalidRequest, "jsonrpc", "a"),
        ({"method": None}, e.InvalidRequest, "method", 1),
        ({"method": 5}, e.InvalidRequest, "method", 1),
        ({"id": {"bad": "type"}}, e.InvalidRequest, "id", None),
        ({"id": [1]}, e.InvalidRequest, "id", None),
        ({"id": True}, e.InvalidRequest, "id", None),
        ({"id": "x" * 257}, e.InvalidRequest, "id", None),
        ({"id": "ß" * 129}, e.InvalidRequest, "id", None),
        ({"id": 2**840}, e.InvalidRequest, "id", None),
        ({"id": 10**256}, e.InvalidRequest, "id", None),
        ({"id": "x" * 257, "method": 5}, e.InvalidRequest, "id", None),
        ({"params": "x"}, e.InvalidRequest, "params", 1),
        ({"params": 5}, e.InvalidRequest, "params", 1),
        ({"params": []}, e.InvalidParams, "params", 1),
        ({"params": ["x"]}, e.InvalidParams, "params", 1),
    ],
)
def test_JRP_02_bad_members(members: dict[str, Any], fault: type, field: str, request_id: Any) -> None:
    read = envelope(**members)
    assert type(read.fault) is fault
    assert read.fault is not None
    assert read.fault.field == field
    assert read.id == request_id


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", e.ParseError),
        (b"{", e.ParseError),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"} x', e.ParseError),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', e.ParseError),
        (b'{"jsonrpc":5,"id":1,"method":', e.ParseError),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', e.ParseError),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 99_999, e.ParseError),
        (b"[{]", e.ParseError),
        (b"[]", e.InvalidRequest),
        (b' [{"jsonrpc":"2.0","id":1,"method":"x"}]', e.InvalidRequest),
        (b"5", e.InvalidRequest),
        (b"null", e.InvalidRequest),
        (b'{"id":1}', e.InvalidRequest),
    ],
)
def test_JRP_02_JRP_05_bad_bodies(body: bytes, fault: type) -> None:
    read = read_envelope(body)
    assert type(read.fault) is fault
    assert read.id == (1 if body == b'{"id":1}' else None)


def test_JRP_05_a_batch_is_told_so() -> None:
    fault = read_envelope(b"[]").fault
    assert fault is not None
    assert "batches are not part of A2A" in fault.message


@given(st.binary() | samples.values.map(msgspec.json.encode))
def test_any_bytes_give_an_envelope(body: bytes) -> None:
    read = read_envelope(body)
    assert read.fault is not None or read.method


@given(samples.texts | samples.numbers | st.none(), samples.values)
def test_JRP_01_stream_envelopes_are_the_result_envelope(request_id: Any, value: Any) -> None:
    body = msgspec.json.encode(value)
    prefix, suffix = jsonrpc.envelope_parts(request_id)
    assert prefix + body + suffix == jsonrpc.result(request_id, body)
    assert plain(prefix + body + suffix) == {"jsonrpc": "2.0", "id": request_id, "result": value}


def test_ERR_03_ERR_06_ERR_08_errors() -> None:
    refused = e.InvalidParams("message.role is missing", field="message.role", hint="x")
    assert plain(jsonrpc.error("a", refused)) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {
            "code": -32602,
            "message": "message.role is missing",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "INVALID_PARAMS",
                    "domain": "a2a-protocol.org",
                    "metadata": {"hint": "x"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "message.role", "description": "message.role is missing"}],
                },
            ],
        },
    }


def test_JRP_02_a_parse_error_never_names_an_id() -> None:
    """Also where one was read before the fault, as in params that are no UTF-8."""
    assert plain(jsonrpc.error(5, e.ParseError("the body is not JSON")))["id"] is None


@pytest.mark.parametrize("kind", CODES)
def test_ERR_01_ERR_02_every_refusal_has_its_code(kind: type[e.Refused]) -> None:
    body = plain(jsonrpc.error(None, samples.refused(kind)))
    assert body["id"] is None
    assert body["error"]["code"] == CODES[kind].rpc
    assert [item["reason"] for item in body["error"]["data"]] == [CODES[kind].reason]


def test_JRP_04_all_operations_are_routed() -> None:
    assert set(METHODS_V1.values()) == set(METHODS_V03.values()) == set(Operation)
    assert len(METHODS_V1) == 11
    assert METHODS_V03["message/sendStream"] is Operation.STREAM
    assert METHODS_V03["tasks/subscribe"] is METHODS_V03["tasks/resubscribe"] is Operation.SUBSCRIBE
