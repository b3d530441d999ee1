"""A stream hears the word to end whenever it comes, and a send is answered only when it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.run.desk import DONE, WORKING, delta, run, said
from trunkline import Agent
from trunkline.errors import StoreError
from trunkline.http.exchange import Headers
from trunkline.log.events import Recorded, Submitted
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.server.operations import Subscription
from trunkline.server.streams import StreamEncoding, Streams
from trunkline.wire.writer import Dialect


class Line:
    """An exchange whose writes wait for the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bool]] = []
        self.writable = asyncio.Event()
        self.blocked = asyncio.Event()
        self.leave: Callable[[], None] | None = None

    async def begin(self, headers: Headers) -> None:
        await self.write(b"", more=True)

    async def write(self, body: bytes, *, more: bool) -> None:
        self.sent.append((body, more))
        self.blocked.set()
        await self.writable.wait()

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        self.leave = left


@pytest.mark.parametrize("how", ["server", "reader"])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_an_end_that_comes_while_a_write_blocks_is_not_lost(how: str, write: int) -> None:
    async def main() -> None:
        state = State("x")
        for seq, event in enumerate((Submitted(said(), "c", "o", "n"), WORKING), 1):
            state.apply(Recorded(seq, 0, event))
        feed, line, streams = Feed("t", state), Line(), Streams(None, 15, 30)  # type: ignore[arg-type]
        subscription = Subscription(feed, 2, through_questions=True)
        serving = asyncio.create_task(streams.serve(line, subscription, StreamEncoding(Dialect.V1)))  # type: ignore[arg-type]
        for _ in range(write - 1):
            await line.blocked.wait()
            line.blocked.clear()
            line.writable.set()
            await asyncio.sleep(0)
            line.writable.clear()
            if len(line.sent) == 2:
                feed.take(feed.state.seq, [delta("x")], 0, 0)
        await line.blocked.wait()
        if how == "server":
            streams.close()
        else:
            assert line.leave is not None
            line.leave()
        for _ in range(5):
            await asyncio.sleep(0)
        line.writable.set()
        await asyncio.wait_for(serving, 5)
        assert line.sent[-1][1] is False
        assert line.leave is None, "nobody listens any more"
        assert len(streams) == 0
        feed.take(feed.state.seq, [DONE], 0, 0)

    run(main())


def test_a_wait_that_is_over_before_the_commit_is_answered_with_a_stored_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("slow")
    rest, waits = Tasks.rest, list[float]()

    async def counted(tasks: Tasks, feed: Feed, limit_s: float) -> None:
        waits.append(limit_s)
        await rest(tasks, feed, limit_s)

    monkeypatch.setattr(Tasks, "rest", counted)

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
    assert waits == [0.000_001], "the limit is of the whole wait"


def test_a_store_that_goes_away_cuts_the_stream_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        async def read(self, *_: object) -> list[Recorded]:
            raise StoreError("the database is away")

    async def main() -> None:
        state = State("x")
        for seq, event in enumerate((Submitted(said(), "c", "o", "n"), WORKING), 1):
            state.apply(Recorded(seq, 0, event))
        line, streams = Line(), Streams(Gone(), 15, 30)  # type: ignore[arg-type]
        line.writable.set()
        subscription = Subscription(Feed("t", state), 0, through_questions=True)
        await asyncio.wait_for(streams.serve(line, subscription, StreamEncoding(Dialect.V1)), 5)  # type: ignore[arg-type]
        assert all(more for _, more in line.sent), "a cut stream must not look like a finished one"
        assert len(streams) == 0

    run(main())
    assert "stream.cut task=x after=0 error=the database is away" in caplog.text
