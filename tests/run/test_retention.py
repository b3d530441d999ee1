"""What has ended shrinks and goes; what lives stays, however old."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import pytest

from tests.run.desk import AGENT, DONE, QUICK, Shared, answer, delta, desk, question, run
from trunkline.errors import StoreError, TaskNotFound
from trunkline.log import events as ev
from trunkline.run import retention
from trunkline.run.executor import Verdict, Work
from trunkline.run.retention import Retention, prune, pruned_before
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

ALL = Where()


async def write(work: Work) -> Verdict:
    for place in range(200):
        await work.emit(delta(f"{place} "))
        if place % 4 == 0:
            await asyncio.sleep(0)
    return DONE


async def quick(work: Work) -> Verdict:
    return DONE


def kept(seconds: float) -> list[tuple[tuple[str, ...], float]]:
    """An agent whose tasks are kept this long."""
    return [((AGENT, ""), seconds)]


async def later(seconds: float) -> None:
    """The clock of the store is the wall's, so time must pass."""
    await asyncio.sleep(seconds)


def test_what_is_held_is_looked_through_once_however_many_tenants_have_a_time_of_their_own() -> None:
    class Counted(WeakValueDictionary[tuple[str, str], Any]):
        walks = 0

        def items(self) -> Any:
            self.walks += 1
            return super().items()

    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            feed = await runner.open()
            await runner.ended(feed)
            await later(0.002)
            held = runner.tasks._feeds = Counted(runner.tasks._feeds)
            sweep = Retention(runner.tasks, [])
            sweep.keep_of(lambda: {f"other-{n}": 0.001 for n in range(50)})
            await sweep._round()
            assert (held.walks, len(held)) == (1, 1)
            sweep.keep_of(lambda: {"t": 0.001, "other": 3600.0})
            await sweep._round()
            assert len(held) == 0

    run(case())


@pytest.mark.slow
def test_after_ten_thousand_tasks_nothing_is_left() -> None:
    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            for _ in range(100):
                feeds = await asyncio.gather(*(runner.open() for _ in range(100)))
                await asyncio.gather(*(runner.ended(feed) for feed in feeds))
            last = feeds[0].state.task_id
            feeds = []
            await later(0.002)
            await Retention(runner.tasks, kept(0.001))._round()
            # By which answers that were kept are judged too: the store's clock says what is gone, not ours.
            assert 0 < runner.tasks.pruned_before((AGENT,)) <= await runner.store.clock.now()
            assert runner.tasks.pruned_before(("other",)) == 0
            assert await runner.store.heads.count("t", ALL) == 0
            assert await runner.store.log.read("t", last) == []
            with pytest.raises(TaskNotFound):
                await runner.find(last)
            gc.collect()
            assert len(runner.tasks._feeds) == 0

    run(case())


@pytest.mark.parametrize(("after_ms", "left"), [(3_599_999, 1), (3_600_001, 0)])
def test_the_clock_of_the_store_says_what_is_old(
    monkeypatch: pytest.MonkeyPatch, after_ms: int, left: int
) -> None:
    async def case() -> None:
        async with desk(quick) as runner:
            feed = await runner.open()
            await runner.ended(feed)

            async def now() -> int:
                return feed.state.status_at + after_ms

            monkeypatch.setattr(runner.store.clock, "now", now)
            await Retention(runner.tasks, kept(3600))._round()
            assert await runner.store.heads.count("t", ALL) == left

    run(case())


def test_live_tasks_stay() -> None:
    async def ask(work: Work) -> Verdict:
        await work.ask(question())
        return DONE

    async def hang(work: Work) -> Verdict:
        await work.emit(delta("x"))
        return await asyncio.get_running_loop().create_future()

    async def act(work: Work) -> Verdict:
        return await (ask if work.state.message.parts[0].text == "ask" else hang)(work)

    async def case() -> None:
        async with desk(act) as runner:
            asking, working = await runner.open("ask"), await runner.open("hang")
            await runner.reach(asking, TaskState.INPUT_REQUIRED)
            await runner.reach(working, TaskState.WORKING)
            await later(0.002)
            await Retention(runner.tasks, kept(0.001))._round()
            for feed in (asking, working):
                assert (await runner.find(feed.state.task_id)).state.seq == feed.state.seq
            assert await runner.store.heads.count("t", ALL) == 2

    run(case())


def test_what_has_ended_is_compacted_and_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "COMPACT_AFTER_MS", -1000)

    async def case() -> None:
        async with desk(write) as runner:
            feed = await runner.open()
            await runner.ended(feed)
            before = feed.state.task()
            runner.tasks._feeds.clear()
            await Retention(runner.tasks, kept(0))._round()
            stored = await runner.store.log.read("t", feed.state.task_id)
            assert any(isinstance(one.event, ev.Compacted) for one in stored)
            assert len(stored) < 10
            again = await runner.find(feed.state.task_id)
            assert again.state.task() == before
            assert again.state.seq == feed.state.seq
            assert answer(again) == answer(feed)

    run(case())


def test_one_of_several_does_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[int] = []

    class Counted(Shared):
        async def prune(self, before: int, agents: Sequence[str] | None = None) -> int:
            swept.append(before)
            return await super().prune(before, agents)

    async def case() -> None:
        store = Counted()
        await store.open()
        async with desk(quick, store=store) as one, desk(quick, store=store) as two:
            # The longest pause, so that both rounds fall into one.
            await asyncio.gather(*(Retention(runner.tasks, kept(10**6))._round() for runner in (one, two)))
        await store.close()
        assert len(swept) == 1

    run(case())


def test_a_store_that_fails_is_swept_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "SHORTEST_S", 0.001)
    rounds: list[str] = []

    async def case() -> None:
        async with desk(quick) as runner:

            async def prune(before: int, agents: Sequence[str] | None = None) -> int:
                rounds.append("prune")
                if len(rounds) == 1:
                    raise StoreError("the disk is full")
                return 0

            monkeypatch.setattr(runner.store.maintenance, "prune", prune)
            sweeping = asyncio.create_task(Retention(runner.tasks, kept(0.001)).run())
            while len(rounds) < 2:  # noqa: ASYNC110 - nothing there to wait on
                await asyncio.sleep(0.001)
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

    run(case())
    assert "store.unswept" in caplog.text


def test_what_an_operator_had_forgotten_is_let_go_of_by_every_process() -> None:
    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(quick, store=store) as one, desk(quick, store=store) as other:
            feed = await one.open()
            await one.ended(feed)
            held = await other.find(feed.state.task_id)
            before = held.state.status_at + 1
            # A later prune of what is older does not move the moment back.
            assert [await prune(store, at) for at in (before, before - 10)] == [1, 0]
            assert await pruned_before(store) == before
            await Retention(other.tasks, kept(0))._round()
            assert other.tasks.pruned_before(()) == before
            with pytest.raises(TaskNotFound):
                await other.find(feed.state.task_id)
        await store.close()

    run(case())


def test_each_agent_keeps_its_own_tasks_for_its_own_time() -> None:
    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            feed = await runner.open()
            await runner.ended(feed)
            await later(0.002)
            await Retention(runner.tasks, [(("other",), 0.001), ((AGENT, ""), 0)])._round()
            assert (await runner.find(feed.state.task_id)).state.over
            await Retention(runner.tasks, [(("other",), 60), ((AGENT, ""), 0.001)])._round()
            with pytest.raises(TaskNotFound):
                await runner.find(feed.state.task_id)

    run(case())
