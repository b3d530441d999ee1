"""Between an executor and the log: acks that get lost, appends that land late, owners that are left or frozen."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.run.desk import (
    DONE,
    WORKING,
    Desk,
    Flaky,
    answer,
    delta,
    desk,
    question,
    reason,
    run,
    said,
    until,
)
from trunkline.errors import Conflict, StoreError, TurnOver
from trunkline.log import decide as rules
from trunkline.log import events as ev
from trunkline.run import buffer
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.store.group_commit import Ack
from trunkline.wire.types import Artifact, Part, TaskState

FAILED, COMPLETED, ASKING = TaskState.FAILED, TaskState.COMPLETED, TaskState.INPUT_REQUIRED


async def forever() -> Any:
    await asyncio.get_running_loop().create_future()


class Lossy(Flaky):
    """A store on a bad line: appends land and are reported lost, or land only after they were."""

    def __init__(self, fate: Callable[[], str], error: StoreError | None = None) -> None:
        super().__init__()
        self.fate = fate
        self.error = error or StoreError("the line is cut")
        self.late: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        for one, more in self.late:
            super().append(*one, **more).then(lambda _: None)
        self.late.clear()
        opening = isinstance(args[3][0], ev.Submitted)
        fate = "lands" if opening else self.fate()
        if fate == "lands":
            return super().append(*args, **kwargs)
        lost = Ack()
        if fate == "lost":
            landed = super().append(*args, **kwargs)
            landed.then(lambda error: lost.settle(error or self.error))
        else:
            if fate == "late":
                self.late.append((args, kwargs))
            lost.settle(self.error)
        return lost


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_or_doubled_on_a_bad_line(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 0.001)
    chance = random.Random(seed)
    print("seed", seed)

    async def act(work: Work) -> Verdict:
        for number in range(60):
            await work.emit(delta(f"{number} "))
            if chance.random() < 0.5:
                await work.drain()
            elif chance.random() < 0.5:
                await asyncio.sleep(0)
        await work.ask(question())
        await work.emit(ev.Chunk(Artifact("more", parts=(Part(data=(1, 2)),))))
        return DONE

    async def main() -> None:
        store = Lossy(lambda: chance.choice(["lands", "lost", "late", "gone"]))
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            store.fate, fate = (lambda: "lands"), store.fate
            await runner.say(feed, said("that"))
            store.fate = fate
            assert await runner.ended(feed) is COMPLETED
            texts = [event.text for event in await runner.log(feed) if isinstance(event, ev.Delta)]
            assert texts == [f"{number} " for number in range(60)]
            assert [type(event).__name__ for event in await runner.log(feed)][-6:] == [
                "Status",
                "FollowUp",
                "Status",
                "AnswerRead",
                "Chunk",
                "Status",
            ]
            await runner.left_all()
            store.fate = lambda: "lands"
        await store.close()

    run(main())


def test_a_lost_ack_behind_the_window_is_found_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 0.001)
    monkeypatch.setattr("trunkline.run.feed.WINDOW", 1)
    fates = iter(["lost"])

    async def act(work: Work) -> Verdict:
        for number in range(9):
            work.put(delta(number))
        await work.drain()
        return DONE

    async def main() -> None:
        store = Lossy(lambda: next(fates, "lands"))
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            assert (await runner.log(feed))[1:] == [WORKING, *map(delta, range(9)), DONE]
        await store.close()

    run(main())


def test_a_conflict_with_nothing_is_not_asked_for_again_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 0.01)
    fates = iter(["odd", "odd"])

    async def act(work: Work) -> Verdict:
        await work.emit(delta("x"))
        return DONE

    async def main() -> None:
        store = Lossy(lambda: next(fates, "lands"), Conflict(9))
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            assert (await runner.log(feed))[1:] == [WORKING, delta("x"), DONE]
        await store.close()
        assert caplog.text.count("task.unwritten") == 2

    run(main())


def test_a_drain_waits_for_what_was_said_before_it_and_no_longer() -> None:
    drained: list[int] = []

    async def talk(work: Work) -> None:
        while len(drained) < 3:
            work.put(delta("x"))
            await asyncio.sleep(0)

    async def act(work: Work) -> Verdict:
        talking = asyncio.get_running_loop().create_task(talk(work))
        for number in range(3):
            work.put(ev.Stepped(number, "s"))
            await work.drain()
            drained.append(number)
        await talking
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED

    run(main())


class Held(Flaky):
    """A store whose appends land when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] = []

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        if isinstance(args[3][0], ev.Submitted):
            return super().append(*args, **kwargs)
        promised = Ack()
        self.held.append(lambda: super(Held, self).append(*args, **kwargs).then(promised.settle))
        return promised


