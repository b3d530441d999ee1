"""AG-14, AG-21 and AG-22 on the REST aliases of the seed: 0.3 JSON, receipts, plain SSE."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.agent.talk import bodies, kinds, states, until
from tests.harness import V1, Agent, message, params, plain_state, text_of

NOBODY = "0198f0c0-0000-7000-8000-000000000000"


def call(agent: Agent, verb: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    response = agent.http.request(verb, agent.base + path, json=body, headers=headers)
    return response.status_code, response.json()


def submit(agent: Agent, text: str) -> Any:
    status, task = call(agent, "POST", "/message:send", {"message": message(text, "0.3")})
    assert status == 202
    return task


def finished(agent: Agent, text: str) -> Any:
    task_id = submit(agent, text)["id"]
    return until(
        lambda: (
            (task := call(agent, "GET", f"/tasks/{task_id}")[1])["status"]["state"] == "completed" and task
        )
    )


def test_AG_21_send_answers_202_with_a_receipt(demo: Agent) -> None:
    task = submit(demo, "sleep 5")
    assert task["kind"] == "task"
    assert task["status"]["state"] in ("submitted", "working")
    assert task["id"]
    assert task["contextId"]


def test_AG_21_send_that_waits(demo: Agent) -> None:
    status, task = call(demo, "POST", "/message:send", params("echo here", "0.3", wait=True))
    assert (status, plain_state(task), text_of(task)) == (202, "completed", "echo here")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message": {}},
        {"message": message("x", "0.3", parts=[])},
        {"message": message("x", "0.3", parts=[{"kind": "text"}])},
        {"message": message("x", "0.3", metadata={"skill": "juggle"})},
        [],
    ],
    ids=["empty", "empty message", "no parts", "part without content", "no such skill", "array"],
)
def test_AG_21_a_bad_send_answers_400(demo: Agent, body: Any) -> None:
    status, error = call(demo, "POST", "/message:send", body)
    assert status == 400
    assert error["message"]


def test_AG_21_a_body_that_is_not_json_answers_400(demo: Agent) -> None:
    response = demo.post(b"{", url=demo.base + "/message:send")
    assert (response.status_code, response.json()["code"]) == (400, -32700)


def test_AG_21_get_answers_200_or_404(demo: Agent) -> None:
    task = finished(demo, "echo there")
    assert text_of(task) == "echo there"
    assert demo.get(task["id"], version="0.3") == task
    status, error = call(demo, "GET", f"/tasks/{NOBODY}")
    assert (status, error["code"]) == (404, -32001)


def test_AG_21_cancel_answers_200(demo: Agent) -> None:
    task_id = submit(demo, "sleep 30")["id"]
    status, task = call(demo, "POST", f"/tasks/{task_id}:cancel")
    assert (status, plain_state(task)) == (200, "canceled")


def test_AG_14_cancel_after_terminal_answers_409_and_unknown_404(demo: Agent) -> None:
    task = finished(demo, "echo done")
    status, error = call(demo, "POST", f"/tasks/{task['id']}:cancel")
    assert (status, error["code"]) == (409, -32002)
    status, error = call(demo, "POST", f"/tasks/{NOBODY}:cancel")
    assert (status, error["code"]) == (404, -32001)


def test_AG_14_cancel_after_terminal_by_the_1_0_binding(demo: Agent) -> None:
    task = finished(demo, "echo done")
    # The specification's own mapping: FAILED_PRECONDITION is 400 there.
    status, body = call(demo, "POST", f"/tasks/{task['id']}:cancel", {}, **V1)
    assert (status, body["error"]["details"][0]["reason"]) == (400, "TASK_NOT_CANCELABLE")
    status, body = call(demo, "POST", f"/tasks/{NOBODY}:cancel", {}, **V1)
    assert (status, body["error"]["details"][0]["reason"]) == (404, "TASK_NOT_FOUND")


def test_AG_21_push_config_answers_200_400_and_404(demo: Agent) -> None:
    task = finished(demo, "echo done")
    for task_id, status in ((task["id"], 200), (NOBODY, 404)):
        path = f"/tasks/{task_id}/pushNotificationConfigs"
        assert call(demo, "GET", path)[0] == status
        assert call(demo, "DELETE", f"{path}/1")[0] == status
        # There is no such config.
        status, error = call(demo, "GET", f"{path}/1")
        assert (status, error["code"]) == (404, -32001)
        for body in ({}, {"url": ""}, {"pushNotificationConfig": {"url": ""}}):
            status, error = call(demo, "POST", path, body)
            assert (status, error["code"]) == (400, -32602)
    status, error = call(
        demo, "POST", f"/tasks/{task['id']}/pushNotificationConfigs", {"url": "http://10.0.0.1"}
    )
    assert (status, error["code"]) == (400, -32602)


def test_AG_21_unknown_paths_and_verbs(demo: Agent) -> None:
    assert call(demo, "GET", "/tasks/a/b/c/d")[0] == 404
    response = demo.http.delete(f"{demo.base}/tasks/{NOBODY}")
    assert (response.status_code, response.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_AG_22_subscribe_is_reachable(demo: Agent, verb: str) -> None:
    task_id = submit(demo, "count 5 20")["id"]
    with demo.open(verb, f"/tasks/{task_id}:subscribe") as frames:
        assert frames.response.status_code == 200
        assert frames.response.headers["content-type"].startswith("text/event-stream")
        found = frames.all()
    assert all("jsonrpc" not in frame.data for frame in found), "REST frames have no envelope"
    assert kinds(found)[0] == "task"
    assert bodies(found, "status-update")[-1]["final"] is True


def test_AG_22_subscribe_to_an_unknown_task(demo: Agent) -> None:
    status, error = call(demo, "GET", f"/tasks/{NOBODY}:subscribe")
    assert (status, error["code"]) == (404, -32001)


def test_AG_22_stream_by_the_alias(demo: Agent) -> None:
    with demo.open("POST", "/message:stream", body={"message": message("chunks 2", "0.3")}) as frames:
        found = frames.all()
    assert kinds(found) == ["task", "status-update", "artifact-update", "artifact-update", "status-update"]
    assert all("jsonrpc" not in frame.data for frame in found)
    assert states(found) == ["working", "completed"]
