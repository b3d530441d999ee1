"""A hub as a process gives work to agents elsewhere: who is asked, what they are told, and who talks to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Agent
from tests.hub.remote_agents import until
from tests.hub.test_hub import HubProcess
from trunkline.mock.app import Mock
from trunkline.mock.script import read_scenarios
from trunkline.mock.serve import BackgroundServer

WRITER = "agent: {name: Writer, skills: [{id: draft, description: Writes}]}\notherwise: Written."
ASKER = """
agent: {name: Asker, skills: [{id: draft, description: Writes}, {id: approve, description: Asks}]}
otherwise: {ask: "Really?", then: Approved.}
"""
HUB = "routing: {splits: {draft: {writer: 1}}}"
AGENTS = """
agents:
  - {name: writer, url: "WRITER", skills: [draft]}
  - {name: asker, url: "ASKER", skills: [draft, approve], cooldown: {approve: 1h}}
  - {name: off, url: "http://127.0.0.1:1", enabled: false, skills: [draft]}
"""


class Fleet:
    """A hub, the API that is asked, and the agents behind it."""

    def __init__(self, agent: Agent, writer: Mock, asker: Mock) -> None:
        self.agent, self.writer, self.asker = agent, writer, asker

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        got = self.agent.http.post(f"{self.agent.base}/api/{path}", json=body)
        return got.status_code, got.json()

    def get(self, path: str) -> Any:
        return self.agent.http.get(f"{self.agent.base}/api/{path}").json()

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.writer.messages), len(self.asker.messages)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    workspace: Path = tmp_path_factory.mktemp("routing")
    mocks = [Mock(read_scenarios(text, where="mock")[0]) for text in (WRITER, ASKER)]
    with BackgroundServer(mocks[0]) as writer, BackgroundServer(mocks[1]) as asker:
        (workspace / "hub.yaml").write_text(HUB)
        (workspace / "agents.yaml").write_text(AGENTS.replace("WRITER", writer).replace("ASKER", asker))
        with HubProcess(workspace) as hub:
            agent = Agent(hub.base)
            yield Fleet(agent, *mocks)
            agent.close()


def test_hb07_refusals_ask_nobody(fleet: Fleet) -> None:
    before = fleet.asked
    for body, refusal in (
        ({}, "no_skill"),
        ({"skill": "fly"}, "unknown_skill"),
        ({"skill": "draft", "agent": "wrtier"}, "unknown_target"),
        ({"skill": "draft", "agent": "off"}, "unavailable"),
    ):
        _, said = fleet.post("dispatch", message="x", wait=30, **body)
        (task,) = said["tasks"]
        assert (task["state"], task["agent"]) == ("rejected", "hub")
        assert fleet.get(f"tasks/{task['taskId']}/route")["refusal"] == refusal
    assert fleet.asked == before


def test_hb06_work_is_drawn_fanned_out_and_done_once(fleet: Fleet) -> None:
    order = {"message": "go", "skill": "draft", "correlationId": "c-7", "metadata": {"payload": "canary"}}
    task, again = [fleet.post("dispatch", wait=30, **order)[1]["tasks"][0] for _ in range(2)]
    assert task == again
    assert (task["agent"], task["state"], task["text"]) == ("writer", "completed", "Written.")
    (sent,) = [one for one in fleet.writer.received if one.message is not None and "'go'" in str(one.message)]
    # HB-06: what an agent is told of it, and nothing else.
    assert sent.headers["x-correlation-id"] == "c-7"
    assert sent.headers["x-parent-id"] == task["taskId"]
    assert sent.message is not None and sent.message.context_id == task["contextId"]
    chain = {"root": task["taskId"], "hops": 1}
    assert sent.message.metadata == {"skillHint": "draft", "skillId": "draft", "trunkline.chain": chain}
    assert "canary" not in str(fleet.writer.received)
    assert {fleet.get("route?skill=draft")["winner"] for _ in range(5)} == {"writer"}
    _, said = fleet.post("dispatch", message="all of you", skill="draft", targets=["all"], wait=30)
    assert [(one["agent"], one["state"]) for one in said["tasks"]] == [
        ("asker", "input-required"),
        ("hub", "rejected"),
        ("writer", "completed"),
    ]


def test_hb21_a_conversation_with_an_agent_elsewhere(fleet: Fleet) -> None:
    assert fleet.post("a2a/chat", agent="nobody", message="x")[0] == 404
    _, asked = fleet.post("a2a/chat", agent="asker", message="may I?")
    assert (asked["taskState"], asked["response"]) == ("input-required", "Really?")
    _, said = fleet.post("a2a/chat", agent="asker", message="yes", taskId=asked["taskId"])
    assert (said["taskState"], said["response"]) == ("completed", "Approved.")
    polled = fleet.get(f"a2a/task/{asked['taskId']}")
    assert (polled["status"], polled["reply"]["response"]) == ("done", "Approved.")
    status, last = fleet.post(
        "a2a/chat", agent="asker", message="bye", contextId=asked["contextId"], done=True
    )
    assert (status, last["taskState"]) == (200, "input-required")
    assert last.keys().isdisjoint({"contextId", "taskId"})
    assert fleet.get(f"tasks/{last['correlationId']}")["state"] == "canceled"
    status, said = fleet.post("a2a/chat", agent="asker", message="more", contextId=asked["contextId"])
    assert (status, said["code"]) == (409, "CONTEXT_CLOSED")


@pytest.mark.parametrize("path", ["/a2a", "/v1/a2a/agents/asker"])
def test_a_caller_that_sends_flat_parts_is_answered_with_flat_parts(fleet: Fleet, path: str) -> None:
    said = {"messageId": "f", "role": "user", "parts": [{"text": "may I?"}]}
    params = {"message": said, "metadata": {"targets": ["asker"]}, "configuration": {"blocking": True}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    task = fleet.agent.http.post(f"{fleet.agent.base}{path}", json=body).json()["result"]
    assert task["status"]["state"] == "input_required"
    assert task["status"]["message"]["parts"] == [{"text": "Really?"}]
    assert [one["parts"] for one in task["history"]] == [[{"text": "may I?"}]]


def test_a_skill_cools_down_by_subject(fleet: Fleet) -> None:
    tasks = [
        fleet.post("dispatch", message="x", skill="approve", metadata={"subject": subject})[1]["tasks"][0]
        for subject in ("repo#1", "repo#1", "repo#2")
    ]
    assert [one["agent"] for one in tasks] == ["asker", "hub", "asker"]
    assert "cools down" in tasks[1]["error"]


def test_work_goes_elsewhere_once_an_agent_was_found_to_be_down(tmp_path: Path) -> None:
    mocks = [Mock(read_scenarios(text, where="mock")[0]) for text in (WRITER, ASKER)]
    first = BackgroundServer(mocks[0])
    with BackgroundServer(mocks[1]) as asker, first as writer:
        (tmp_path / "hub.yaml").write_text(HUB)
        (tmp_path / "agents.yaml").write_text(AGENTS.replace("WRITER", writer).replace("ASKER", asker))
        with HubProcess(tmp_path) as hub:
            agent = Agent(hub.base)
            fleet = Fleet(agent, *mocks)
            first.close()
            # Its card was read before, so the hub learns of it by the connection that is refused.
            _, said = fleet.post("dispatch", message="go", skill="draft")
            (waiting,) = said["tasks"]
            assert waiting["agent"] == "writer"
            until(lambda: fleet.get("agents/writer")["state"] == "unreachable")
            _, said = fleet.post("dispatch", message="go", skill="draft", wait=30)
            assert [(one["agent"], one["state"]) for one in said["tasks"]] == [("asker", "input-required")]
            again = Mock(read_scenarios(WRITER, where="mock")[0])
            with BackgroundServer(again, port=int(writer.rpartition(":")[2])):
                until(lambda: fleet.get(f"tasks/{waiting['taskId']}")["state"] == "completed")
            agent.close()


EFFECT = {"domain": "ci", "path": "prs.open", "delta": -1.0, "confidence": 1.0}
EFFECTS = {
    "uri": "https://example.org/ext/effect-domain-v1",
    "params": {"skills": {"draft": {"effects": [EFFECT]}}},
}


def test_effects_of_a_card_are_listed_and_rank_its_agent(tmp_path: Path) -> None:
    declares = f"agent: {{name: Asker, skills: [{{id: draft}}], extensions: [{json.dumps(EFFECTS)}]}}\n"
    mocks = [Mock(read_scenarios(text, where="mock")[0]) for text in (WRITER, f"{declares}otherwise: Done.")]
    with BackgroundServer(mocks[0]) as writer, BackgroundServer(mocks[1]) as asker:
        (tmp_path / "agents.yaml").write_text(AGENTS.replace("WRITER", writer).replace("ASKER", asker))
        with HubProcess(tmp_path) as hub:
            agent = Agent(hub.base)
            fleet = Fleet(agent, *mocks)
            until(lambda: {fleet.get(f"agents/{name}")["state"] for name in ("writer", "asker")} == {"ready"})
            effects = {one["id"]: one["effects"] for one in fleet.get("agents/asker")["skills"]}
            assert effects["draft"] == [EFFECT]
            _, said = fleet.post(
                "dispatch", message="x", skill="draft", metadata={"effectHint": "ci"}, wait=30
            )
            for path in (
                "route?skill=draft&effect=ci:prs.open",
                f"tasks/{said['tasks'][0]['taskId']}/route",
            ):
                first, *others = fleet.get(path)["candidates"]
                assert (first["agent"], first["parts"]["effect"], first["parts"]["weight"]) == ("asker", 1, 2)
                assert [(one["parts"]["weight"], "effect" in one["parts"]) for one in others] == [
                    (1, False)
                ] * 2
            agent.close()
