"""`/mcp` of a host: without the library, and what is said of whose tokens open it."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from tests.bridge.agents import planner
from tests.conformance.wire.routes import Ask, ask
from tests.mcp.test_http_server import ACCEPT
from trunkline.config import Settings, load
from trunkline.errors import CallFailed
from trunkline.mcp.manifest import read_manifest
from trunkline.mcp.protected_resource import challenge, metadata_of
from trunkline.mcp.servers import McpServers

HEADERS = tuple((name.encode(), value.encode()) for name, value in ACCEPT.items())


def test_a_host_without_the_library_serves_and_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one == "mcp" or one.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("http_server", "skill_server", "protocol_tasks"):
        monkeypatch.delitem(sys.modules, f"trunkline.mcp.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def main() -> Any:
        app = planner().asgi()
        async with app.lifespan():
            return await ask(app, Ask("mcp", "POST", "/mcp", b"{}", HEADERS))

    answer = asyncio.run(asyncio.wait_for(main(), 60))
    assert 400 <= answer.status < 500
    assert b"pip install 'trunkline[mcp]'" in answer.body


class Finders:
    """Notes in which thread each module is looked for; it finds none itself."""

    def __init__(self) -> None:
        self.threads: dict[str, int] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.threads[name] = threading.get_ident()


def test_nobody_waits_while_the_library_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_server", "session"):
        monkeypatch.delitem(sys.modules, f"trunkline.mcp.{name}", raising=False)
    finders = Finders()
    monkeypatch.setattr(sys, "meta_path", [finders, *sys.meta_path])

    async def main() -> list[int]:
        app = planner().asgi()
        async with app.lifespan():
            answers = await asyncio.gather(
                *[ask(app, Ask("mcp", "POST", "/mcp", b"{}", HEADERS)) for _ in range(3)]
            )
        servers = McpServers(read_manifest({"mcpServers": {"gone": {"command": "gone"}}}), allow=["gone"])
        with pytest.raises(CallFailed):
            await servers.call_tool("gone", "tool", {}, 60)
        await servers.close()
        return [one.status for one in answers]

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [400] * 3
    used = [finders.threads[f"trunkline.mcp.{name}"] for name in ("http_server", "session")]
    assert threading.get_ident() not in used


@pytest.mark.parametrize(
    ("public", "origin", "resource", "where"),
    [
        ("", "http://127.0.0.1:80", "http://127.0.0.1/mcp", "http://127.0.0.1/.well-known/oauth-protected-resource/mcp"),
        ("", "https://a.example:8443", "https://a.example:8443/mcp", "https://a.example:8443/.well-known/oauth-protected-resource/mcp"),
        ("https://b.example/team/", "http://x:1", "https://b.example/team/mcp", "https://b.example/.well-known/oauth-protected-resource/team/mcp"),
    ],
)  # fmt: skip
def test_the_metadata_name_the_address_that_callers_use(
    public: str, origin: str, resource: str, where: str
) -> None:
    settings: Settings = load({"public_url": public}) if public else Settings()
    assert f'"resource":"{resource}"'.encode() in metadata_of(settings, origin)
    assert challenge(settings, origin).decode() == f'Bearer resource_metadata="{where}"'
