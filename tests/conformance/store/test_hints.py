"""Hints: a lossy doorbell that never lies, and a reminder at least each second."""

from __future__ import annotations

import asyncio

from tests.conformance.store.given import AT, A, B, delta, deltas
from trunkline.store.records import Hint, Poll


async def next_hint(listener) -> Hint:
    while isinstance(found := await anext(listener), Poll):
        pass
    return found


def test_an_append_rings(run, store):
    async def case():
        listener = store.log.hints()
        await store.log.append(A, "t1", 0, deltas(3), at=AT)
        return await next_hint(listener)

    assert run(case()) == Hint(A, "t1", 3)


def test_a_waiting_listener_wakes(run, store):
    async def case():
        listener = store.log.hints()
        waiting = asyncio.ensure_future(next_hint(listener))
        await asyncio.sleep(0)
        await store.log.append(B, "t1", 0, [delta()], at=AT)
        return await waiting

    assert run(case()) == Hint(B, "t1", 1)


def test_what_is_hinted_can_be_read(run, store):
    async def case():
        listener = store.log.hints()
        kept = [store.log.append(A, f"t{n}", 0, [delta()], at=AT) for n in range(20)]
        hints = [await next_hint(listener) for _ in kept]
        return [len(await store.log.read(hint.tenant, hint.task_id)) >= hint.seq for hint in hints]

    assert run(case()) == [True] * 20


def test_listeners_are_independent(run, store):
    async def case():
        first, second = store.log.hints(), store.log.hints()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        return await next_hint(first), await next_hint(second)

    assert run(case()) == (Hint(A, "t1", 1), Hint(A, "t1", 1))


def test_refused_appends_do_not_ring(run, store):
    async def case():
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        listener = store.log.hints()
        await asyncio.gather(store.log.append(A, "t1", 0, [delta()], at=AT), return_exceptions=True)
        await store.log.append(A, "t2", 0, [delta()], at=AT)
        return await next_hint(listener)

    assert run(case()) == Hint(A, "t2", 1)


def test_the_latest_seq_of_each_task_is_told(run, store):
    async def case():
        listener = store.log.hints()
        await asyncio.gather(*(store.log.append(A, f"t{n % 2}", n // 2, [delta()], at=AT) for n in range(20)))
        found = {}
        while sorted(found.values()) != [10, 10]:
            hint = await next_hint(listener)
            found[hint.task_id] = hint.seq
        return found

    assert run(case()) == {"t0": 10, "t1": 10}


def test_a_poll_comes_within_a_second(run, store):
    async def case():
        loop = asyncio.get_running_loop()
        started = loop.time()
        found = await anext(store.log.hints())
        return found, loop.time() - started < 1.5

    assert run(case()) == (Poll(), True)


def test_a_slow_listener_is_told_to_look_itself(run, store):
    async def case():
        listener = store.log.hints()
        appends = (store.log.append(A, f"t{n}", 0, [delta()], at=AT) for n in range(5_000))
        await asyncio.gather(*appends)
        found = [await anext(listener)]
        while not isinstance(found[-1], Poll):
            found.append(await anext(listener))
        return len(found) < 5_000

    assert run(case())


def test_a_listener_ends_with_its_store(run, bench):
    async def case():
        store = bench.make()
        await store.open()
        listener = store.log.hints()
        waiting = asyncio.ensure_future(_drain(listener))
        await asyncio.sleep(0)
        await store.close()
        await waiting
        await _drain(store.log.hints())

    run(case())


async def _drain(listener):
    async for _ in listener:
        pass
