"""Hubs with many agents: each is asked for its card once, and each can be called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import Caller, opened, run
from tests.harness import Agent
from tests.hub.remote_agents import RemoteAgent, RemoteAgents, until
from tests.hub.test_hub import HubProcess
from tests.sample import at_most
from trunkline.hub import carried
from trunkline.mock.serve import BackgroundServer
from trunkline.run.runner import Runner

AGENTS = 100
CROWD = 1000
NAMES = [f"n{place}" for place in range(20)]
ECHO = """
from trunkline import Agent, Turn

agent = Agent("Echo")

@agent.skill
async def answer(turn: Turn) -> str:
    return turn.text
"""


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


def test_cards_that_come_in_do_not_have_all_agents_carried_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, carry = [0], Runner.carry

    async def counted(self: Runner, *given: Any) -> None:
        times[0] += 1
        await carry(self, *given)

    monkeypatch.setattr(Runner, "carry", counted)
    agents = [RemoteAgent(f"a{place}", streaming=True) for place in range(AGENTS)]

    async def whole(url: str) -> None:
        lines = [f'  - {{name: {one.name}, url: "{url}/{one.name}", skills: [work]}}' for one in agents]
        async with opened(tmp_path, "agents:\n" + "\n".join(lines)) as caller:
            for one in agents:
                assert (await caller.ready(one.name))["state"] == "ready"
            assert times[0] <= 2
            # One that is new is carried at once.
            _, added = await caller("POST /api/agents", {"name": "late", "url": f"{url}/a0"})
            assert added["name"] == "late"
            await caller.ready("late")
            assert (await caller.say("late", "quick"))["status"]["state"] == "TASK_STATE_COMPLETED"
            assert times[0] <= 3

    with BackgroundServer(RemoteAgents(*agents)) as url:
        run(whole(url))


def test_names_that_come_and_go_without_a_task_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "_GONE_LIMIT", 3)

    async def whole(url: str) -> None:
        async with opened(tmp_path, "agents: []", key="operators-key-1") as caller:
            store = caller.hub.host.store
            other = await caller.tenant("other")

            async def add(who: Caller, name: str) -> None:
                assert (await who("POST /api/agents", {"name": name, "url": f"{url}/a"}))[0] == 200
                await who.ready(name)

            async def remove(who: Caller, name: str) -> None:
                assert (await who(f"DELETE /api/agents/{name}"))[0] in (200, 204)

            await add(caller, "worked")
            assert (await caller.say("worked", "quick"))["status"]["state"] == "TASK_STATE_COMPLETED"
            await remove(caller, "worked")
            # Another tenant still has one of this name.
            await add(other, "n0")
            for name in NAMES:
                await add(caller, name)
                await remove(caller, name)
            await add(caller, "last")
            async with asyncio.timeout(30):
                names: set[str] = set()
                while "last" not in names or len(names & set(NAMES)) > 5:
                    (names,) = [{*node.agents} for node in await store.nodes.list()]
                    caller.hub.carried.renew()
                    await asyncio.sleep(0.01)
            assert {"worked", "n0", "last"} <= names
            journals = {one.id for one in await store.docs.list("default", "journal")}
            assert len(journals & {f"agent:{name}" for name in NAMES}) <= 5
            # Who comes back is carried as before, and so is who never went.
            await add(caller, "n7")
            for who, name in ((caller, "n7"), (other, "n0")):
                assert (await who.say(name, "quick"))["status"]["state"] == "TASK_STATE_COMPLETED"

    with BackgroundServer(RemoteAgents(RemoteAgent("a", streaming=True))) as url:
        run(whole(url))


def test_each_of_a_thousand_agents_has_a_card_and_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "crowd_agent.py").write_text(ECHO)
    lines = [f'  - {{name: c{place}, import: "crowd_agent:agent"}}' for place in range(CROWD)]

    async def whole() -> None:
        async with opened(tmp_path, "agents:\n" + "\n".join(lines)) as caller:
            for place in range(CROWD):
                status, card = await caller(f"GET /v1/a2a/agents/c{place}/agent-card.json")
                assert (status, card["name"]) == (200, f"c{place}")
            for place in (0, 199, 200, 201, CROWD - 1):
                task = await caller.say(f"c{place}", f"to {place}")
                assert task["artifacts"][0]["parts"] == [{"text": f"to {place}"}], task

    run(whole())
