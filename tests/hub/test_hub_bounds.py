"""What a hub stores under days of load by a clock of the test's own: as much at the end as a day before, in memory too."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.sample import at_most
from trunkline.fleet.routing.dispatcher import HUB
from trunkline.hub.hub import Hub
from trunkline.hub.workspace import STORE
from trunkline.run import retention

HOURS = 100
# How long the health of a fleet is kept, and after that the word that it is gone, for those who follow it.
KEPT_HOURS = 48 + 24
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def work(turn: Turn) -> str:
    await turn.artifact(text="a piece", name="piece")
    if turn.text.startswith("fail"):
        turn.fail("it broke")
    return turn.text
"""
# What is kept by its own rule whatever the load: these may differ by a few rows.
SLACK = 8


def _rows(file: Path) -> dict[str, int]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in named}


@pytest.mark.sampled
def test_hb38_a_store_under_days_of_load_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = at_most(100, 2)
    now = time.time_ns()
    clock = SimpleNamespace(time_ns=lambda: now)
    monkeypatch.setattr("trunkline.clock.time", clock)
    monkeypatch.setattr(retention, "LONGEST_S", 0.02)
    monkeypatch.setattr(retention, "SHORTEST_S", 0.02)
    (tmp_path / "bounded_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("settings: {retention: 1h, log_level: error}")
    (tmp_path / "agents.yaml").write_text('agents: [{name: local, import: "bounded_agent:agent"}]')
    hub = Hub(tmp_path, {}, {})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hub.host.serve(scope, receive, send, HUB)

    counts: list[dict[str, int]] = []
    blocks: list[int] = []

    async def day() -> None:
        nonlocal now
        transport = httpx2.ASGITransport(app)
        async with (
            asyncio.timeout(at_most(600, 60)),
            hub.host.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client,
        ):
            for hour in range(HOURS):
                for place in range(each):
                    text = f"{'fail' if place == 0 else 'do'} {hour}.{place}"
                    order = {"skill": "work", "message": text, "correlationId": text, "wait": 30}
                    answer = await client.post("/api/dispatch", json=order)
                    assert answer.json()["tasks"][0]["state"] in ("completed", "failed"), answer.text
                await client.post("/api/dispatch", json={"skill": "unheard", "message": "x"})
                # It is read before its time is over, as it would be in a real hour.
                assert (await client.get("/api/fleet/health")).status_code == 200
                now += 3600 * 10**9
                while (await asyncio.to_thread(_rows, tmp_path / STORE))["tasks"] > each + 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                counts.append(_rows(tmp_path / STORE))
                if hour >= KEPT_HOURS:
                    gc.collect()
                    blocks.append(sys.getallocatedblocks())

    asyncio.run(day())
    middle, end = counts[KEPT_HOURS + 2], counts[-1]
    grown = {name: (middle[name], count) for name, count in end.items() if count > middle[name] + SLACK}
    assert grown == {}, grown
    assert sum(end.values()) < HOURS * each
    # Memory too.
    half = len(blocks) // 2
    assert max(blocks[half:]) < max(blocks[:half]) * 1.01, blocks
