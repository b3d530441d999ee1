"""Calls of MCP servers that a manifest names, over pipes and over HTTP, by their results and codes."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.client.session import ClientSession

from tests.mcp.small_server import server as small
from trunkline.errors import CallFailed
from trunkline.mcp import servers as engine
from trunkline.mcp import session
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


async def code_of(
    opened: McpServers, server: str, tool: str, arguments: Any, wait_s: float = WAIT_S, tenant: str = ""
) -> str:
    with pytest.raises(CallFailed) as failed:
        await opened.call_tool(server, tool, arguments, wait_s, tenant=tenant)
    return failed.value.code


@pytest.mark.slow
def test_no_result_is_checked_by_a_schema_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*given: object) -> None:
        raise AssertionError("a pattern of the server could hold this process for ever")

    monkeypatch.setattr(ClientSession, "validate_tool_result", refuse)

    async def main() -> None:
        async with servers(small=SMALL) as opened:
            assert (await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S))["sum"] == 3

    run(main())


@pytest.mark.slow
def test_a_command_runs_in_the_folder_of_the_manifest(tmp_path: Path) -> None:
    async def main() -> None:
        opened = McpServers(read_manifest({"mcpServers": {"small": SMALL}}, tmp_path), allow=[sys.executable])
        try:
            assert await opened.call_tool("small", "folder", {}, WAIT_S) == {"result": str(tmp_path)}
        finally:
            await opened.close()

    run(main())


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
def test_a_tenant_whose_calls_take_long_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CALLS_LIMIT", 3)
    monkeypatch.setattr(engine, "CALLS_OF_TENANT", 2)

    async def main() -> None:
        async with servers(small=SMALL) as opened:
            await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            noisy = [
                asyncio.create_task(opened.call_tool("small", "sleep", {"seconds": 600}, 600, tenant="noisy"))
                for _ in range(6)
            ]
            await asyncio.sleep(0)
            found = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S, tenant="quiet")
            assert found["sum"] == 3 and await opened.list_tools("small", WAIT_S, tenant="quiet")
            assert (
                await code_of(opened, "small", "add", {"a": 1, "b": 2}, 0.2, tenant="noisy") == engine.TIMEOUT
            )
            for one in noisy:
                one.cancel()
            await asyncio.gather(*noisy, return_exceptions=True)

    run(main())


@pytest.mark.slow
def test_a_server_that_hangs_is_started_again_once_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with servers(small=SMALL) as opened:
            first = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            # One that answers others meanwhile is left alone.
            assert await code_of(opened, "small", "sleep", {"seconds": 600}, 0.2) == "ACTIVITY_TIMEOUT"
            second = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            assert second["pid"] == first["pid"]
            monkeypatch.setattr(engine, "ALIVE_S", 0.2)
            assert await code_of(opened, "small", "hang", {}, 0.2) == "ACTIVITY_TIMEOUT"
            third = await opened.call_tool("small", "add", {"a": 1, "b": 2}, WAIT_S)
            assert third["pid"] != first["pid"]

    run(main())
    assert "mcp.server_silent server=small" in caplog.text


@pytest.mark.slow
def test_tenant_uses_only_servers_for_it() -> None:
    async def main() -> None:
        async with servers(small=SMALL, private={**SMALL, "tenants": ["north"]}) as opened:
            arguments = {"a": 1, "b": 2}
            assert (await opened.call_tool("private", "add", arguments, WAIT_S, tenant="north"))["sum"] == 3
            for tenant in ("south", "default", ""):
                with pytest.raises(CallFailed, match="no server 'private'; it has small") as refused:
                    await opened.call_tool("private", "add", arguments, WAIT_S, tenant=tenant)
                assert refused.value.code == engine.NOT_CONFIGURED
                with pytest.raises(CallFailed, match="no server 'private'"):
                    await opened.list_tools("private", WAIT_S, tenant=tenant)
                assert await opened.list_tools("", tenant=tenant) == [{"name": "small"}]
            assert len(await opened.list_tools("", tenant="north")) == 2

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
async def served(port: int = 0, app: Any = None) -> AsyncIterator[int]:
    """The small server, or another one, over streamable HTTP."""
    listener = socket.create_server(("127.0.0.1", port))
    app = app or small.streamable_http_app()
    config = uvicorn.Config(app, log_level="error", ws="none", lifespan="auto", timeout_graceful_shutdown=1)
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


class HostileServer:
    """Speaks MCP until a tool is called; counts the streams that are opened to listen, and ends each at once."""

    def __init__(self, elsewhere: str = "") -> None:
        self.elsewhere = elsewhere
        self.listened = 0
        self.sent = 0
        self.asked: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if scope["method"] != "POST":
            self.listened += scope["method"] == "GET"
            await self._answer(send, b"retry: 0\n\ndata:\n\n", kind="text/event-stream")
            return
        asked = json.loads((await receive())["body"])
        if asked["method"] == "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "serverInfo": {"name": "h", "version": "1"},
            }
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": about}
            await self._answer(send, json.dumps(result).encode(), mcp_session_id="s")
        elif asked["method"] == "tools/call":
            await getattr(self, asked["params"]["name"])(receive, send)
        else:
            error = {"jsonrpc": "2.0", "id": asked.get("id"), "error": {"code": -32601, "message": "no"}}
            await self._answer(send, json.dumps(error).encode(), 202 if "id" not in asked else 200)

    async def endless(self, receive: Any, send: Any) -> None:
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        gone = asyncio.ensure_future(receive())
        while not gone.done() and self.sent < 1 << 28:
            await send({"type": "http.response.body", "body": b" " * (1 << 20), "more_body": True})
            self.sent += 1 << 20
            await asyncio.sleep(0)

    async def packed(self, receive: Any, send: Any) -> None:
        await self._answer(send, gzip.compress(b" " * (1 << 25)), content_encoding="gzip")

    async def leads(self, receive: Any, send: Any) -> None:
        await self._answer(send, b"", 307, location=self.elsewhere)

    async def _answer(
        self, send: Any, body: bytes, status: int = 200, *, kind: str = "application/json", **more: str
    ) -> None:
        head = {"content-type": kind, "content-length": str(len(body)), **more}
        headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in head.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def test_a_server_by_its_address_is_read_within_bounds_and_leads_nowhere() -> None:
    async def main() -> None:
        elsewhere = HostileServer()
        async with served(app=elsewhere) as other:
            hostile = HostileServer(f"http://127.0.0.1:{other}/mcp")
            async with served(app=hostile) as port:
                entry = {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Api-Key": "hush"}}
                async with servers(hostile=entry) as opened:
                    assert await code_of(opened, "hostile", "endless", {}) == "MCP_CONNECTION_CLOSED"
                    assert await code_of(opened, "hostile", "packed", {}) == "MCP_CONNECTION_CLOSED"
                    assert await code_of(opened, "hostile", "leads", {}) == "MCP_PROTOCOL_ERROR"
        assert hostile.sent < 64 << 20
        assert not elsewhere.asked
        assert {one["x-api-key"] for one in hostile.asked} == {"hush"}
        # By the hub's own client, which asks for nothing packed.
        assert {one["accept-encoding"] for one in hostile.asked} == {"identity"}

    run(main())


def test_a_server_that_ends_the_stream_of_its_own_words_again_and_again_is_not_hurried_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LISTEN_S", 600.0)

    async def main() -> None:
        hostile = HostileServer()
        async with (
            served(app=hostile) as port,
            servers(hostile={"url": f"http://127.0.0.1:{port}/mcp"}) as opened,
        ):
            for _ in range(20):
                with pytest.raises(CallFailed):
                    await opened.list_tools("hostile", WAIT_S)
        assert hostile.listened == 1

    run(main())
