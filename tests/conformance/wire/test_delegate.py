"""The task API of workflow engines, served under /delegate."""

from __future__ import annotations

import time
import uuid
from typing import Any

import httpx2
import pytest

from tests.harness import Agent

QUESTIONS = {"ask": "What is your answer?", "auth": "Please authorize access to the demo."}


def _submit(demo: Agent, agent_id: str, given: dict[str, Any], correlation: str = "") -> httpx2.Response:
    body = {
        "agent_id": agent_id,
        "correlation_id": correlation or f"{uuid.uuid4()}:delegate:step",
        "input": given,
    }
    return demo.http.post(f"{demo.base}/delegate/tasks", json=body)


def _poll(demo: Agent, task_id: str, *until: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        response = demo.http.get(f"{demo.base}/delegate/tasks/{task_id}")
        assert response.status_code == 200, response.text
        record = response.json()
        if record["status"] in until:
            return record
        assert time.monotonic() < deadline, record
        time.sleep(0.02)


def test_submit_then_poll_to_completed(demo: Agent) -> None:
    response = _submit(demo, "demo", {"task": "echo implement feature X"})
    assert response.status_code == 201
    assert response.json()["status"] in ("submitted", "working", "completed")
    done = _poll(demo, response.json()["id"], "completed")
    assert done["output"] == {"text": "echo implement feature X", "delegate_status": "completed"}
    assert "error" not in done


def test_typed_skill_gets_the_input_as_data(demo: Agent) -> None:
    task_id = _submit(demo, "add", {"a": 2, "b": 3}).json()["id"]
    assert _poll(demo, task_id, "completed")["output"] == {"sum": 5, "delegate_status": "completed"}


@pytest.mark.parametrize("text", ["fail on purpose", "reject on purpose"])
def test_what_did_not_succeed_is_failed_with_a_reason(demo: Agent, text: str) -> None:
    task_id = _submit(demo, "demo", {"task": text}).json()["id"]
    assert _poll(demo, task_id, "failed") == {"id": task_id, "status": "failed", "error": "on purpose"}


@pytest.mark.parametrize("text", ["ask", "auth"])
def test_who_waits_is_input_required(demo: Agent, text: str) -> None:
    task_id = _submit(demo, "demo", {"task": text}).json()["id"]
    asks = _poll(demo, task_id, "input-required")
    assert asks == {"id": task_id, "status": "input-required", "output": {"prompt": QUESTIONS[text]}}


def test_same_correlation_id_is_the_same_task(demo: Agent) -> None:
    correlation = f"{uuid.uuid4()}:delegate:n1"
    first = _submit(demo, "demo", {"task": "echo once"}, correlation).json()["id"]
    assert _submit(demo, "demo", {"task": "echo once"}, correlation).json()["id"] == first
    other = _submit(demo, "demo", {"task": "echo something else"}, correlation)
    assert other.status_code == 400


def test_agent_name_means_the_default_skill_and_unknown_ones_are_refused(demo: Agent) -> None:
    assert _submit(demo, "Trunkline demo", {"task": "echo hi"}).status_code == 201
    refused = _submit(demo, "coder", {"task": "x"})
    assert refused.status_code == 404
    assert "coder" in refused.json()["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", ""),
        (b"[]", ""),
        (b'{"agent_id":"demo","input":{}}', "correlation_id"),
        (b'{"agent_id":"demo","correlation_id":"","input":{}}', "correlation_id"),
        (b'{"agent_id":"","correlation_id":"c","input":{}}', "agent_id"),
        (b'{"agent_id":"demo","correlation_id":"c","input":"x"}', "input"),
    ],
)
def test_bad_submissions_name_the_field(demo: Agent, body: bytes, field: str) -> None:
    response = demo.post(body, url=f"{demo.base}/delegate/tasks")
    assert response.status_code == 400
    assert field in response.text


def test_unknown_paths_verbs_and_tasks(demo: Agent) -> None:
    assert demo.http.get(f"{demo.base}/delegate/tasks/nothing").status_code == 404
    assert demo.http.get(f"{demo.base}/delegate/other").status_code == 404
    wrong = demo.http.get(f"{demo.base}/delegate/tasks")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert demo.post(b"", url=f"{demo.base}/delegate/tasks/x").status_code == 405
