"""Listeners: bounded, polled, forgotten when nobody holds them."""

from __future__ import annotations

import asyncio
import gc

import pytest

from trunkline.store.hints import LISTENER_HINTS, HintBroadcast
from trunkline.store.records import Hint, Poll


def test_nobody_listens(run):
    broadcast = HintBroadcast()
    assert not broadcast.heard
    broadcast.tell([Hint("a", "t", 1)])


def test_a_dropped_listener_is_forgotten(run):
    async def case():
        broadcast = HintBroadcast()
        listener = broadcast.listen()
        assert len(broadcast.heard) == 1
        del listener
        gc.collect()
        return len(broadcast.heard)

    assert run(case()) == 0


def test_hints_come_in_order_and_newest_wins(run):
    async def case():
        broadcast = HintBroadcast()
        listener = broadcast.listen()
        broadcast.tell([Hint("a", "t1", 1), Hint("a", "t2", 1)])
        broadcast.tell([Hint("a", "t1", 5)])
        return [await anext(listener), await anext(listener)]

    assert run(case()) == [Hint("a", "t1", 5), Hint("a", "t2", 1)]


def test_too_many_hints_become_one_poll(run):
    async def case():
        broadcast = HintBroadcast()
        listener = broadcast.listen()
        broadcast.tell(Hint("a", f"t{number}", 1) for number in range(LISTENER_HINTS + 50))
        first = await anext(listener)
        broadcast.tell([Hint("a", "later", 1)])
        return first, await anext(listener)

    assert run(case()) == (Poll(), Hint("a", "later", 1))


def test_a_full_listener_still_takes_news_of_known_tasks(run):
    async def case():
        broadcast = HintBroadcast()
        listener = broadcast.listen()
        broadcast.tell(Hint("a", f"t{number}", 1) for number in range(LISTENER_HINTS))
        broadcast.tell([Hint("a", "t0", 2)])
        return await anext(listener)

    assert run(case()) == Hint("a", "t0", 2)


def test_polls_come_even_when_hints_never_stop(run):
    async def case():
        broadcast = HintBroadcast(0.01)
        listener = broadcast.listen()
        for seq in range(1_000_000):
            broadcast.tell([Hint("a", "t", seq)])
            if isinstance(await anext(listener), Poll):
                return True
        return False

    assert run(case())


def test_the_end_wakes_everyone(run):
    async def case():
        broadcast = HintBroadcast()
        listeners = [broadcast.listen() for _ in range(3)]
        waiting = [asyncio.ensure_future(anext(listener)) for listener in listeners]
        await asyncio.sleep(0)
        broadcast.end()
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(result) for result in run(case())] == [StopAsyncIteration] * 3


def test_a_cancelled_wait_leaves_the_listener_usable(run):
    async def case():
        broadcast = HintBroadcast()
        listener = broadcast.listen()
        waiting = asyncio.ensure_future(anext(listener))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        broadcast.tell([Hint("a", "t", 1)])
        return await anext(listener)

    assert run(case()) == Hint("a", "t", 1)
