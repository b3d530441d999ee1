"""Outbox: written with the event, leased, in order per task and target."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, delta
from trunkline.errors import StoreError
from trunkline.store.base import Announcement, Delivery, Outcome

LEASE = 30_000


async def announce(store, *deliveries, task_id="t1", tenant=A, expected=0):
    return await store.append(tenant, task_id, expected, [delta()], at=AT, deliveries=deliveries)


def one(name="d1", seq=1, target="hook", due=AT):
    return Announcement(name, seq, target, due)


async def taken(store, limit=10):
    return [delivery.id for delivery in await store.take(limit, LEASE)]


def test_nothing_to_take(run, store):
    assert run(store.take(10, LEASE)) == []


def test_a_delivery_comes_with_all_it_needs(run, store):
    async def case():
        await announce(store, one(due=AT - 5), tenant=B)
        return await store.take(10, LEASE)

    assert run(case()) == [Delivery("d1", B, "t1", 1, "hook", AT - 5, 0)]


def test_it_is_written_with_its_event_or_not_at_all(run, store):
    async def case():
        await announce(store)
        with pytest.raises(StoreError):
            await announce(store, one(), expected=0)
        return await taken(store)

    assert run(case()) == []


def test_not_before_it_is_due(run, store, clock):
    async def case():
        await announce(store, one(due=AT + 100))
        early = await taken(store)
        clock.ms = AT + 100
        return early, await taken(store)

    assert run(case()) == ([], ["d1"])


def test_a_leased_delivery_is_not_taken_again(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        clock.ms = AT + LEASE - 1
        return await taken(store)

    assert run(case()) == []


def test_a_lost_lease_is_taken_again_and_counted(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        clock.ms = AT + LEASE
        return await store.take(10, LEASE)

    (again,) = run(case())
    assert (again.id, again.attempts) == ("d1", 1)


def test_done_is_done(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await store.settle("d1", Outcome.DONE)
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []


def test_retry_is_due_when_it_says(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await store.settle("d1", Outcome.RETRY, AT + 50)
        early = await taken(store)
        clock.ms = AT + 50
        return early, [(d.id, d.attempts, d.due) for d in await store.take(10, LEASE)]

    assert run(case()) == ([], [("d1", 1, AT + 50)])


def test_attempts_add_up(run, store):
    async def case():
        await announce(store, one())
        counts = []
        for _ in range(4):
            (delivery,) = await store.take(10, LEASE)
            counts.append(delivery.attempts)
            await store.settle("d1", Outcome.RETRY, AT)
        return counts

    assert run(case()) == [0, 1, 2, 3]


def test_dead_is_never_taken_again(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await store.settle("d1", Outcome.DEAD)
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []


def test_settling_the_unknown_is_fine(run, store):
    async def case():
        return [await store.settle("nothing", outcome) for outcome in Outcome]

    assert run(case()) == [None] * 3


def test_limit(run, store):
    async def case():
        await announce(store, *(one(f"d{n}", target=f"hook-{n}") for n in range(5)))
        return [len(await taken(store, 2)) for _ in range(4)]

    assert run(case()) == [2, 2, 1, 0]


def test_earliest_due_first(run, store):
    async def case():
        dues = {"d1": AT - 1, "d2": AT - 3, "d3": AT - 2}
        await announce(store, *(one(name, target=name, due=due) for name, due in dues.items()))
        return await taken(store)

    assert run(case()) == ["d2", "d3", "d1"]


def test_one_at_a_time_for_a_task_and_target(run, store):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2), one("d3", 3))
        order = []
        while names := await taken(store):
            order.append(names)
            await store.settle(names[0], Outcome.DONE)
        return order

    assert run(case()) == [["d1"], ["d2"], ["d3"]]


def test_a_retry_holds_back_what_follows(run, store, clock):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await taken(store)
        await store.settle("d1", Outcome.RETRY, AT + 100)
        held = await taken(store)
        clock.ms = AT + 100
        return held, await taken(store)

    assert run(case()) == ([], ["d1"])


def test_a_dead_one_lets_the_next_pass(run, store):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await taken(store)
        await store.settle("d1", Outcome.DEAD)
        return await taken(store)

    assert run(case()) == ["d2"]


def test_order_is_by_seq_not_by_due(run, store):
    async def case():
        await announce(store, one("d1", 1, due=AT + 100), one("d2", 2, due=AT))
        return await taken(store)

    assert run(case()) == []


def test_other_targets_and_tasks_do_not_wait(run, store):
    async def case():
        await announce(store, one("d1", 1, "hook"), one("d2", 1, "other"))
        await announce(store, one("d3", 1, "hook"), task_id="t2")
        return sorted(await taken(store))

    assert run(case()) == ["d1", "d2", "d3"]


def test_two_takers_never_share(run, store):
    async def case():
        await announce(store, *(one(f"d{n:02}", target=f"h{n}") for n in range(40)))
        batches = await asyncio.gather(*(taken(store, 7) for _ in range(8)))
        return sorted(name for batch in batches for name in batch)

    assert run(case()) == [f"d{n:02}" for n in range(40)]


def test_an_id_used_twice_fails_only_its_append(run, store):
    async def case():
        await announce(store, one("d1"))
        twice = announce(store, one("d1"), task_id="t2")
        beside = announce(store, one("d2"), task_id="t3")
        results = await asyncio.gather(twice, beside, return_exceptions=True)
        return results, await store.read(A, "t2")

    (twice, beside), nothing = run(case())
    assert isinstance(twice, StoreError)
    assert (beside, nothing) == (1, [])


def test_many_deliveries_in_one_append(run, store):
    async def case():
        await announce(store, *(one(f"d{n:03}", target=f"h{n}") for n in range(300)))
        return len(await taken(store, 1_000))

    assert run(case()) == 300


def test_settles_made_together(run, store, clock):
    async def case():
        await announce(store, *(one(f"d{n}", target=f"h{n}") for n in range(20)))
        names = await taken(store, 100)
        await asyncio.gather(*(store.settle(name, Outcome.DONE) for name in names))
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []
