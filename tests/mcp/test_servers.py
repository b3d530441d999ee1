"""Calls of MCP servers that a manifest names, over pipes and over HTTP, by their results and codes."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.mcp.small_server import server as small
from trunkline.errors import CallFailed
from trunkline.mcp.manifest import read_manifest
from trunkline.mcp.servers import McpServers

WAIT_S = 60.0
SMALL = {"command": sys.executable, "args": [str(Path(__file__).with_name("small_server.py"))]}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 2 * WAIT_S))


@asynccontextmanager
async def servers(**entries: Any) -> AsyncIterator[McpServers]:
    opened = McpServers(read_manifest({"mcpServers": entries}), allow=[sys.executable, "no-such-command"])
    try:
        yield opened
    finally:
        await opened.close()


async def code_of(opened: McpServers, server: str, tool: str, arguments: Any, wait_s: float = WAIT_S) -> str:
    with pytest.raises(CallFailed) as failed:
        await opened.call_tool(server, tool, arguments, wait_s)
    return failed.value.code


@pytest.mark.slow
def test_a_server_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL_TOKEN", "hush")
    monkeypatch.setenv("OURS", "kept")

    async def main() -> None:
        async with servers(small=SMALL | {"env": {"TOKEN": "env:SMALL_TOKEN"}}) as opened:
            first = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            assert first["sum"] == 3
            many = await asyncio.gather(
                *[opened.call_tool("small", "add", {"a": n, "b": n}, WAIT_S) for n in range(40)]
            )
            assert [one["sum"] for one in many] == [2 * n for n in range(40)]
            assert {one["pid"] for one in many} == {first["pid"]}
            assert await opened.call_tool("small", "say", {"text": "hello"}, WAIT_S) == {"text": "hello"}
            # Its own variables and those that every process needs; ours stay ours.
            for name, value in (("TOKEN", "hush"), ("OURS", None)):
                assert await opened.call_tool("small", "variable", {"name": name}, WAIT_S) == {"value": value}
            assert await code_of(opened, "small", "fail", {}) == "MCP_TOOL_EXECUTION_ERROR"
            assert await code_of(opened, "small", "sleep", {"seconds": 600}, 0.2) == "ACTIVITY_TIMEOUT"
            assert await code_of(opened, "small", "end", {}) == "MCP_CONNECTION_CLOSED"
            again = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            assert (again["calls"], again["pid"] != first["pid"]) == (1, True)

    run(main())


@pytest.mark.slow
def test_what_cannot_be_called() -> None:
    async def main() -> None:
        entries = {
            "missing": {"command": "no-such-command"},
            "banned": {"command": "bash"},
            "unset": SMALL | {"env": {"A": "env:SURELY_UNSET_7"}},
            "silent": {"command": sys.executable, "args": ["-c", "pass"]},
        }
        async with servers(**entries) as opened:
            assert await code_of(opened, "other", "add", {}) == "MCP_SERVER_NOT_CONFIGURED"
            assert await code_of(opened, "missing", "add", []) == "INVALID_TOOL_CALL_CONFIG"
            assert await code_of(opened, "missing", "", {}) == "INVALID_TOOL_CALL_CONFIG"
            assert await code_of(opened, "missing", "add", {}) == "MCP_CLIENT_ERROR"
            assert await code_of(opened, "unset", "add", {}) == "MCP_CLIENT_ERROR"
            assert await code_of(opened, "banned", "add", {}) == "MCP_COMMAND_NOT_ALLOWED"
            assert await code_of(opened, "silent", "add", {}) == "MCP_CONNECTION_CLOSED"

    run(main())


@asynccontextmanager
async def served(port: int = 0) -> AsyncIterator[int]:
    """The small server over streamable HTTP."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        small.streamable_http_app(), log_level="error", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:  # noqa: ASYNC110 — it has no event
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


def test_a_server_at_an_address() -> None:
    async def main() -> None:
        async with served() as port:
            entry = {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Key": "env:PATH"}}
            async with servers(web=entry) as opened:
                assert (await opened.call_tool("web", "add", {"a": 1, "b": 2}, WAIT_S))["sum"] == 3
                assert await code_of(opened, "web", "fail", {}) == "MCP_TOOL_EXECUTION_ERROR"
                assert await code_of(opened, "web", "sleep", {"seconds": 600}, 0.2) == "ACTIVITY_TIMEOUT"
                assert (await opened.call_tool("web", "add", {"a": 1, "b": 2}, WAIT_S))["sum"] == 3
        async with servers(web=entry) as opened:
            assert await code_of(opened, "web", "add", {}) in ("MCP_CLIENT_ERROR", "MCP_CONNECTION_CLOSED")

    run(main())
