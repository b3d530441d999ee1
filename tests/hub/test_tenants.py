"""What the settings of a tenant do, on a hub in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.conformance.wire.routes import Ask, ask
from trunkline.hub.hub import Hub

OPERATOR = (b"x-api-key", b"operators-key-1")
AGENTS = "agents:\n  - {name: local, import: 'settings_agent:agent', tenants: all}\n"
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def answer(turn: Turn) -> str:
    return "here"
"""


def test_settings_of_a_tenant_have_their_effects_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("tenant_settings: {kinds: [skill, peer], egress_hosts: [localhost]}\n")
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "log_level": "error"}
    hub = Hub(tmp_path, {**flags, "drain_limit": 0.2, "cancel_limit": 0.2}, {})

    async def said(verb: str, path: str, key: tuple[bytes, bytes], **body: Any) -> Any:
        sent = msgspec.json.encode(body) if body else b""
        answer = await ask(hub.host, Ask("", verb, path, sent, ((b"a2a-version", b"1.0"),)), key)
        found = msgspec.json.decode(answer.body)
        return found if answer.status < 300 else (answer.status, found.get("field"))

    async def case() -> None:
        keys: dict[str, tuple[bytes, bytes]] = {}
        for name in ("open", "shut"):
            made = await said("POST", "/admin/tenants", OPERATOR, name=name)
            keys[name] = (b"x-api-key", made["token"].encode())
        settings = {
            "kinds": ["peer"],
            "egress_networks": ["127.0.0.2/32"],
            "egress_hosts": [],
            "retention": 0.1,
        }
        changed = await said("PATCH", "/admin/tenants/shut", OPERATOR, settings=settings)
        assert changed["settings"] == settings
        # Kinds: what is not allowed is not there, and cannot be added.
        listed = [(await said("GET", "/api/agents", keys[name]))["items"] for name in ("open", "shut")]
        assert [[one["name"] for one in items] for items in listed] == [["local"], []]
        order = {"agent": "local", "message": "go", "wait": 30}
        task = (await said("POST", "/api/dispatch", keys["open"], **order))["tasks"][0]
        assert task["text"] == "here"
        refused = (await said("POST", "/api/dispatch", keys["shut"], **order))["tasks"][0]
        assert refused["state"] == "rejected"
        flow = {"name": "steps", "workflow": "registered"}
        assert [await said("POST", "/api/agents", key, **flow) for key in keys.values()] == [
            (400, "kind")
        ] * 2
        # Where its agents may be: by its own rule, in the place of that of the others.
        for url, expected in (("http://127.0.0.2:9", [400, 200]), ("http://localhost:9", [200, 400])):
            name = url.partition("//")[2].partition(":")[0]
            found = [await said("POST", "/api/agents", key, name=name, url=url) for key in keys.values()]
            assert [200 if isinstance(one, dict) else one[0] for one in found] == expected, url
            probes = [await said("POST", "/api/a2a/probe", key, url=url) for key in keys.values()]
            told = ["egress_hosts" in one["error"] for one in probes]
            assert told == [status == 400 for status in expected]
        narrowed = await said(
            "PATCH", "/admin/tenants/shut", OPERATOR, settings={**settings, "egress_networks": []}
        )
        assert narrowed["settings"]["egress_networks"] == []
        again = await said("POST", "/api/a2a/probe", keys["shut"], url="http://127.0.0.2:9")
        assert "egress_hosts" in again["error"]
        # How long ended work is kept.
        path = f"/api/tasks/{refused['taskId']}"
        while isinstance(await said("GET", path, keys["shut"]), dict):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert isinstance(await said("GET", f"/api/tasks/{task['taskId']}", keys["open"]), dict)

    async def whole() -> None:
        async with asyncio.timeout(60), hub.host.lifespan():
            await case()

    asyncio.run(whole())
