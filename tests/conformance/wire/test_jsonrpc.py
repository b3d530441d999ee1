"""JSON-RPC 2.0: envelopes, ids, batches, notifications, method names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.wire.bindings import Rpc, Rpc03
from tests.harness import V1

IDS = ["a string", "", 0, 7, -1, 2**53, 1.5, None]


def _post(rpc: Rpc, body: Any, **headers: str) -> Any:
    return rpc.exchange("POST", rpc.url, body, {**V1, **headers})


def _request(method: str, params: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@pytest.mark.parametrize("request_id", IDS)
def test_JRP_01_the_id_comes_back_as_it_was(rpc: Rpc, request_id: Any) -> None:
    good = _post(rpc, _request("SendMessage", {"message": rpc.message("echo")}, request_id)).json()
    bad = _post(rpc, _request("GetTask", {"id": "none"}, request_id)).json()
    for answer, member in ((good, "result"), (bad, "error")):
        assert set(answer) == {"jsonrpc", "id", member}
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == request_id and type(answer["id"]) is type(request_id)


@pytest.mark.parametrize("request_id", IDS)
def test_JRP_01_the_id_is_in_every_frame(rpc: Rpc, request_id: Any) -> None:
    body = json.dumps(_request("SendStreamingMessage", {"message": rpc.message("chunks 2")}, request_id))
    with rpc.http.stream(
        "POST", rpc.url, content=body, headers={**V1, "Content-Type": "application/json"}
    ) as got:
        frames = [json.loads(line[6:]) for line in got.iter_lines() if line.startswith("data: ")]
    assert len(frames) == 5
    assert all(set(one) == {"jsonrpc", "id", "result"} and one["id"] == request_id for one in frames)


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"nonsense", -32700, None),
        (b"", -32700, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask","params":{"id":"\xff"}}', -32700, None),
        (b'"text"', -32600, None),
        (b"null", -32600, None),
        (b'{"id":5,"method":"GetTask"}', -32600, 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"GetTask"}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"Nothing"}', -32601, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"getTask"}', -32601, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":""}', -32601, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask"}', -32602, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask","params":{}}', -32602, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask","params":["x"]}', -32602, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"GetTask","params":{"id":7}}', -32602, 5),
    ],
)
def test_JRP_02_what_is_wrong_has_its_code(rpc: Rpc, body: bytes, code: int, request_id: Any) -> None:
    response = rpc.http.post(rpc.url, content=body, headers={**V1, "Content-Type": "application/json"})
    answer = response.json()
    assert (response.status_code, answer["error"]["code"], answer["id"]) == (200, code, request_id)


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "application/a2a+json", "APPLICATION/JSON"],
)
def test_JRP_03_json_in_and_out(rpc: Rpc, kind: str) -> None:
    response = _post(rpc, _request("GetTask", {"id": "none"}), **{"Content-Type": kind})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_JRP_03_another_media_type_is_refused(rpc: Rpc, kind: str) -> None:
    response = _post(rpc, _request("GetTask", {"id": "none"}), **{"Content-Type": kind})
    assert (response.status_code, response.json()["error"]["code"]) == (415, -32005)


@pytest.mark.parametrize("operation", Rpc.METHODS)
def test_JRP_04_all_eleven_methods_are_routed(rpc: Rpc, rpc03: Rpc03, operation: str) -> None:
    for spoken in (rpc, rpc03):
        answer = spoken.call(operation, {})
        assert answer.error is None or answer.error["code"] != -32601, answer.body


@pytest.mark.parametrize(
    ("alias", "params"),
    [
        ("tasks/subscribe", {"id": "none"}),
        ("tasks/resubscribe", {"id": "none"}),
        (
            "tasks/pushNotification/set",
            {"id": "none", "pushNotificationConfig": {"url": "https://a.example"}},
        ),
        ("tasks/pushNotification/get", {"id": "none"}),
    ],
)
def test_JRP_04_old_names_are_routed(rpc: Rpc, alias: str, params: Any) -> None:
    response = rpc.exchange("POST", rpc.url, _request(alias, params), {})
    assert response.json()["error"]["code"] == -32001


@pytest.mark.parametrize("slash", ["", "/"])
def test_JRP_04_with_and_without_a_trailing_slash(rpc: Rpc, slash: str) -> None:
    body = _request("SendMessage", {"message": rpc.message("echo")})
    response = rpc.exchange("POST", rpc.url + slash, body, V1)
    assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_JRP_04_only_post(rpc: Rpc, verb: str) -> None:
    response = rpc.http.request(verb, rpc.url, headers=V1)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json()["error"]["code"] == -32601


@pytest.mark.parametrize("count", [0, 1, 3])
def test_JRP_05_a_batch_is_refused_once(rpc: Rpc, count: int) -> None:
    before = rpc.list().result["totalSize"]
    answer = _post(rpc, [_request("SendMessage", {"message": rpc.message("echo")})] * count).json()
    assert (answer["error"]["code"], answer["id"]) == (-32600, None)
    assert rpc.list().result["totalSize"] == before


def test_JRP_06_a_notification_gets_no_result(rpc: Rpc) -> None:
    message = rpc.message("echo unheard")
    response = _post(rpc, {"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": message}})
    assert (response.status_code, response.content) == (204, b"")
    # It was a request all the same, and was served.
    assert rpc.send_message(message).task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_JRP_06_a_notification_that_is_wrong_is_told_so(rpc: Rpc) -> None:
    response = _post(rpc, {"jsonrpc": "2.0", "method": "GetTask", "params": {"id": "none"}})
    answer = response.json()
    assert (response.status_code, answer["id"], answer["error"]["code"]) == (200, None, -32001)
