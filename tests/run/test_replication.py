"""Two runners on one store: what is said here is read there."""

from __future__ import annotations

import asyncio

import pytest

from tests.run.desk import DONE, answer, delta, run, said
from tests.run.pair import ask, hang, pair, seen, until_read
from tests.run.stores import set_back
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.run.executor import Verdict, Work
from trunkline.wire.types import TaskState

ASKING, CANCELED, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.CANCELED, TaskState.COMPLETED


def test_what_is_said_here_is_followed_there() -> None:
    go = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await work.emit(delta("one"))
        await go.wait()
        await work.emit(delta(" two"))
        return DONE

    async def case() -> None:
        async with pair(act) as (here, there):
            feed = await here.open()
            far = await seen(there, feed)
            await until_read(there, far, lambda: far.state.seq >= 3)
            go.set()
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "one two"
            assert far.state.seq == feed.state.seq

    run(case())


def test_a_lookup_is_never_older_than_the_log() -> None:
    async def case() -> None:
        async with pair(ask) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            assert far.state.state is ASKING
            await here.say(feed, said("yes"))
            await here.ended(feed)
            assert (await seen(there, feed)).state.state is COMPLETED

    run(case())


def test_cancel_at_another_runner() -> None:
    async def case() -> None:
        async with pair(hang) as (here, there):
            feed = await here.open()
            await here.reach(feed, TaskState.WORKING)
            await there.cancel(await seen(there, feed), "me")
            assert await here.ended(feed) is CANCELED
            await here.left_all()
            assert [type(event) for event in (await here.log(feed))[-2:]] == [ev.CancelRequested, ev.Status]

    run(case())


def test_a_damaged_log_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await work.emit(delta("one"))
        await go.wait()
        return DONE

    async def case() -> None:
        async with pair(act) as (here, there):
            broken, sound = await here.open(), await here.open()
            far, near = await seen(there, broken), await seen(there, sound)
            # As if events were missing in between.
            there.tasks._take_in(far, [ev.Recorded(99, 0, DONE)])
            with pytest.raises(StoreError, match="cannot be read"):
                waiting = there.tasks.move(far, 5)
                there._node.tasks.loop.call_soon(there.tasks._take_in, far, [ev.Recorded(99, 0, DONE)])
                await waiting
            go.set()
            assert await there.ended(near) is COMPLETED

    run(case())
    assert "feed.broken" in caplog.text


def test_a_log_that_cannot_be_decoded_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await work.emit(delta("one"))
        await go.wait()
        return DONE

    async def case() -> None:
        async with pair(act) as (here, there):
            broken, sound = await here.open(), await here.open()
            await until_read(here, broken, lambda: broken.state.seq >= 3)
            far, near = await seen(there, broken), await seen(there, sound)
            state = broken.state
            waiting = asyncio.ensure_future(there.tasks.move(far, 5))
            await asyncio.sleep(0)
            await there.store.log.append(
                far.tenant, state.task_id, state.seq, [ev.Unread(b'{"kind":"claimed"}')], at=1
            )
            with pytest.raises(StoreError, match="cannot be read"):
                await waiting
            go.set()
            assert await there.ended(near) is COMPLETED
            with pytest.raises(StoreError):
                await seen(there, broken)

    run(case())
    # Once by each of the two.
    assert caplog.text.count("feed.broken") == 2


def test_a_follower_of_a_log_that_was_set_back_is_told() -> None:
    async def case() -> None:
        async with pair(ask) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            await set_back(here.store, feed.state.task_id, 1)
            with pytest.raises(StoreError, match="ends at seq 1 and was seen up to"):
                await until_read(there, far, lambda: False)
            assert (await seen(there, feed)).state.seq == 1

    run(case())
