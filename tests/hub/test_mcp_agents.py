"""`/mcp` of a hub: the agents of the caller's tenant with their real schemas, and tasks that outlive its death."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from tests.harness import NO_TLS
from tests.hub.test_hub import HubProcess
from tests.mcp.test_http_server import connected
from tests.mcp.test_skill_server import text
from trunkline.bridge.tools import TOOLS_LIMIT
from trunkline.cli.hub_check import check
from trunkline.config import Settings
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.hub import mcp_agents
from trunkline.mcp.host_source import ServedAgent
from trunkline.server.operations import Operations
from trunkline.wire.peer_card import PeerCard

OPERATOR = "an-operators-key-for-mcp"
AGENTS = """
agents:
  - {name: planner, import: "mcp_planner:agent"}
  - {name: southern, import: "mcp_planner:agent", tenants: [south]}
  - {name: off, import: "mcp_planner:agent", enabled: false}
"""
PLANNER = """
from trunkline import Agent, Turn

agent = Agent("Planner", on_crash="resume")

@agent.skill
async def plan(city: str, days: int = 2) -> dict[str, object]:
    "Plan a trip."
    return {"city": city, "days": days}

@agent.skill
async def paint(turn: Turn) -> str:
    "Paint a wall."
    return "painted " + await turn.ask("Which colour?")
"""


def test_a_file_of_mcp_servers_that_is_wrong_is_told_by_check(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("agents: []")
    assert check(str(tmp_path)) == []
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"comand": "node"}}}')
    assert check(str(tmp_path)) == ["mcp.json: mcpServers.a.comand: unknown field; did you mean 'command'?"]


def test_agents_beyond_the_limit_of_tools_are_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = Catalogue()
    skills = [f"s{number}" for number in range(100)]
    for number in range(50):
        name = f"agent-{number:02}"
        raw = {"name": name, "url": "https://agents.example", "skills": skills}
        catalogue.take("default", name, read_entry(raw, "api"))
    read: list[str] = []

    def counted(name: str, card: PeerCard, operations: Operations) -> ServedAgent:
        read.append(name)
        return ServedAgent(name, card, operations)

    monkeypatch.setattr(mcp_agents, "ServedAgent", counted)
    unused = cast("Any", SimpleNamespace(tasks=None))
    source = mcp_agents.tools_of_catalogue(catalogue, unused, unused, Settings())
    offers = asyncio.run(source.offers(None, None))
    assert len(offers) == TOOLS_LIMIT
    assert len(read) <= TOOLS_LIMIT // len(skills) + 2
    assert "tools.left_out" in caplog.text


def test_the_agents_of_a_tenant_are_tools_and_their_tasks_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "mcp_planner.py").write_text(PLANNER)
    hub = HubProcess(tmp_path, "--key", OPERATOR)

    async def names(key: str) -> dict[str, Any]:
        async with connected(hub.base, key) as mcp:
            return {one.name: one for one in (await mcp.list_tools()).tools if one.name.startswith("a2a")}

    async def first() -> tuple[str, str]:
        async with httpx2.AsyncClient(verify=NO_TLS, headers={"X-API-Key": OPERATOR}) as http:
            made = await http.post(f"{hub.base}/admin/tenants", json={"name": "south"})
            south = made.json()["token"]
        listed = await names(OPERATOR)
        assert set(listed) == {"a2a__planner__plan", "a2a__planner__paint"}
        assert listed["a2a__planner__plan"].input_schema["properties"]["city"] == {"type": "string"}
        assert set(await names(south)) == {"a2a__southern__plan", "a2a__southern__paint"}
        async with connected(hub.base, OPERATOR) as mcp:
            found = await mcp.call_tool("a2a__planner__plan", {"city": "Rome"})
            assert found.structured_content["data"] == [{"city": "Rome", "days": 2}]
            found = await mcp.call_tool("a2a__planner__paint", {"query": "x"})
            assert found.structured_content["question"] == "Which colour?"
        return south, found.structured_content["task_id"]

    async def second(south: str, task_id: str) -> None:
        async with connected(hub.base, south) as mcp:
            found = await mcp.call_tool("task_status", {"task_id": task_id.replace("planner", "southern")})
            assert (found.is_error, "does not know this task" in text(found)) == (True, True)
        async with connected(hub.base, OPERATOR, mode="legacy") as mcp:
            found = await mcp.call_tool("task_status", {"task_id": task_id})
            assert found.structured_content["state"] == "input-required"
            found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": "blue"})
            assert text(found) == "painted blue"

    with hub:
        south, task_id = asyncio.run(asyncio.wait_for(first(), 90))
        hub.stop(signal.SIGKILL)
        hub.start()
        asyncio.run(asyncio.wait_for(second(south, task_id), 90))
