"""What one tenant of a hub fills is full for itself: the others, and the next start, have what they had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.wire.routes import Ask, ask
from trunkline.fleet.catalogue import documents
from trunkline.fleet.ceremonies import ceremony_store
from trunkline.hub.hub import Hub
from trunkline.mcp import http_server
from trunkline.server import admin

OPERATOR = "operators-key-1"
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}  # fmt: skip
ACCEPT = (b"accept", b"application/json, text/event-stream")


class Tenants:
    """A hub in this process with two tenants, and an operator."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.keys = {"boss": OPERATOR}

    async def ask(self, who: str, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = b"" if body is None else msgspec.json.encode(body)
        asked = Ask(path, verb, path, content, (ACCEPT,))
        answer = await ask(self._hub.host, asked, (b"x-api-key", self.keys[who].encode()))
        told = answer.body.removeprefix(b"event: message\r\ndata: ")
        return answer.status, msgspec.json.decode(told) if told else None

    async def key(self, name: str, by: str, *scopes: str) -> str:
        status, made = await self.ask(by, "POST", "/admin/keys", {"owner": name, "scopes": scopes})
        assert status == 201, made
        self.keys[name] = made["token"]
        return name


def served(workspace: Path, case: Callable[[Tenants], Awaitable[None]]) -> None:
    """A hub on the file of a workspace, which may be served again."""
    flags = {"keys": (OPERATOR,), "egress_hosts": ("127.0.0.1",), "drain_limit": 0.2, "log_level": "error"}

    async def whole() -> None:
        (workspace / "agents.yaml").write_text("agents: []")
        store = f"sqlite:///{workspace / 'hub.db'}"
        hub = Hub(workspace, {**flags, "store": store}, {})
        async with hub.host.lifespan():
            made = Tenants(hub)
            for name in ("north", "south"):
                status, tenant = await made.ask("boss", "POST", "/admin/tenants", {"name": name})
                if status == 409:
                    _, tenant = await made.ask("boss", "POST", f"/admin/tenants/{name}:rotate", {})
                made.keys[name] = tenant["token"]
            await case(made)

    asyncio.run(whole())


def entry(name: str, text: str = "") -> dict[str, Any]:
    return {"name": name, "url": "http://127.0.0.1:1", "description": text, "enabled": False}


def ceremony(name: str, text: str = "") -> dict[str, Any]:
    return {"id": name, "name": "n", "schedule": "0 3 1 1 *", "skill": "work", "message": text}


@pytest.mark.parametrize(
    ("module", "path", "form", "change"),
    [
        (documents, "/api/agents", entry, ("PUT", "/api/agents/one")),
        (ceremony_store, "/api/ceremonies/create", ceremony, ("POST", "/api/ceremonies/one/update")),
    ],
)
def test_a_tenant_that_fills_its_place_is_refused_and_the_hub_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, path: str, form: Any, change: Any
) -> None:
    monkeypatch.setattr(module, "TENANT_BYTES", 3000)

    async def fill(at: Tenants) -> None:
        big = "x" * 1000
        assert [(await at.ask("north", "POST", path, form(name, big)))[0] for name in ("one", "two")] == [
            200,
            200,
        ]
        status, told = await at.ask("north", "POST", path, form("three", big))
        assert (status, told["code"]) == (409, "TENANT_FULL"), told
        larger = {name: value for name, value in form("one", 2 * big).items() if name not in ("id", "name")}
        status, told = await at.ask("north", *change, larger)
        assert (status, told["code"]) == (409, "TENANT_FULL"), told
        assert (await at.ask("south", "POST", path, form("one", big)))[0] == 200

    async def again(at: Tenants) -> None:
        for who, count in (("north", 2), ("south", 1)):
            _, listed = await at.ask(who, "GET", path.removesuffix("/create"))
            assert len(listed["items"]) == count
        assert (await at.ask("south", "POST", path, form("two")))[0] == 200

    served(tmp_path, fill)
    served(tmp_path, again)


def test_entries_are_counted_for_each_tenant_and_announced_ones_for_each_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ENTRIES_LIMIT", 4)
    monkeypatch.setattr(documents, "ANNOUNCED_LIMIT", 2)

    async def case(at: Tenants) -> None:
        herald = await at.key("herald", "north", "announce")

        async def announce(name: str) -> tuple[int, str]:
            form = {"url": "http://127.0.0.1:1", "ttl": 300}
            status, told = await at.ask(herald, "PUT", f"/api/announce/{name}", form)
            return status, told.get("code", "")

        told = [await announce(name) for name in ("a", "b", "c", "a")]
        assert told == [(200, ""), (200, ""), (409, "CATALOGUE_FULL"), (200, "")], "who is listed renews"
        said = [(await at.ask("north", "POST", "/api/agents", entry(name)))[0] for name in ("d", "e", "f")]
        assert said == [200, 200, 409]
        assert (await at.ask("south", "POST", "/api/agents", entry("f")))[0] == 200

    served(tmp_path, case)


def test_keys_are_counted_for_each_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "KEYS_LIMIT", 2)

    async def case(at: Tenants) -> None:
        made = [(await at.ask("north", "POST", "/admin/keys", {"owner": "o"}))[0] for _ in range(2)]
        assert made == [201, 400], "the first is that of its admin"
        status, _ = await at.ask("boss", "POST", "/admin/keys", {"owner": "o", "tenant": "north"})
        assert status == 201, "an operator knows what it does"
        assert (await at.ask("south", "POST", "/admin/keys", {"owner": "o"}))[0] == 201

    served(tmp_path, case)


def test_sessions_of_mcp_are_counted_for_each_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SESSIONS_OF_ONE_TENANT", 3)

    async def case(at: Tenants) -> None:
        callers = [await at.key(f"caller{number}", "north", "tasks:write") for number in range(4)]
        begun = [(await at.ask(who, "POST", "/mcp", INITIALIZE))[0] for who in callers]
        assert begun == [200, 200, 200, 503]
        assert (await at.ask("south", "POST", "/mcp", INITIALIZE))[0] == 200

    served(tmp_path, case)
