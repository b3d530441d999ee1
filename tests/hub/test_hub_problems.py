"""How the API of a hub refuses: each code names what is missing, each field stands in the body as it came."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Agent
from tests.hub.test_hub import HubProcess
from trunkline.hub.template import write_workspace


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    workspace: Path = tmp_path_factory.mktemp("hub") / "demo"
    write_workspace(workspace)
    with HubProcess(workspace) as process:
        agent = Agent(process.base)
        yield agent
        agent.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "agents/nobody", None, "AGENT_NOT_FOUND"),
        ("PUT", "agents/nobody", {"url": "http://127.0.0.1"}, "AGENT_NOT_FOUND"),
        ("POST", "agents/nobody/drain", None, "AGENT_NOT_FOUND"),
        ("POST", "a2a/chat", {"agent": "nobody", "message": "x"}, "AGENT_NOT_FOUND"),
        ("POST", "a2a/delegate", {"agent": "nobody", "message": "x"}, "AGENT_NOT_FOUND"),
        ("GET", "ceremonies/none/runs", None, "CEREMONY_NOT_FOUND"),
        ("POST", "ceremonies/none/run", None, "CEREMONY_NOT_FOUND"),
        ("GET", "tasks/none", None, "TASK_NOT_FOUND"),
        ("GET", "nothing", None, "ROUTE_NOT_FOUND"),
    ],
)
def test_what_is_not_there_is_told_from_a_path_that_is_not(
    hub: Agent, method: str, path: str, body: Any, code: str
) -> None:
    answer = hub.http.request(method, f"{hub.base}/api/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, code)


@pytest.mark.parametrize(
    "path", ["agents/writer/disable", "agents/writer/refresh", "ceremonies/morning/run", "tasks/none/cancel"]
)
def test_a_route_that_reads_no_body_refuses_members_of_one(hub: Agent, path: str) -> None:
    answer = hub.http.post(f"{hub.base}/api/{path}", json={"force": True})
    assert (answer.status_code, answer.json()["field"]) == (400, "force")
    assert hub.http.post(f"{hub.base}/api/{path}", content=b"force").json()["code"] == "PARSE_ERROR"
    assert hub.http.get(f"{hub.base}/api/agents/writer").json()["state"] != "disabled"
    assert hub.http.get(f"{hub.base}/api/ceremonies/morning/runs").json()["items"] == []
    # Without members it is none.
    assert hub.http.post(f"{hub.base}/api/agents/writer/enable", json={}).status_code == 200


@pytest.mark.parametrize("path", ["dispatch", "a2a/chat"])
def test_a_refusal_to_go_on_names_the_member_as_it_was_given(hub: Agent, path: str) -> None:
    order = {"agent": "writer", "message": "go", "wait": 30}
    (done,) = hub.http.post(f"{hub.base}/api/dispatch", json=order).json()["tasks"]
    assert done["state"] == "completed"
    chat = {"agent": "writer"} if path == "a2a/chat" else {}
    again = {**chat, "message": "more", "taskId": done["taskId"]}
    answer = hub.http.post(f"{hub.base}/api/{path}", json=again)
    assert (answer.status_code, answer.json()["field"]) == (409, "taskId")


def test_a_state_that_there_is_not_is_answered_with_those_that_there_are(hub: Agent) -> None:
    said = hub.http.get(f"{hub.base}/api/tasks?state=done").json()
    assert said["field"] == "state"
    assert "input-required" in said["detail"] and "completed" in said["detail"]
