"""A hub as a process with a hundred agents asks each for its card once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Agent
from tests.hub.remote_agents import RemoteAgent, RemoteAgents, until
from tests.hub.test_hub import HubProcess
from tests.sample import at_most
from trunkline.mock.serve import BackgroundServer

AGENTS = 100


@pytest.mark.sampled
def test_hb37_a_hundred_agents_are_asked_for_their_cards_once_each(tmp_path: Path) -> None:
    rounds = at_most(50, 2)
    agents = [RemoteAgent(f"a{place}", streaming=place % 2 == 0) for place in range(AGENTS)]
    with BackgroundServer(RemoteAgents(*agents)) as url:
        lines = [f'  - {{name: {one.name}, url: "{url}/{one.name}", skills: [work]}}' for one in agents]
        (tmp_path / "agents.yaml").write_text("agents:\n" + "\n".join(lines))
        with HubProcess(tmp_path) as hub:
            caller = Agent(hub.base)

            def ready() -> bool:
                items = caller.http.get(f"{hub.base}/api/agents?limit=200").json()["items"]
                return [one["state"] for one in items] == ["ready"] * AGENTS

            until(ready)
            body = {"skill": "work", "targets": ["all"], "message": "quick", "wait": 300}
            for _ in range(rounds):
                tasks = caller.http.post(f"{hub.base}/api/dispatch", json=body, timeout=300).json()["tasks"]
                assert [one["state"] for one in tasks] == ["completed"] * AGENTS
            assert {one.calls["card"] for one in agents} == {1}
            assert {one.executed["quick"] for one in agents} == {rounds}
            assert caller.http.post(f"{hub.base}/api/agents/a7/refresh").status_code == 200
            assert sum(one.calls["card"] for one in agents) == AGENTS + 1
            caller.close()
