"""Two runners on one store: what one leaves the other takes, once."""

from __future__ import annotations

import asyncio

import pytest

from tests.run.desk import DONE, Shared, answer, delta, desk, reason, run, said, until
from tests.run.pair import ask, die, hang, pair, seen
from trunkline.errors import TaskNotCancelable
from trunkline.log import events as ev
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.runner import Limits
from trunkline.wire.types import TaskState

ASKING, CANCELED, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.CANCELED, TaskState.COMPLETED
SLOW_DRAIN = Limits(stall_s=60, cancel_s=0.2, drain_s=15)


def test_an_answer_given_elsewhere_is_heard_where_the_question_was_asked() -> None:
    async def case() -> None:
        async with pair(ask) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await there.say(await seen(there, feed), said("yes"))
            assert await here.ended(feed) is COMPLETED
            assert answer(feed) == "a yes"
            # The executor that asked went on: nobody else had to begin anew.
            assert not any(isinstance(event, ev.Claimed) for event in await here.log(feed))

    run(case())


def test_a_question_outlives_its_node_whatever_the_skill_wants() -> None:
    async def case() -> None:
        async with pair(ask, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await die(here)
            far = await seen(there, feed)
            await there.say(far, said("yes"))
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "a yes"

    run(case())


def test_an_answer_that_nobody_has_taken_up_is_not_lost() -> None:
    # It comes while the node lives; the node dies before its executor has heard it.
    async def case() -> None:
        async with pair(ask, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            for owner in list(here._owners):
                owner.abandon()
            await there.say(far, said("yes"))
            await die(here)
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "a yes"

    run(case())


@pytest.mark.parametrize("crash", list(OnCrash), ids=lambda crash: crash.value)
def test_a_dead_node_is_taken_over(crash: OnCrash) -> None:
    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await work.emit(delta(" and done"))
        return DONE

    async def case() -> None:
        async with pair(hang, finish, crash) as (here, there):
            feed = await here.open()
            await here.reach(feed, TaskState.WORKING)
            await until(lambda: feed.state.seq >= 3)
            far = await seen(there, feed)
            await die(here)
            state = await there.ended(far)
            claims = [event for event in await there.log(far) if isinstance(event, ev.Claimed)]
            assert claims == [ev.Claimed(there.node)]
            assert there.takeovers == 1
            if crash is OnCrash.FAIL:
                assert state is TaskState.FAILED
                assert "process that ran this task ended" in reason(far)
            else:
                assert state is COMPLETED
                assert answer(far) == "begun and done"

    run(case())


def test_two_that_see_the_same_death_do_not_take_from_each_other() -> None:
    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(hang, store=store) as dead:
            feeds = [await dead.open() for _ in range(50)]
            for feed in feeds:
                await until(lambda feed=feed: feed.state.seq >= 3)
            await die(dead)
            async with desk(hang, store=store) as one, desk(hang, store=store) as two:
                await asyncio.gather(one._patrol.round(), two._patrol.round())
                for feed in feeds:
                    claims = [event for event in await one.log(feed) if isinstance(event, ev.Claimed)]
                    assert len(claims) == 1
                assert one.takeovers + two.takeovers == 50
        await store.close()

    run(case())


def test_a_frozen_owner_finds_its_task_taken() -> None:
    thaw = asyncio.Event()
    late: list[str] = []

    async def freeze(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        try:
            await thaw.wait()
            await work.emit(delta(" too late"))
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            late.append(type(error).__name__)
            raise
        return DONE

    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun again"))
        return DONE

    async def case() -> None:
        async with pair(freeze, finish, OnCrash.RESTART) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            # It lives but is not heard: no hints reach it, and the others think it dead.
            for task in list(here._background):
                task.cancel()
            await here.store.leave(here.node)
            far = await seen(there, feed)
            assert await there.ended(far) is COMPLETED
            thaw.set()
            await here.left_all()
            assert late == ["CancelledError"] or late == ["TurnOver"]
            assert answer(far) == "begun again"
            events = await there.log(far)
            assert len(events) == far.state.seq

    run(case())


def test_a_cancel_of_a_dead_node_s_task_does_not_wait() -> None:
    async def case() -> None:
        async with pair(hang) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            for task in list(there._background):
                task.cancel()
            await die(here)
            far = await seen(there, feed)
            try:
                async with asyncio.timeout(5):
                    await there.cancel(far, "me")
            except TaskNotCancelable:
                pytest.fail("nobody else could have ended it")
            assert far.state.state is CANCELED

    run(case())


def test_a_node_that_goes_down_hands_its_tasks_on() -> None:
    async def slow(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await asyncio.get_running_loop().create_future()
        return DONE

    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await work.emit(delta(", done there"))
        return DONE

    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(finish, SLOW_DRAIN, store, OnCrash.RESUME) as there:
            async with desk(slow, SLOW_DRAIN, store, OnCrash.RESUME) as here:
                feed = await here.open()
                await until(lambda: feed.state.seq >= 3)
                far = await seen(there, feed)
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "begun, done there"
            claims = [event for event in await there.log(far) if isinstance(event, ev.Claimed)]
            assert claims == [ev.Claimed(""), ev.Claimed(there.node)]
        await store.close()

    run(case())
