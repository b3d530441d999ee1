"""Two stores over one database, as two replicas have it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.conformance.store.given import AT, A, Author, delta, deltas, status, task
from trunkline.errors import Conflict, Duplicate
from trunkline.log import events as ev
from trunkline.store.records import (
    START,
    Dedup,
    DeliveryOutcome,
    DeliveryResult,
    DocHint,
    Hint,
    Orphan,
    OutboxEntry,
    Poll,
)
from trunkline.wire.types import TaskState

# The others are one process's alone.
pytestmark = pytest.mark.parametrize("bench", ["postgres"], indirect=True)


@pytest.fixture
def pair(bench):
    """Opens two stores for the length of a case."""
    assert bench.make().shared

    @asynccontextmanager
    async def opened():
        stores = bench.make(), bench.make()
        # At once, as replicas start.
        await asyncio.gather(*(store.open() for store in stores))
        try:
            yield stores
        finally:
            await asyncio.gather(*(store.close() for store in stores))

    return opened


def test_what_one_wrote_the_other_reads_and_goes_on_from(run, pair):
    async def case():
        async with pair() as (here, there):
            await here.log.append(A, "t1", 0, deltas(3), at=AT)
            seen = len(await there.log.read(A, "t1"))
            last = await there.log.append(A, "t1", 3, [delta()], at=AT)
            with pytest.raises(Conflict) as caught:
                await here.log.append(A, "t1", 3, [delta()], at=AT)
            return seen, last, caught.value.actual

    assert run(case()) == (3, 4, 4)


def test_one_of_two_owners_is_fenced(run, pair):
    async def case():
        async with pair() as (here, there):
            author = await task(here, "t1")
            successor = Author(there, "t1")
            for recorded in await there.log.read(A, "t1"):
                successor.state.apply(recorded)
            await successor.append(ev.Claimed("n2"))
            with pytest.raises(Conflict):
                await author.append(delta())
            return [type(recorded.event) for recorded in await here.log.read(A, "t1")]

    assert run(case()) == [ev.Submitted, ev.Status, ev.Claimed]


def test_hints_cross(run, pair):
    async def case():
        async with pair() as (here, there):
            listener = there.log.hints()
            await here.log.append(A, "t1", 0, deltas(3), at=AT)
            loop = asyncio.get_running_loop()
            started = loop.time()
            while isinstance(hint := await anext(listener), Poll):
                pass
            return hint, loop.time() - started < 0.9

    assert run(case()) == (Hint(A, "t1", 3), True)


def test_many_hints_cross_or_are_called_lost(run, pair):
    async def case():
        async with pair() as (here, there):
            listener = there.log.hints()
            names = {f"t{n}-{'x' * 60}" for n in range(700)}
            await asyncio.gather(*(here.log.append(A, name, 0, [delta()], at=AT) for name in names))
            loop = asyncio.get_running_loop()
            started = loop.time()
            async for hint in listener:
                if isinstance(hint, Poll):
                    break
                names.discard(hint.task_id)
                if not names:
                    break
            return loop.time() - started < 1.5

    assert run(case())


def test_own_appends_are_rung_once(run, pair):
    async def case():
        async with pair() as (here, there):
            mine, theirs = here.log.hints(), there.log.hints()
            await here.log.append(A, "t1", 0, [delta()], at=AT)
            while isinstance(await anext(theirs), Poll):
                pass
            first = await anext(mine)
            await there.log.append(A, "t2", 0, [delta()], at=AT)
            while isinstance(second := await anext(mine), Poll):
                pass
            return first, second

    assert run(case()) == (Hint(A, "t1", 1), Hint(A, "t2", 1))


def test_contended_appends_are_dense_and_whole(run, pair):
    """Two stores, three writers each, fight for ten logs: 300 appends, each of one to three events."""

    async def work(store, name, mark):
        done, seq = 0, 0
        while done < 5:
            try:
                size = 1 + done % 3
                seq = await store.log.append(A, name, seq, [delta(f"{mark}{done}")] * size, at=AT)
                done += 1
            except Conflict as conflict:
                seq = conflict.actual

    async def case():
        async with pair() as stores:
            names = [f"t{n}" for n in range(10)]
            await asyncio.gather(
                *(
                    work(store, name, f"{number}{writer}-")
                    for number, store in enumerate(stores)
                    for writer in range(3)
                    for name in names
                )
            )
            return [await stores[0].log.read(A, name) for name in names]

    for events in run(case()):
        assert [recorded.seq for recorded in events] == list(range(1, 6 * 9 + 1))
        texts = [recorded.event.text for recorded in events]
        # What was appended together stands together.
        runs = [text for place, text in enumerate(texts) if not place or texts[place - 1] != text]
        assert len(runs) == len(set(runs)) == 30


def test_a_key_is_recorded_by_one_of_two(run, pair):
    async def case():
        async with pair() as stores:
            found = []
            for n in range(40):
                key = Dedup(f"k{n}", b"", 10_000)
                both = (
                    s.log.append(A, f"t{n}-{i}", 0, [delta()], at=AT, dedup=key) for i, s in enumerate(stores)
                )
                found.append(await asyncio.gather(*both, return_exceptions=True))
            return found, [len(await stores[0].log.read(A, f"t{n}-{i}")) for n in range(40) for i in (0, 1)]

    results, lengths = run(case())
    for n, (first, second) in enumerate(results):
        winner = [i for i, result in enumerate((first, second)) if result == 1]
        (loser,) = [result for result in (first, second) if result != 1]
        assert len(winner) == 1
        assert isinstance(loser, Duplicate)
        assert loser.task_id == f"t{n}-{winner[0]}"
    assert sum(lengths) == 40


def test_groups_with_one_shared_key_lose_nobody_else(run, pair):
    async def burst(store, mark):
        key = Dedup("shared", b"", 10_000)
        keyed = store.log.append(A, f"{mark}-keyed", 0, [delta()], at=AT, dedup=key)
        others = [store.log.append(A, f"{mark}-{n}", 0, [delta()], at=AT) for n in range(50)]
        own = [
            store.log.append(A, f"{mark}-k{n}", 0, [delta()], at=AT, dedup=Dedup(f"{mark}{n}", b"", 1))
            for n in range(20)
        ]
        return await asyncio.gather(keyed, *others, *own, return_exceptions=True)

    async def case():
        async with pair() as (here, there):
            return await asyncio.gather(burst(here, "a"), burst(there, "b"))

    (first, *a), (second, *b) = run(case())
    assert a == b == [1] * 70
    assert sorted(type(result).__name__ for result in (first, second)) == ["Duplicate", "int"]


def test_a_tail_beside_two_writers_misses_nothing(run, pair):
    async def write(store, name):
        for seq in range(40):
            await store.log.append(A, name, seq, [delta()], at=AT)

    async def follow(store):
        found, cursor = [], START
        while len({(record.task_id, record.recorded.seq) for record in found}) < 480:
            page, cursor = await store.log.tail(cursor, 37)
            found += page
            if not page:
                await asyncio.sleep(0.001)
        return found

    async def case():
        async with pair() as stores:
            writers = (write(stores[n % 2], f"t{n}") for n in range(12))
            _, found = await asyncio.gather(asyncio.gather(*writers), follow(stores[1]))
            return found

    seen = {}
    for record in run(case()):
        assert record.recorded.seq == seen.get(record.task_id, 0) + 1
        seen[record.task_id] = record.recorded.seq
    assert seen == {f"t{n}": 40 for n in range(12)}


def test_the_other_sees_who_lives(run, pair):
    async def case():
        async with pair() as (here, there):
            await here.nodes.join("n1", ("",))
            await task(here, "t1", node="n1")
            living = await there.nodes.alive("n1"), await there.nodes.orphans(("",))
            await here.nodes.leave("n1")
            return living, await there.nodes.alive("n1"), await there.nodes.orphans(("",))

    assert run(case()) == ((True, []), False, [Orphan(A, "t1", "n1")])


def test_a_closed_store_leaves_its_tasks_to_the_other(run, pair):
    async def case():
        async with pair() as (here, there):
            await here.nodes.join("n1", ("",))
            await there.nodes.join("n2", ("",))
            await task(here, "t1", node="n1")
            before = await there.nodes.orphans(("",))
            await here.close()
            return before, await there.nodes.orphans(("",))

    assert run(case()) == ([], [Orphan(A, "t1", "n1")])


def test_deliveries_instants_and_documents_have_one_taker(run, pair):
    async def case():
        async with pair() as stores:
            for n in range(30):
                await stores[0].log.append(
                    A, f"t{n}", 0, [delta()], at=AT, deliveries=[OutboxEntry(f"d{n}", 1, "hook", "lane", AT)]
                )
            taken = await asyncio.gather(*(store.outbox.take(20, 1_000, per_lane=20) for store in stores))
            ids = [delivery.id for batch in taken for delivery in batch]
            fired = await asyncio.gather(*(stores[n % 2].clock.fire_once("daily", n // 2) for n in range(20)))
            puts = [stores[n % 2].docs.put(A, "agent", f"x{n // 2}", b"", 0) for n in range(20)]
            put = await asyncio.gather(*puts, return_exceptions=True)
            await stores[1].outbox.settle([DeliveryResult("d0", DeliveryOutcome.DONE)])
            return len(ids) == len(set(ids)), sum(fired), sum(result == 1 for result in put)

    assert run(case()) == (True, 10, 10)


def test_two_prunes_at_once(run, pair):
    async def case():
        async with pair() as stores:
            await asyncio.gather(*(task(stores[0], f"t{n}", state=TaskState.FAILED) for n in range(250)))
            counts = await asyncio.gather(*(store.maintenance.prune(AT + 1) for store in stores))
            return sum(counts), await stores[0].log.tail(START)

    total, (records, _) = run(case())
    assert (total, records) == (250, [])


def test_two_compactions_at_once(run, pair):
    async def case():
        async with pair() as stores:
            for n in range(10):
                author = await task(stores[0], f"t{n}")
                for _ in range(12):
                    await author.append(delta())
                await author.append(status(TaskState.COMPLETED))
            counts = await asyncio.gather(*(store.maintenance.compact(AT + 1) for store in stores))
            return sum(counts), [len(await stores[1].log.read(A, f"t{n}")) for n in range(10)]

    total, lengths = run(case())
    assert total == 10
    assert set(lengths) == {4}


def test_a_page_of_changes_hides_nothing_that_was_being_written(run, pair):
    async def case():
        async with pair() as (here, there):
            for name in "abc":
                await here.docs.put(A, "agent", name, b"", 0)
            connection = await there.docs._database._address.connect("test", seconds=10)
            writing = connection.transaction()
            await writing.start()
            await connection.execute("SET LOCAL trunkline.tenant = '*'")
            await connection.execute("UPDATE docs SET body = 'late', rev = rev + 1 WHERE id = 'a'")
            await here.docs.put(A, "agent", "d", b"", 0)
            page, cursor = await here.docs.changes("agent", limit=2)
            await writing.commit()
            await connection.close()
            seen = list(page)
            while len(page) == 2:
                page, cursor = await here.docs.changes("agent", cursor, 2)
                seen += page
            seen += (await here.docs.changes("agent", cursor))[0]
            return {change.id: change.doc.body for change in seen if change.doc}

    assert run(case()) == {"a": b"late", "b": b"", "c": b"", "d": b""}


def test_a_change_of_documents_is_heard_at_the_other_replica(run, pair):
    async def case():
        async with pair() as (here, there):
            listener = there.docs.hints()
            await here.docs.put(A, "agent", "x", b"", 0)
            while isinstance(found := await anext(listener), Poll):
                pass
            return found

    assert run(case()) == DocHint("agent")
