"""The ended tasks of an agent that is no longer in the catalogue go with retention, as those of all others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.wire.routes import Ask, ask
from trunkline.hub.hub import Hub
from trunkline.run import retention

LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def work(turn: Turn) -> str:
    return "done"
"""


def test_tasks_of_a_removed_agent_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SHORTEST_S", 0.05)
    (tmp_path / "removed_agent.py").write_text(LOCAL)
    agents = tmp_path / "agents.yaml"
    flags = {"drain_limit": 0.2, "cancel_limit": 0.2, "log_level": "error"}

    async def first() -> None:
        agents.write_text("agents:\n  - {name: old, import: 'removed_agent:agent'}\n")
        hub = Hub(tmp_path, flags, {})
        async with asyncio.timeout(60), hub.host.lifespan():
            body = b'{"agent":"old","message":"go","wait":30}'
            assert b'"completed"' in (await ask(hub.host, Ask("", "POST", "/api/dispatch", body))).body
            while not await hub.host.store.docs.get("default", "journal", "agent:old"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def second() -> None:
        agents.write_text("agents: []\n")
        hub = Hub(tmp_path, {**flags, "retention": 0.1}, {})
        async with asyncio.timeout(60), hub.host.lifespan():
            listed = Ask("", "GET", "/api/tasks?agent=old")
            while b'"items":[]' not in (await ask(hub.host, listed)).body:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(first())
    asyncio.run(second())
