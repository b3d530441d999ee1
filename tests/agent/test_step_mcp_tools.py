"""Tools of MCP servers in skills: recorded as steps, in async and sync functions, with the codes of failures."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.drive import begin, said, send, state, text, until
from trunkline import Agent, Turn
from trunkline.agent.step import McpTools
from trunkline.agent.sync_turn import SyncTurn
from trunkline.errors import CallFailed, Misuse

SMALL = Path(__file__).parents[1] / "mcp" / "small_server.py"


def manifest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", sys.executable)
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"small": {"command": sys.executable, "args": [str(SMALL)]}}}))
    return str(file)


@pytest.mark.slow
def test_a_resumed_skill_does_not_call_its_tool_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, runs = asyncio.Event(), 0
    agent = Agent("a", on_crash="resume")

    @agent.skill
    async def skill(turn: Turn) -> str:
        nonlocal runs
        runs += 1
        first = await turn.mcp("small").call("add", {"a": 1}, b=2)
        if runs == 1:
            gate.set()
            await asyncio.Event().wait()
        second = await turn.mcp("small").call("add", {"a": first["sum"], "b": 2})
        return f"{first['sum']} {first['calls']} {second['sum']} {second['calls']}"

    async def main() -> Any:
        settings: dict[str, Any] = {
            "store": f"sqlite:///{tmp_path / 'tasks.db'}",
            "mcp_manifest": manifest(tmp_path, monkeypatch),
            "drain_limit": 0,
        }
        async with asyncio.timeout(60), agent.test_client(**settings) as client:
            task = await begin(client, "go")
            await gate.wait()
        async with asyncio.timeout(60), agent.test_client(**settings) as client:
            return await until(client, task["id"], "completed", "failed")

    # The server of the second run is another process, which has been called once.
    assert text(asyncio.run(main())) == "3 1 5 1"
    assert runs == 2


@pytest.mark.slow
def test_a_sync_skill_waits_for_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("a")

    @agent.skill
    def skill(turn: SyncTurn) -> str:
        found: Any = turn.mcp("small", timeout=60).call("add", a=1, b=2)
        try:
            turn.mcp("small").call("fail")
        except CallFailed as error:
            return f"{found['sum']} {error.code}"
        return ""

    task = send(agent, "go", {"mcp_manifest": manifest(tmp_path, monkeypatch)})
    assert text(task) == "3 MCP_TOOL_EXECUTION_ERROR"


def test_without_a_file_the_task_fails_and_says_so(tmp_path: Path) -> None:
    agent = Agent("a")

    @agent.skill
    async def skill(turn: Turn) -> None:
        await turn.mcp("small").call("add", a=1, b=2)

    task = send(agent, "go", {"mcp_manifest": str(tmp_path / "none.json")})
    assert state(task) == "failed"
    assert "none.json" in said(task)


def test_a_host_does_not_start_with_a_file_that_is_wrong(tmp_path: Path) -> None:
    agent, file = Agent("a"), tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": 7}}}')

    @agent.skill
    async def skill(text: str) -> str:
        return text

    with pytest.raises(Misuse, match=r"mcp.json: mcpServers\.a\.command"):
        send(agent, "go", {"mcp_manifest": str(file)})


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), 1e9, True, "5"])
def test_no_time_to_wait(timeout: Any) -> None:
    with pytest.raises(Misuse, match="timeout is more than 0"):
        McpTools(None, None, "a", timeout)  # pyright: ignore[reportArgumentType]
