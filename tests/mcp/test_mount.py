"""`/mcp` of a host: without the library, and what is said of whose tokens open it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from tests.bridge.agents import planner
from tests.conformance.wire.routes import Ask, ask
from tests.mcp.test_http_server import ACCEPT
from trunkline.config import Settings, load
from trunkline.mcp.protected_resource import challenge, metadata_of

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
