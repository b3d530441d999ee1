"""The page on MCP: its agents, its manifest and its commands, as printed."""

from __future__ import annotations

import asyncio
import json
import shlex
import tomllib
from typing import Any

from tests.agent.drive import send
from tests.agent.drive import text as text_of
from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from tests.mcp.test_http_server import connected, served
from tests.mcp.test_skill_server import answering
from trunkline.mcp.manifest import read_manifest
from trunkline.mcp.watched import WatchedServers

__all__ = ["trunkline"]

PAGE = "docs/mcp.md"
KITCHEN, READER = blocks(PAGE, "python")
(MANIFEST,) = blocks(PAGE, "json")
LINES = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]


def _agent(code: str, name: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), space)
    return space[name]


def test_the_kitchen_as_tools() -> None:
    async def main() -> None:
        asked, elicit = answering({"answer": "bread"})
        kitchen = _agent(KITCHEN, "agent")
        async with served(kitchen, store="memory:") as base:
            async with connected(base, elicitation_callback=elicit) as mcp:
                found = await mcp.call_tool("a2a__kitchen__cook", {"dish": "soup"})
                assert found.structured_content["response"] == "soup for 2"
                found = await mcp.call_tool("a2a__kitchen__bake", {"query": "large"})
                assert found.structured_content["response"] == "one large bread"
                assert asked[0][0] == "Bread or cake?"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_manifest_and_the_skill_that_uses_it(monkeypatch: Any) -> None:
    assert read_manifest(json.loads(MANIFEST)).servers.keys() == {"files", "search"}
    called: list[Any] = []

    async def call_tool(self: Any, *said: Any, tenant: str) -> dict[str, Any]:
        called.append((*said, tenant))
        return {"text": "one two three"}

    monkeypatch.setattr(WatchedServers, "call_tool", call_tool)
    assert text_of(send(_agent(READER, "reader"), "a.txt")) == "3 words"
    assert called == [("files", "read_file", {"path": "a.txt"}, 45.0, "default")]


def test_the_commands(trunkline: Run) -> None:
    done = [trunkline(*shlex.split(line)[1:]) for line in LINES]
    assert [code for code, _, _ in done] == [0] * len(LINES), done
    for line, (_, out, said) in zip(LINES, done, strict=True):
        found = tomllib.loads(out) if "codex" in line else json.loads(out)
        assert len(found) == 1
        assert said.startswith("Paste it into ")
