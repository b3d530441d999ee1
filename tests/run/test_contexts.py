"""What a task is told of earlier tasks of its context: the newest, within a bound."""

from __future__ import annotations

import asyncio

import pytest

from trunkline.agent.agent import Agent
from trunkline.agent.turn import Turn
from trunkline.client.client import Client
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run import contexts


@pytest.mark.parametrize(("limit", "told"), [(1 << 20, "abcd"), (2500, "cd"), (10, "d")])
def test_of_what_is_too_large_together_the_newest_tasks_are_told(
    monkeypatch: pytest.MonkeyPatch, limit: int, told: str
) -> None:
    monkeypatch.setattr(contexts, "CONTEXT_BYTES", limit)
    agent = Agent("under test")
    heard: list[str] = []

    @agent.skill
    async def work(turn: Turn) -> bytes:
        heard.append("".join([one.text for one in turn.history if one.role.name == "USER"]))
        return b"x" * 900

    async def main() -> None:
        application = agent.asgi(store="memory:", drain_limit=0)
        async with (
            application.lifespan(),
            Client("http://localhost", http_client=InProcessHttpClient(application)) as client,
        ):
            for text in "abcde":
                await client.send(text, context_id="c")

    asyncio.run(main())
    assert heard[-1] == told + "e"