def test_a_drain_is_not_over_while_what_was_said_before_it_is_on_its_way() -> None:
    drained: list[int] = []

    async def act(work: Work) -> Verdict:
        work.put(delta("first"))
        draining = asyncio.ensure_future(work.drain())
        await asyncio.sleep(0)
        work.put(delta("second"))
        work.put(delta("third"))
        await asyncio.gather(draining, work.drain())
        drained.append(work.state.seq)
        return DONE

    async def main() -> None:
        store = Held()
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            for _ in range(2):
                await until(lambda: bool(store.held))
                for _ in range(20):
                    # Whoever was let go too early has every chance to say so.
                    await asyncio.sleep(0)
                assert not drained
                store.held.pop(0)()
            await until(lambda: bool(drained))
            assert drained == [5]
            await until(lambda: bool(store.held))
            store.held.pop(0)()
            assert await runner.ended(feed) is COMPLETED
        await store.close()

    run(main())


@pytest.mark.parametrize("how", ["emits", "drains", "hangs"])
def test_a_task_that_is_full_ends_with_that_reason(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "EVENTS_LIMIT", 40)
    ends: list[BaseException] = []

    async def act(work: Work) -> Verdict:
        try:
            while work.state.seq < 40:
                await work.emit(delta("x"))
                await work.drain()
            await work.emit(delta("too much"))
            if how == "drains":
                await work.drain()
            return await forever() if how == "hangs" else await until(lambda: False)  # type: ignore[return-value]
        except BaseException as error:
            ends.append(error)
            raise

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is FAILED
            assert reason(feed) == "The task has reached its limit (20 000 events or 64 MiB) and was ended."
            await runner.left_all()
            assert len(await runner.log(feed)) == 41
            assert len(ends) == 1

    run(main())


def test_a_full_task_may_still_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "EVENTS_LIMIT", 3)

    async def act(work: Work) -> Verdict:
        await work.emit(delta("x"))
        await work.drain()
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            assert await runner.ended(await runner.open()) is COMPLETED

    run(main())


def test_an_owner_that_left_writes_nothing_more() -> None:
    told: list[str] = []

    async def helper(work: Work) -> None:
        try:
            await work.drain()
        except TurnOver as over:
            told.append(str(over))

    async def act(work: Work) -> Verdict:
        work.put(delta("in flight"))
        await asyncio.sleep(0)
        work.put(delta("still here"))
        waiting = asyncio.get_running_loop().create_task(helper(work))
        await asyncio.sleep(0)
        next(iter(runners[0]._owners)).abandon()
        for late in (lambda: work.put(delta("late")), lambda: work.recorded_step(0, "s")):
            with pytest.raises(TurnOver):
                late()
        with pytest.raises(TurnOver):
            await work.ask(question())
        await asyncio.wait([waiting])
        return DONE

    runners: list[Desk] = []

    async def main() -> None:
        async with desk(act) as runner:
            runners.append(runner)
            feed = await runner.open()
            await runner.left_all()
            await until(lambda: len(told) == 1)
            await runner.store.log.read("t", feed.state.task_id)
            assert delta("still here") not in await runner.log(feed)
            assert not feed.state.over

    run(main())


def test_a_frozen_owner_that_wakes_after_a_takeover_writes_nothing() -> None:
    wakes, stopped = asyncio.Event(), list[str]()

    async def frozen(work: Work) -> Verdict:
        await work.emit(delta("begun "))
        await work.drain()
        await wakes.wait()
        work.put(delta("late "))
        try:
            await work.drain()
        except (TurnOver, asyncio.CancelledError) as error:
            stopped.append(type(error).__name__)
            raise
        return DONE

    async def other(work: Work) -> Verdict:
        await work.emit(delta("begun "))
        await work.emit(delta("taken over "))
        await work.drain()
        await until(lambda: bool(stopped))
        await work.emit(delta("and ended"))
        return DONE

    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(frozen, store=store) as here:
            feed = await here.open()
            await until(lambda: feed.state.seq == 3)
            await store.nodes.leave(here.node)
            async with desk(other, store=store, crash=OnCrash.RESUME) as there:
                taken = await there.find(feed.state.task_id)
                await until(lambda: answer(taken) == "begun taken over ")
                wakes.set()
                assert await there.ended(taken) is COMPLETED
                await here.left_all()
                texts = [event.text for event in await there.log(taken) if isinstance(event, ev.Delta)]
                assert texts == ["begun ", "taken over ", "and ended"]
                assert len(stopped) == 1
                assert here.late and not there.late
        await store.close()

    run(main())


def test_a_task_that_has_ended_leaves_no_circle() -> None:
    async def write(work: Work) -> Verdict:
        await work.emit(delta("x"))
        await asyncio.sleep(0)
        await work.emit(delta("y"))
        return DONE

    async def main() -> None:
        async with desk(write) as runner:
            gc.collect()
            gc.disable()
            try:
                kept = [weakref.ref(await runner.open()) for _ in range(20)]
                await runner.left_all()
                await asyncio.sleep(0)
                assert [feed() for feed in kept] == [None] * 20
            finally:
                gc.enable()

    run(main())
