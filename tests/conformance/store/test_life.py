"""Open, close, and what outlives them."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, delta, deltas, listed, task
from trunkline.errors import Duplicate, Misuse, StoreError
from trunkline.store.records import Dedup, DeliveryOutcome, DeliveryResult, Hint, OutboxEntry, Where

CALLS = {
    "read": lambda store: store.log.read(A, "t1"),
    "news": lambda store: store.log.news([Hint(A, "t1", 0)]),
    "tail": lambda store: store.log.tail(""),
    "end": lambda store: store.log.end(),
    "head": lambda store: store.heads.get(A, "t1"),
    "heads": lambda store: store.heads.list(A, Where(), size=1),
    "rebuild": lambda store: store.heads.rebuild(),
    "prune": lambda store: store.maintenance.prune(AT),
    "compact": lambda store: store.maintenance.compact(AT),
    "join": lambda store: store.nodes.join("n1", ("",)),
    "beat": lambda store: store.nodes.beat("n1"),
    "leave": lambda store: store.nodes.leave("n1"),
    "alive": lambda store: store.nodes.alive("n1"),
    "orphans": lambda store: store.nodes.orphans(("",)),
    "take": lambda store: store.outbox.take(1, 1, per_lane=1),
    "settle": lambda store: store.outbox.settle([DeliveryResult("d", DeliveryOutcome.DONE)]),
    "expire": lambda store: store.outbox.expire("lane", AT, ""),
    "deliveries": lambda store: store.outbox.list(),
    "replay": lambda store: store.outbox.replay("d"),
    "fire_once": lambda store: store.clock.fire_once("s", AT),
    "put": lambda store: store.docs.put(A, "k", "x", b"", 0),
    "get": lambda store: store.docs.get(A, "k", "x"),
    "list": lambda store: store.docs.list(A, "k"),
    "delete": lambda store: store.docs.delete(A, "k", "x"),
    "append": lambda store: store.log.append(A, "t1", 0, [delta()], at=AT),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_before_open(run, bench, name):
    async def case():
        with pytest.raises(StoreError, match="not open"):
            await CALLS[name](bench.make())

    run(case())


@pytest.mark.parametrize("name", CALLS)
def test_nothing_after_close(run, bench, name):
    async def case():
        store = bench.make()
        await store.open()
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await CALLS[name](store)

    run(case())


def test_open_once(run, store):
    with pytest.raises(Misuse):
        run(store.open())


def test_close_twice_and_unopened(run, bench):
    async def case():
        await bench.make().close()
        store = bench.make()
        await store.open()
        await asyncio.gather(store.close(), store.close())
        await store.close()

    run(case())


def test_close_writes_what_was_accepted(run, bench):
    async def case():
        store = bench.make()
        await store.open()
        accepted = [store.log.append(A, f"t{n}", 0, deltas(10), at=AT) for n in range(200)]
        await store.close()
        assert all(future.done() for future in accepted)
        return await asyncio.gather(*accepted)

    assert run(case()) == [10] * 200


def test_close_answers_the_reads_it_took(run, bench):
    async def case():
        store = bench.make()
        await store.open()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        reads = [asyncio.ensure_future(store.log.read(A, "t1")) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        return [len(events) for events in await asyncio.gather(*reads)]

    assert run(case()) == [1] * 20


def test_everything_outlives_the_store(run, bench):
    if not bench.lasts:
        pytest.skip("nothing outlives a store in memory")

    async def fill(store):
        author = await task(store, "t1")
        delivery = OutboxEntry("d1", 3, "hook", "lane", AT)
        await store.log.append(
            A, "t1", author.state.seq, deltas(3), at=AT, deliveries=[delivery],
            dedup=Dedup("k", b"digest", 10_000),
        )  # fmt: skip
        await store.docs.put(A, "agent", "x", b"doc", 0)
        await store.clock.fire_once("daily", AT)
        return await store.log.read(A, "t1"), await listed(store, Where()), await store.log.tail("")

    async def case():
        store = bench.make()
        await store.open()
        before = await fill(store)
        await store.close()
        store = bench.make()
        await store.open()
        assert before == (
            await store.log.read(A, "t1"),
            await listed(store, Where()),
            await store.log.tail(""),
        )
        with pytest.raises(Duplicate):
            await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=Dedup("k", b"", 1))
        assert not await store.clock.fire_once("daily", AT)
        assert (await store.docs.get(A, "agent", "x")).body == b"doc"
        assert [delivery.id for delivery in await store.outbox.take(5, 1, per_lane=5)] == ["d1"]
        assert await store.log.append(A, "t1", 5, [delta()], at=AT) == 6
        await store.close()

    run(case())


def test_a_store_in_memory_begins_empty(run, bench):
    async def case():
        counts = []
        for _ in range(2):
            store = bench.make()
            await store.open()
            counts.append(len((await store.log.tail(""))[0]))
            await store.log.append(A, f"t{counts}", 0, [delta()], at=AT)
            await store.close()
        return counts

    assert run(case()) == ([0, 1] if bench.lasts else [0, 0])


def test_two_stores_do_not_mix(run, bench, tmp_path):
    other = bench.make()
    if bench.lasts:
        pytest.skip("a file has one store at a time")

    async def case():
        store = bench.make()
        await store.open()
        await other.open()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        found = await other.log.read(A, "t1")
        await store.close()
        await other.close()
        return found

    assert run(case()) == []
