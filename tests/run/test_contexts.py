"""What a task is told of earlier tasks of its context: the newest, within a bound."""

from __future__ import annotations

import asyncio

import pytest

from trunkline.agent.agent import Agent
from trunkline.agent.turn import Turn
from trunkline.client.client import Client
from trunkline.log.events import Chunk, Delta, Recorded, Status, Submitted
from trunkline.log.fold import State
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run import contexts
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState


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


def test_reply_that_was_streamed_is_one_text() -> None:
    """An agent may stream a reply as parts that are appended to an artifact."""
    state = State("t-1")
    named = Part(text="{}", media_type="application/json")
    events = (
        Submitted(Message("m", role=Role.USER, parts=(Part(text="hi"),)), "c", "ann", "n"),
        Chunk(Artifact("a", parts=(Part(text="A first"),))),
        Delta("a", " version"),
        Chunk(Artifact("a", parts=(Part(text=" of it"), named, Part(text="end"))), append=True),
        Chunk(Artifact("b", parts=(Part(text="second"),))),
        Status(TaskState.COMPLETED),
    )
    for seq, event in enumerate(events, 1):
        state.apply(Recorded(seq, 1_700_000_000_000, event))
    parts = contexts.messages_of(state)[-1].parts
    assert parts == (Part(text="A first version of it"), named, Part(text="end"), Part(text="second"))
