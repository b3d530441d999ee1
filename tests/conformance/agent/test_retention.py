"""AG-26 and AG-27: ended tasks go after their time, live ones never. Over real HTTP, both versions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.conformance.agent.talk import VERSIONS
from tests.conftest import Shelf
from tests.harness import Agent, ServerProcess, plain_state

TTL_S = 1.0
GONE_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[Agent]:
    """The demo agent, which keeps ended tasks for a second."""
    directory, flags = tmp_path_factory.mktemp("brief"), ("--set", f"retention={TTL_S}")
    with ServerProcess(directory, "trunkline.demo:agent", *flags, store=shelf.store("memory:")) as server:
        agent = Agent(server.base)
        yield agent
        agent.close()


def _gone(agent: Agent, task_id: str, version: str) -> bool:
    answer = agent.rpc("GetTask" if version == "1.0" else "tasks/get", {"id": task_id}, version=version)
    assert "result" in answer or answer["error"]["code"] == -32001, answer
    return "error" in answer


def test_AG_26_27_ended_tasks_go_and_live_ones_stay(brief: Agent) -> None:
    ended = [brief.send("echo hello", version=version)["id"] for version in VERSIONS]
    # Read, so that the encoded task is in memory too.
    assert [_gone(brief, task_id, version) for task_id, version in zip(ended, VERSIONS, strict=True)] == [
        False
    ] * 2
    asking = brief.send("ask")["id"]
    working = brief.send("hold 1", wait=False)["id"]
    deadline = time.monotonic() + GONE_WITHIN_S
    while not all(_gone(brief, task_id, version) for task_id in ended for version in VERSIONS):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # They are older than what has just gone.
    assert plain_state(brief.get(asking)) == "input-required"
    assert plain_state(brief.get(working)) in ("submitted", "working")
    listed = brief.result("ListTasks", {})
    assert {task["id"] for task in listed["tasks"]} == {asking, working}
    answered = brief.send("blue", taskId=asking)
    assert plain_state(answered) == "completed"
    brief.result("CancelTask", {"id": working})
