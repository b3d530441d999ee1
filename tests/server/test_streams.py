"""A stream hears the word to end whenever it comes, and a send is answered only when it is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.run.desk import DONE, WORKING, delta, run, said
from trunkline import Agent
from trunkline.log.events import Recorded, Submitted
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.server.streams import Plan, Streams
from trunkline.wire.writer import Dialect


class Line:
    """A connection whose writes wait for the test."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.writable = asyncio.Event()
        self.blocked = asyncio.Event()
        self.gone = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.blocked.set()
        await self.writable.wait()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("how", ["server", "reader"])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_an_end_that_comes_while_a_write_blocks_is_not_lost(how: str, write: int) -> None:
    async def main() -> None:
        state = State("x")
        for seq, event in enumerate((Submitted(said(), "c", "o", "n"), WORKING), 1):
            state.apply(Recorded(seq, 0, event))
        feed, line, streams = Feed("t", state), Line(), Streams(None, 15, 30)  # type: ignore[arg-type]
        plan = Plan(feed, Dialect.V1, [], 2, through_questions=True)
        serving = asyncio.create_task(streams.serve(line, plan, (b"", b"")))  # type: ignore[arg-type]
        for _ in range(write - 1):
            await line.blocked.wait()
            line.blocked.clear()
            line.writable.set()
            await asyncio.sleep(0)
            line.writable.clear()
            if len(line.sent) == 2:
                feed.take(feed.state.seq, [delta("x")], 0)
        await line.blocked.wait()
        if how == "server":
            streams.close()
        else:
            line.gone.set()
        for _ in range(5):
            await asyncio.sleep(0)
        line.writable.set()
        await asyncio.wait_for(serving, 5)
        assert line.sent[-1]["more_body"] is False
        assert len(streams) == 0
        feed.take(feed.state.seq, [DONE], 0)

    run(main())


def test_a_wait_that_is_over_before_the_commit_is_answered_with_a_stored_task() -> None:
    agent = Agent("slow")

    @agent.skill
    async def hang(text: str) -> str:
        await asyncio.get_running_loop().create_future()
        return text

    async def main() -> None:
        async with agent.test_client(wait_limit=0.000_001, cancel_limit=0.1, drain_limit=0.1) as client:
            task = await client.send("hello")
            assert task["contextId"]
            assert (await client.get(task["id"]))["id"] == task["id"]

    run(main())
