"""Readers get every event once and in order, wherever they come in and however slow they are."""

from __future__ import annotations

import asyncio

import pytest

from tests.run.desk import DONE, LIMIT_S, Flaky, delta, desk, follow, run, said
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.log.events import Recorded
from trunkline.log.fold import State
from trunkline.run.backlog import pages
from trunkline.run.executor import Verdict, Work
from trunkline.run.feed import PAGE, WINDOW, WINDOW_BYTES, Feed
from trunkline.wire.types import TaskState

POINTS = 60


@pytest.mark.parametrize("hops", range(5))
def test_subscribe_between_snapshot_and_next_event(hops: int) -> None:
    """At each of 60 points of a task, with 0 to 4 turns of the loop between the snapshot and the next event."""
    steps: asyncio.Queue[None] = asyncio.Queue()

    async def act(work: Work) -> Verdict:
        for number in range(POINTS):
            await steps.get()
            await work.emit(delta(number))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            readers: list[tuple[int, asyncio.Task[list[int]]]] = []
            for _ in range(POINTS):
                before = feed.state.seq
                steps.put_nowait(None)
                for _ in range(hops):
                    await asyncio.sleep(0)
                snapshot = feed.state.seq
                readers.append((snapshot, asyncio.create_task(follow(runner.store, feed, snapshot))))
                while feed.state.seq <= before:
                    await runner.tasks.move(feed, LIMIT_S)
            await runner.ended(feed)
            end = feed.state.seq
            assert end == POINTS + 3
            for snapshot, reader in readers:
                assert await reader == list(range(snapshot + 1, end + 1))
            assert await follow(runner.store, feed, 0) == list(range(1, end + 1))

    run(main())


@pytest.mark.parametrize("events", [WINDOW - 3, 2 * WINDOW - 2, 2 * WINDOW - 1, 2 * WINDOW, 3_000])
def test_readers_behind_the_window_read_from_the_store(events: int) -> None:
    async def act(work: Work) -> Verdict:
        for number in range(events):
            await work.emit(delta(number))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            early = [asyncio.create_task(follow(runner.store, feed, feed.state.seq)) for _ in range(3)]
            await runner.ended(feed)
            end = feed.state.seq
            assert end == events + 3
            assert len(feed.records) <= 2 * WINDOW
            for reader in early:
                assert (await reader)[-1] == end
            for after in {0, 1, PAGE - 1, PAGE, feed.base - 1, feed.base, feed.base + 1, end - 1, end} - {-1}:
                assert await follow(runner.store, feed, after) == list(range(after + 1, end + 1))
            loaded = Feed("t", await runner.tasks.fold("t", feed.state.task_id))
            assert await follow(runner.store, loaded, 0) == list(range(1, end + 1))

    run(main())


def test_the_window_moves_while_a_slow_reader_reads_pages() -> None:
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        for number in range(4_000):
            if number == 1_500:
                await gate.wait()
            await work.emit(delta(number))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            while feed.base == 0:
                await runner.tasks.move(feed, LIMIT_S)
            seqs: list[int] = []
            reading = pages(runner.store, feed, 0)
            seqs += [one.seq for one in await anext(reading)]
            gate.set()
            await runner.ended(feed)
            async for page in reading:
                seqs += [one.seq for one in page]
            assert seqs == list(range(1, feed.base + 1))
            assert await follow(runner.store, feed, seqs[-1]) == list(
                range(feed.base + 1, feed.state.seq + 1)
            )

    run(main())


def test_events_that_were_pruned_end_the_reader() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        feed = Feed("t", _state(3))
        with pytest.raises(StoreError, match="no longer kept"):
            await follow(store, feed, 0)
        await store.close()

    run(main())


def test_the_window_is_bounded_in_bytes() -> None:
    feed = Feed("t", State("x"))
    feed.take(0, [ev.Submitted(said(), "c", "o", "n"), *[delta("x")] * 7], 0, 8 * WINDOW_BYTES)
    assert feed.base == 0, "what the run begins with stays until there is more"
    for seq in range(8, 100):
        feed.take(seq, [delta("x")], 0, WINDOW_BYTES // 10)
        assert len(feed.records) <= 22
    assert feed.newer(feed.base) == feed.records
    assert feed.records[-1].seq == feed.state.seq == 100


def test_encoded_frames_go_with_the_window() -> None:
    feed = Feed("t", State("x"))
    for seq in range(1, 2 * WINDOW + 2):
        feed.frames["json", seq] = b"x"
        feed.take(seq - 1, [ev.Submitted(said(), "c", "o", "n") if seq == 1 else delta("x")], 0, 0)
    assert len(feed.records) == WINDOW
    assert feed.base == feed.state.seq - WINDOW
    assert sorted(seq for _, seq in feed.frames) == [one.seq for one in feed.records]
    assert feed.newer(feed.base - 1) is None
    assert feed.newer(feed.base) == feed.records
    assert feed.newer(feed.state.seq) == []


def test_take_and_catch_up_skip_what_is_already_there() -> None:
    feed = Feed("t", _state(2))
    assert not feed.take(1, [delta("stale")], 0, 0)
    assert not feed.take(3, [delta("ahead")], 0, 0)
    feed.catch_up([Recorded(2, 0, delta("old")), Recorded(3, 0, delta("new"))])
    assert feed.take(3, [DONE], 0, 0)
    assert [one.seq for one in feed.records] == [3, 4]
    assert feed.state.over


def test_who_waits_is_woken_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        feed = Feed("t", _state(1))
        changed, rested, gone, nudged = (
            feed.changed(loop),
            feed.rested(loop),
            feed.rested(loop),
            feed.changed(loop),
        )
        gone.cancel()
        feed.take(1, [delta("x")], 0, 0)
        assert changed.done() and nudged.done()
        assert not rested.done()
        again = feed.changed(loop)
        feed.nudge()
        assert again.done()
        feed.take(2, [ev.Status(TaskState.INPUT_REQUIRED)], 0, 0)
        assert rested.done()
        feed.forget(rested)
        late = feed.rested(loop)
        feed.forget(late)
        feed.take(3, [DONE], 0, 0)
        assert not late.done()

    run(main())


def test_a_failed_opening_is_told_to_all_who_wait() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        feed = Feed("t", State("x"))
        waiting, gone = [feed.changed(loop), feed.rested(loop)], feed.changed(loop)
        gone.cancel()
        feed.fail(StoreError("full"))
        for future in waiting:
            with pytest.raises(StoreError, match="full"):
                await future

    run(main())


def _state(seq: int) -> State:
    state = State("x")
    for place in range(1, seq + 1):
        event = ev.Submitted(said(), "c", "o", "n") if place == 1 else delta("x")
        state.apply(Recorded(place, 0, event))
    return state
