"""Which version a request is served in, and that it stays in it."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.conformance.wire.bindings import Binding, Rest, Rpc, Rpc03
from tests.harness import V1

SPOKEN_1 = ["1.0", "1", "1.0.0", "1.0.7"]
SPOKEN_03 = ["0.3", "0.3.0", "0.3.12", "0.2", "0.2.6", ""]
UNSPOKEN = ["99.0", "1.1", "2.0", "0.1", "0.30", "v1.0", "latest", "1.0, 0.3", "-1"]


def _rpc(rpc: Rpc, method: str, version: str | None, url: str = "") -> tuple[int, dict[str, object]]:
    kind = "user" if "/" in method else "ROLE_USER"
    message = {**rpc.message("echo hi"), "role": kind}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    headers = {} if version is None else {"A2A-Version": version}
    response = rpc.exchange("POST", url or rpc.url, body, headers)
    return response.status_code, response.json()


@pytest.mark.parametrize("version", UNSPOKEN)
def test_VER_01_another_version_is_refused(v1: Binding, version: str) -> None:
    answer = v1.post_message(v1.body(v1.message("echo")), {"A2A-Version": version})
    info = answer.details[0]["metadata"]
    assert info == {"requestedVersion": version, "supportedVersions": "1.0, 0.3"}
    v1.expect(answer, "VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize("method", ["SendMessage", "message/send", "tasks/get"])
def test_VER_01_the_version_is_judged_before_the_method(rpc: Rpc, method: str) -> None:
    status, body = _rpc(rpc, method, "99.0")
    assert (status, body["error"]["code"]) == (200, -32009)  # type: ignore[index]


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0", "0.2.6"])
def test_VER_02_absent_and_empty_are_0_3(rpc: Rpc, version: str | None) -> None:
    _, body = _rpc(rpc, "message/send", version)
    assert body["result"]["kind"] == "task"  # type: ignore[index]
    headers = {} if version is None else {"A2A-Version": version}
    assert rpc.http.get(f"{rpc.base}/tasks", headers=headers).status_code == 200


def test_VER_02_a_1_0_method_without_version_is_served_as_1_0(rpc: Rpc) -> None:
    for version in (None, ""):
        _, body = _rpc(rpc, "SendMessage", version)
        assert body["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"  # type: ignore[index]


def test_VER_02_each_version_has_its_own_method_names(rpc: Rpc) -> None:
    _, body = _rpc(rpc, "SendMessage", "0.3")
    assert body["error"]["code"] == -32601  # type: ignore[index]


@pytest.mark.parametrize("version", SPOKEN_1)
def test_VER_02_a_0_3_method_is_served_as_0_3_under_1_0(rpc: Rpc, version: str) -> None:
    _, body = _rpc(rpc, "message/send", version)
    assert body["result"]["kind"] == "task"  # type: ignore[index]
    _, body = _rpc(rpc, "message/send", "99.0")
    assert body["error"]["code"] == -32009  # type: ignore[index]


@pytest.mark.parametrize("version", SPOKEN_1)
def test_VER_03_a_patch_number_does_not_matter(v1: Binding, version: str) -> None:
    answer = v1.post_message(v1.body(v1.message("echo")), {"A2A-Version": version})
    assert answer.task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_VER_04_1_1_is_refused(v1: Binding) -> None:
    answer = v1.post_message(v1.body(v1.message("echo")), {"A2A-Version": "1.1"})
    assert answer.reason == "VERSION_NOT_SUPPORTED"


def test_VER_05_the_version_as_query_parameter(rpc: Rpc, rest: Rest) -> None:
    _, body = _rpc(rpc, "SendMessage", None, rpc.url + "?A2A-Version=1.0")
    assert "task" in body["result"]  # type: ignore[operator]
    _, body = _rpc(rpc, "SendMessage", None, rpc.url + "?A2A-Version=99.0")
    assert body["error"]["code"] == -32009  # type: ignore[index]
    made = rest.exchange(
        "POST", f"{rest.base}/message:send?A2A-Version=1.0", rest.body(rest.message("echo")), {}
    )
    assert made.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task_id = made.json()["task"]["id"]
    assert "kind" not in rest.http.get(f"{rest.base}/tasks/{task_id}?A2A-Version=1.0").json()


def test_VER_05_the_header_wins_over_the_parameter(rpc: Rpc) -> None:
    _, body = _rpc(rpc, "SendMessage", "1.0", rpc.url + "?A2A-Version=99.0")
    assert "result" in body
    _, body = _rpc(rpc, "SendMessage", "99.0", rpc.url + "?A2A-Version=1.0")
    assert body["error"]["code"] == -32009  # type: ignore[index]


def test_VER_06_a_0_3_request_gets_0_3_throughout(rpc03: Rpc03) -> None:
    assert rpc03.send("echo", wait=True)["kind"] == "task"
    with rpc03.stream("count 3 0") as frames:
        seen = [frame.result for frame in frames]
    assert [one["kind"] for one in seen[:2]] == ["task", "status-update"]
    assert not re.search(r"TASK_STATE|ROLE_", str(seen))
    assert rpc03.get("none").error["code"] == -32001


@pytest.mark.parametrize("name", ["a2a-version", "A2A-VERSION", "A2a-Version"])
def test_VER_07_the_header_name_has_no_case(rpc: Rpc, name: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}
    error = rpc.exchange("POST", rpc.url, body, {name: "1.0"}).json()["error"]
    assert error["code"] == -32001
    assert rpc.exchange("POST", rpc.url, body, {name: "7.0"}).json()["error"]["code"] == -32009


@pytest.mark.parametrize("version", [None, *SPOKEN_03, *UNSPOKEN])
def test_the_card_is_served_whatever_version_is_named(
    base: str, http: httpx2.Client, version: str | None
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    card = http.get(f"{base}/.well-known/agent-card.json", headers=headers)
    assert card.status_code == 200
    assert card.json()["protocolVersion"] == "0.3.0"


@pytest.mark.parametrize("version", SPOKEN_1)
def test_the_card_is_pure_1_0_when_1_0_is_named(base: str, http: httpx2.Client, version: str) -> None:
    card = http.get(f"{base}/.well-known/agent-card.json", headers={"A2A-Version": version}).json()
    assert "protocolVersion" not in card and "url" not in card


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_version_header_on_any_rest_route_is_1_0(rest: Rest, prefix: str) -> None:
    task = rest.send("echo hi")
    found = rest.http.get(f"{rest.base}{prefix}/tasks/{task['id']}", headers=V1)
    assert found.json() == task
