"""A file of MCP servers that changes while it is used."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.test_servers import SMALL, WAIT_S
from trunkline.errors import CallFailed
from trunkline.mcp.watched import WatchedServers


@pytest.mark.slow
def test_changes_of_the_file_count_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", sys.executable)
    file = tmp_path / "mcp.json"
    watched = WatchedServers(file)

    async def value(server: str) -> Any:
        return (await watched.call_tool(server, "variable", {"name": "WHO"}, WAIT_S))["value"]

    def write(**who: str) -> None:
        file.write_text(
            json.dumps({"mcpServers": {key: SMALL | {"env": {"WHO": one}} for key, one in who.items()}})
        )

    async def main() -> None:
        with pytest.raises(CallFailed, match="there is no") as failed:
            await value("a")
        assert failed.value.code == "MCP_SERVER_NOT_CONFIGURED"
        write(a="one")
        assert await value("a") == "one"
        write(a="two", b="other")
        assert await value("a") == "two"
        file.write_text("{")
        assert await value("a") == "two"
        write(b="other")
        with pytest.raises(CallFailed, match="no server 'a'"):
            await value("a")
        await watched.close()

    asyncio.run(asyncio.wait_for(main(), 2 * WAIT_S))
