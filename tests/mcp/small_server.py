"""An MCP server over stdio for tests: it counts its calls, fails, sleeps or ends as it is told."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("small", log_level="CRITICAL")
calls: list[str] = []


@server.tool()
async def add(a: int, b: int) -> dict[str, Any]:
    calls.append("add")
    return {"sum": a + b, "calls": len(calls), "pid": os.getpid()}


@server.tool(structured_output=False)
async def say(text: str) -> str:
    return text


@server.tool(structured_output=False)
async def picture() -> Image:
    return Image(data=b"\x89PNG\x00\xff", format="png")


@server.tool()
async def variable(name: str) -> dict[str, Any]:
    return {"value": os.environ.get(name)}


@server.tool()
async def folder() -> str:
    return os.getcwd()


@server.tool()
async def fail() -> str:
    raise ToolError("on purpose")


@server.tool()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
async def hang() -> str:
    time.sleep(600)  # noqa: ASYNC251 — all of the server is to hang
    return "awake"


@server.tool()
async def end() -> str:
    os._exit(3)


if __name__ == "__main__":
    server.run()
