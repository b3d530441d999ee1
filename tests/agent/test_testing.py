"""The client that drives an agent in process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.agent.drive import begin, drive, state, text, until
from trunkline import Agent, Turn
from trunkline.agent.testing import CallFailed, TestClient


@pytest.fixture
def agent() -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        if turn.text == "wait":
            await asyncio.Event().wait()
        return turn.text

    return agent


def test_send_get_list_cancel(agent: Agent) -> None:
    async def talk(client: TestClient) -> Any:
        done = await client.send("hello", contextId="c")
        assert await client.get(done["id"]) == done
        waiting = await begin(client, "wait", contextId="c")
        page = await client.list(contextId="c")
        canceled = await client.cancel(waiting["id"])
        return done, page, canceled

    done, page, canceled = drive(agent, talk)
    assert (state(done), text(done)) == ("completed", "hello")
    assert page["totalSize"] == 2
    assert state(canceled) == "canceled"


def test_errors_are_raised_with_their_code(agent: Agent) -> None:
    async def talk(client: TestClient) -> Any:
        with pytest.raises(CallFailed, match="-32001: .*not found") as caught:
            await client.get("nobody")
        return caught.value.error

    assert drive(agent, talk)["code"] == -32001


def test_leaving_a_stream_early_leaves_the_task_alone(agent: Agent) -> None:
    async def talk(client: TestClient) -> Any:
        frames = client.stream("wait")
        first = await anext(aiter(frames))
        await frames.aclose()  # type: ignore[attr-defined]
        task = await until(client, first["task"]["id"], "working")
        await client.cancel(task["id"])
        return task

    assert state(drive(agent, talk)) == "working"


def test_a_message_has_a_fresh_id_unless_it_is_given(agent: Agent) -> None:
    async def talk(client: TestClient) -> list[str]:
        tasks = [await client.send("a"), await client.send("a"), await client.send("a", messageId="mine")]
        return [task["history"][0]["messageId"] for task in tasks]

    one, two, three = drive(agent, talk)
    assert one != two
    assert three == "mine"
