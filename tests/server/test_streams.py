"""A stream hears the word to end whenever it comes, and a send is answered only when it is stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from tests.run.desk import DONE, WORKING, delta, run, said
from trunkline import Agent
from trunkline.errors import StoreError
from trunkline.http.exchange import Headers
from trunkline.log.events import AnyEvent, Delta, Recorded, Submitted
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.server.streams import PIECE_BYTES, StreamEncoding, Streams, Subscription
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
        await asyncio.wait_for(serving, 60)
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


@pytest.mark.parametrize("where", ["window", "store"])
def test_a_slow_reader_is_held_one_piece_and_not_all_it_has_missed(where: str) -> None:
    """What a stream writes at once is bounded by bytes, not by the number of events."""
    size, count = 20 << 10, 40

    async def main() -> None:
        state = State("x")
        events = [Recorded(1, 0, Submitted(said(), "c", "o", "n")), Recorded(2, 0, WORKING)]
        events += [Recorded(seq, 0, delta("x" * size)) for seq in range(3, count + 3)]
        events.append(Recorded(count + 3, 0, DONE))

        class Stored:
            async def read(self, tenant: str, task_id: str, after: int, limit: int) -> list[Recorded]:
                return events[after : after + limit]

        feed = Feed("t", state)
        feed.catch_up(events)
        if where == "store":
            feed.records, feed.base = [], state.seq
        line, streams = Line(), Streams(Stored(), 15, 30)  # type: ignore[arg-type]
        line.writable.set()
        await streams.serve(line, Subscription(feed, 0), StreamEncoding(Dialect.V1))  # type: ignore[arg-type]
        sizes = [len(body) for body, _ in line.sent]
        assert max(sizes) < PIECE_BYTES + 2 * size
        ids = re.findall(rb"^id: (\d+)$", b"".join(body for body, _ in line.sent), re.MULTILINE)
        assert [int(each) for each in ids] == list(range(1, count + 4))
        assert [more for _, more in line.sent] == [True] * (len(sizes) - 1) + [False]

    run(main())


def test_the_opening_of_a_stream_is_written_piece_by_piece() -> None:
    size = 100 << 10

    async def main() -> None:
        state = State("x")
        events: list[AnyEvent] = [Submitted(said(), "c", "o", "n"), WORKING]
        events += [Delta(name, name * size) for name in "ab"]
        for seq, event in enumerate([*events, DONE], 1):
            state.apply(Recorded(seq, 0, event))
        line, streams = Line(), Streams(None, 15, 30)  # type: ignore[arg-type]
        line.writable.set()
        given = Subscription(Feed("t", state), None, opening=state.task(), opening_seq=state.seq)
        await streams.serve(line, given, StreamEncoding(Dialect.V1))  # type: ignore[arg-type]
        # The task, each artifact, then the status with the end.
        assert [len(body) // size for body, _ in line.sent[1:]] == [2, 1, 1, 0]
        assert [more for _, more in line.sent[1:]] == [True, True, True, False]
        assert given.opening is None

    run(main())
