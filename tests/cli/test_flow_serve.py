"""`trunkline flow mcp` as MCP clients start it, and the names that other engines have for settings."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.conftest import Run
from tests.flow.surfaces import ASK, workflow
from trunkline.cli.flow import store_url
from trunkline.errors import Misuse

COMMAND = ["-c", "from trunkline.cli.main import main; main()", "flow", "mcp"]


async def _call(client: Client, tool: str, **arguments: Any) -> Any:
    return (await client.call_tool(tool, arguments)).structured_content


@pytest.mark.slow
def test_runs_outlive_the_process_of_the_tools(tmp_path: Path) -> None:
    variables = {
        "WORKFLOW_ENGINE_STORE": "sqlite",
        "WORKFLOW_ENGINE_STORE_PATH": str(tmp_path / "runs.db"),
        "WORKFLOW_ENGINE_STEP_HANDLERS": '{"urn:test:greet": {"word": "hello"}}',
    }
    step = {"id": "greet", "type": "step", "config": {"handler": "urn:test:greet"}}
    document = workflow(step, ASK)
    same = {"execution_id": "e", "definition": document}

    def served(mode: str) -> Any:
        command = StdioServerParameters(command=sys.executable, args=COMMAND, env=variables, cwd=tmp_path)
        return Client(stdio_client(command), mode=mode)

    async def scene() -> None:
        async with served("legacy") as client:
            assert client.protocol_version == "2025-11-25"
            assert len((await client.list_tools()).tools) == 7
            told = await _call(client, "workflow_start", **same, input={})
            assert (told["status"], told["state"]) == ("interrupted", {"word": "hello"})
        async with served("auto") as client:
            assert client.protocol_version == "2026-07-28"
            told = await _call(client, "workflow_resume", **same, resume_payload={"ok": True})
            assert (told["status"], told["result"]) == ("completed", {"word": "hello", "ok": True})

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_tools_without_the_mcp_library_name_the_extra(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, _, error = trunkline("flow", "mcp")
    assert code == 2
    assert "Error: this needs mcp" in error
    assert "Hint: pip install 'trunkline[mcp]'" in error


def test_the_store_is_named_by_a_url_or_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_url("", "") == "memory:"
    assert store_url("sqlite", "/x/y.db") == "sqlite:////x/y.db"
    assert store_url("postgresql://h/d", "") == "postgresql://h/d"
    with pytest.raises(Misuse, match="store-path"):
        store_url("sqlite", "")
    monkeypatch.setenv("WORKFLOW_ENGINE_STORE", "sqlite")
    monkeypatch.setenv("WORKFLOW_ENGINE_STORE_PATH", "runs.db")
    assert store_url("", "") == "sqlite:///runs.db"
    assert store_url("memory", "") == "memory:"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKFLOW_ENGINE_A2A_CONFIG", "{}"),
        ("WORKFLOW_ENGINE_REST_PORT", "many"),
        ("WORKFLOW_ENGINE_MCP_CONFIG", "none.json"),
    ],
)
def test_what_is_set_up_wrong_stops_the_start(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    code, _, error = trunkline("flow", "serve")
    assert code == 2
    assert value in error or name in error
