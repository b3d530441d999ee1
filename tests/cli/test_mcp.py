"""`trunkline mcp` over stdio, driven by the official client, and the configuration that it prints."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.types import ElicitResult

from tests.harness import ServerProcess
from trunkline.client.client import Client
from trunkline.hub.template import write_workspace
from trunkline.wire.types import TaskState

Run = Callable[..., tuple[int, str, str]]
AGENT = """
from tests.bridge.agents import planner

agent = planner()
"""
WAIT_S = 90.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "far.py").write_text(AGENT)
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with ServerProcess(folder, "far:agent", env=env, store="memory:") as one:
        yield one


def command(*words: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "trunkline.cli", "mcp", *words])


async def _paint(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": "blue"})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_over_stdio(server: ServerProcess, tmp_path: Path, trunkline: Run, mode: str) -> None:
    given = server.base
    if mode == "auto":
        # A card in a file does as well as an address.
        code, card, _ = trunkline("card", server.base, "--json")
        assert code == 0
        (tmp_path / "card.json").write_text(card)
        given = str(tmp_path / "card.json")

    async def main() -> None:
        async with McpClient(
            command(given, "--hand-off", "500ms"), mode=mode, elicitation_callback=_paint
        ) as mcp:
            assert mcp.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            names = [one.name for one in (await mcp.list_tools()).tools]
            assert {"a2a__planner__plan", "task_status"} <= set(names)
            found = await mcp.call_tool("a2a__planner__plan", {"city": "Rome"})
            assert found.structured_content["data"] == [{"city": "Rome", "days": 2}]
            found = await mcp.call_tool("a2a__planner__paint", {"query": "x"})
            assert found.structured_content["response"].endswith(": blue")
            handed = await mcp.call_tool("a2a__planner__hang", {"query": "x"})
            assert handed.structured_content["state"] == "working"
        # The server was a process of its client's, and has ended; the task has not.
        task_id = handed.structured_content["task_id"].partition(":")[2]
        async with Client(server.base) as client:
            assert (await client.get(task_id)).state is TaskState.WORKING
        async with McpClient(command(server.base), mode=mode) as mcp:
            found = await mcp.call_tool("task_cancel", {"task_id": handed.structured_content["task_id"]})
            assert found.structured_content["state"] == "canceled"

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_the_workspace_of_a_hub(tmp_path: Path, trunkline: Run) -> None:
    write_workspace(tmp_path / "demo")
    folder = str(tmp_path / "demo")

    async def main() -> None:
        async with McpClient(command(folder)) as mcp:
            names = {one.name for one in (await mcp.list_tools()).tools}
            assert {"a2a__writer__draft", "a2a__reviewer__review", "a2a__approver__approve"} <= names
            found = await mcp.call_tool("a2a__reviewer__review", {"query": "read this"})
            assert found.structured_content["response"] == "It reads well."
            code, out, said = await asyncio.to_thread(trunkline, "mcp", folder)
            assert (code != 0, out, "a hub serves" in said) == (True, "", True), said

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    code, _, said = trunkline("mcp", folder, "http://a:1")
    assert (code, "is served alone" in said) == (2, True)
    code, _, said = trunkline("mcp", folder, "--allow", "draft")
    assert (code, "a workspace says that" in said) == (2, True)


def test_an_agent_that_is_not_there_ends_the_command(trunkline: Run) -> None:
    code, out, said = trunkline("mcp", "http://127.0.0.1:1")
    assert (code != 0, out) == (True, "")
    assert "connection refused" in said


def test_the_configuration_of_clients(trunkline: Run) -> None:
    code, out, said = trunkline("mcp", "config", "--client", "claude", "http://a:1", "http://b:2")
    (entry,) = json.loads(out)["mcpServers"].values()
    assert (code, entry["args"][-3:]) == (0, ["mcp", "http://a:1", "http://b:2"])
    assert "claude_desktop_config.json" in said
    _, out, _ = trunkline("mcp", "config", "--client", "vscode", "http://a:1/", "--http", "--name", "hub")
    assert json.loads(out)["servers"]["hub"] == {"type": "http", "url": "http://a:1/mcp"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client", "emacs", "http://a:1"], "claude, cursor, vscode, codex"),
        (["--client", "claude"], "name the agents"),
        (["--client", "claude", "http://a:1", "http://b:1", "--http"], "one hub or served agent"),
        (["--client", "claude", "http://a:1", "--key-variable", "K"], "goes with --http"),
    ],
)
def test_a_configuration_that_cannot_be(trunkline: Run, words: list[str], said: str) -> None:
    code, out, complaint = trunkline("mcp", "config", *words)
    assert (code, out) == (2, "")
    assert said in complaint
