"""Prune: ended tasks go with all that is theirs, nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, Author, B, delta, ids, listed, status, submitted, task
from trunkline.errors import Conflict, Duplicate
from trunkline.log.head import head_after
from trunkline.store.records import Dedup, DeliveryOutcome, DeliveryResult, OutboxEntry, Where
from trunkline.wire.types import STATES, TERMINAL, TaskState

OPEN = [state for state in STATES if state not in TERMINAL]


def test_nothing_to_forget(run, store):
    assert run(store.maintenance.prune(AT)) == 0


@pytest.mark.parametrize("state", sorted(TERMINAL, key=str), ids=str)
def test_an_ended_task_goes(run, store, state):
    async def case():
        await task(store, "t1", state=state)
        count = await store.maintenance.prune(AT + 1)
        return count, await store.log.read(A, "t1"), await store.heads.get(A, "t1"), await store.log.tail("")

    count, events, head, (tail, _) = run(case())
    assert (count, events, head, tail) == (1, [], None, [])


def test_how_far_events_of_a_tenant_are_forgotten_is_known(run, store):
    async def case():
        before = await store.log.end()
        await task(store, "t1", state=TaskState.COMPLETED)
        await task(store, "t2")
        behind = (await store.log.tail(""))[1]
        empty = await store.maintenance.pruned(A)
        await store.maintenance.prune(AT + 1)
        known = await store.maintenance.pruned(A)
        assert empty == 0 == await store.maintenance.pruned(B)
        await store.maintenance.prune(AT + 1)
        assert await store.maintenance.pruned(A) == known
        return int(before.partition(".")[0] or "0"), known, int(behind.partition(".")[0])

    before, known, behind = run(case())
    assert before < known <= behind


@pytest.mark.parametrize("state", OPEN, ids=str)
def test_an_open_task_stays(run, store, state):
    async def case():
        author = await task(store, "t1", state=state)
        return await store.maintenance.prune(AT + 10**9), len(
            await store.log.read(A, "t1")
        ) == author.state.seq

    assert run(case()) == (0, True)


def test_the_moment_itself_is_not_before(run, store):
    async def case():
        await task(store, "t1", state=TaskState.COMPLETED, at=AT)
        return await store.maintenance.prune(AT), await store.maintenance.prune(AT + 1)

    assert run(case()) == (0, 1)


def test_newer_ones_and_other_tasks_stay(run, store):
    async def case():
        await task(store, "old", state=TaskState.COMPLETED, at=AT)
        await task(store, "old-b", tenant=B, state=TaskState.FAILED, at=AT)
        await task(store, "new", state=TaskState.COMPLETED, at=AT + 10)
        await task(store, "open", at=AT)
        count = await store.maintenance.prune(AT + 5)
        return count, ids(await listed(store, Where())), len(await store.log.read(A, "new"))

    assert run(case()) == (2, ["new", "open"], 2)


def test_their_deliveries_go_too(run, store):
    async def case():
        author = await task(store, "t1")
        other = await task(store, "t2")
        for number, each in enumerate((author, other)):
            delivery = OutboxEntry(f"d{number}", each.state.seq + 1, "hook", "lane", AT)
            await store.log.append(
                A, each.state.task_id, each.state.seq, [delta()], at=AT, deliveries=[delivery]
            )
        ended = Author(store, "t3")
        await ended.append(submitted(), status(TaskState.COMPLETED))
        done = [OutboxEntry("d3", 2, "hook", "lane", AT)]
        await store.log.append(A, "t3", 2, [delta()], at=AT, deliveries=done)
        await store.outbox.settle([DeliveryResult("d3", DeliveryOutcome.DONE)])
        await store.maintenance.prune(AT + 1)
        assert [posted.id for posted in await store.outbox.list()] == ["d1", "d0"]
        return sorted(delivery.id for delivery in await store.outbox.take(10, 1_000, per_lane=10))

    assert run(case()) == ["d0", "d1"]


def test_their_keys_stay_until_they_expire(run, store, clock):
    async def case():
        key = Dedup("k", b"digest", 1_000)
        author = Author(store, "t1")
        events = (submitted(), status(TaskState.COMPLETED))
        head = head_after(author.state, events, AT)
        await store.log.append(A, "t1", 0, events, at=AT, head=head, dedup=key)
        clock.ms = AT + 999
        assert await store.maintenance.prune(AT + 1) == 1
        with pytest.raises(Duplicate) as caught:
            await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=key)
        assert caught.value.digest == b"digest"
        # Nobody can be led to the task that had it, nor to another one.
        assert await store.log.read(A, caught.value.task_id) == []
        clock.ms = AT + 1_000
        return await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=key)

    assert run(case()) == 1


def test_keys_of_the_living_stay_until_they_expire(run, store, clock):
    async def case():
        key = Dedup("k", b"", 1_000)
        await store.log.append(A, "t1", 0, [delta()], at=AT, dedup=key)
        # The moment to prune by is not the time of day.
        await store.maintenance.prune(AT + 10**9)
        with pytest.raises(Duplicate):
            await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=key)
        clock.ms = AT + 1_000
        await store.maintenance.prune(0)
        return await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=key)

    assert run(case()) == 1


def test_many_keys_over_several_pages(run, store, clock):
    async def case():
        keys = [Dedup(f"k{n:04}", b"", 500 if n % 2 else 10**9) for n in range(2_400)]
        appends = (store.log.append(A, f"t{n}", 0, [delta()], at=AT, dedup=key) for n, key in enumerate(keys))
        await asyncio.gather(*appends)
        clock.ms = AT + 600
        await store.maintenance.prune(0)
        again = (store.log.append(A, f"u{n}", 0, [delta()], at=AT, dedup=key) for n, key in enumerate(keys))
        return await asyncio.gather(*again, return_exceptions=True)

    results = run(case())
    assert all(isinstance(result, Duplicate) for result in results[::2])
    assert results[1::2] == [1] * 1_200


def test_a_pruned_task_is_gone_for_appends(run, store):
    async def case():
        author = await task(store, "t1", state=TaskState.COMPLETED)
        await store.maintenance.prune(AT + 1)
        with pytest.raises(Conflict) as caught:
            await store.log.append(A, "t1", author.state.seq, [delta()], at=AT)
        return caught.value.actual

    assert run(case()) == 0


def test_many_tasks_over_several_pages(run, store):
    async def case():
        states = [TaskState.COMPLETED, TaskState.WORKING, TaskState.FAILED]
        await asyncio.gather(*(task(store, f"t{n:03}", state=states[n % 3]) for n in range(450)))
        count = await store.maintenance.prune(AT + 1)
        return (
            count,
            await store.heads.count(A, Where()),
            len((await store.log.tail("", 5_000))[0]),
        )

    assert run(case()) == (300, 150, 300)


def test_rebuild_after_prune_brings_nothing_back(run, store):
    async def case():
        await task(store, "t1", state=TaskState.COMPLETED)
        await task(store, "t2")
        await store.maintenance.prune(AT + 1)
        return await store.heads.rebuild(), ids(await listed(store, Where()))

    assert run(case()) == (1, ["t2"])


def test_appends_beside_a_prune_lose_nothing(run, store):
    async def case():
        await asyncio.gather(*(task(store, f"old{n}", state=TaskState.COMPLETED) for n in range(300)))
        living = await asyncio.gather(*(task(store, f"new{n}") for n in range(50)))

        async def work(author):
            for _ in range(10):
                await author.append(delta())

        count, *_ = await asyncio.gather(store.maintenance.prune(AT + 1), *map(work, living))
        return count, [len(await store.log.read(A, f"new{n}")) for n in range(50)]

    assert run(case()) == (300, [12] * 50)


def test_named_tasks_of_a_tenant_that_ended_are_dropped(run, store):
    async def case():
        await task(store, "t1", state=TaskState.COMPLETED)
        await task(store, "t2")
        await task(store, "t3", state=TaskState.COMPLETED)
        counts = [await store.maintenance.drop(tenant, ["t1", "t2", "none"], AT + 1) for tenant in (B, A)]
        return counts, await store.log.read(A, "t1"), [await store.heads.get(A, one) for one in ("t2", "t3")]

    counts, events, left = run(case())
    assert (counts, events) == ([0, 1], [])
    assert all(left)
