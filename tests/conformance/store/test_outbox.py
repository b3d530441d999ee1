"""Outbox: written with the event, leased, in order per task and target."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.store.given import AT, A, Author, B, delta, status, submitted, task
from trunkline.errors import StoreError
from trunkline.store.records import (
    Delivery,
    DeliveryOutcome,
    DeliveryRecord,
    DeliveryResult,
    OutboxEntry,
    Shares,
)
from trunkline.wire.types import TaskState

LEASE = 30_000


async def announce(store, *deliveries, task_id="t1", tenant=A, expected=0):
    return await store.log.append(tenant, task_id, expected, [delta()], at=AT, deliveries=deliveries)


def one(name="d1", seq=1, target="hook", lane="host", due=AT):
    return OutboxEntry(name, seq, target, lane, due)


async def take(store, limit=10, per_lane=100, busy=()):
    return await store.outbox.take(limit, LEASE, per_lane=per_lane, busy=busy)


async def taken(store, limit=10, per_lane=100, busy=()):
    return [delivery.id for delivery in await take(store, limit, per_lane, busy)]


async def settle(store, outcome, *names, **more):
    await store.outbox.settle([DeliveryResult(name, outcome, **more) for name in names])


async def shown(store, **which):
    return [posted.id for posted in await store.outbox.list(**which)]


def test_nothing_to_take(run, store):
    assert run(take(store)) == []


def test_a_delivery_comes_with_all_it_needs(run, store):
    async def case():
        await announce(store, one(due=AT - 5), tenant=B)
        return await take(store)

    assert run(case()) == [Delivery("d1", B, "t1", 1, "hook", "host", AT - 5, 0)]


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
        return await take(store)

    (again,) = run(case())
    assert (again.id, again.attempts) == ("d1", 1)


def test_done_is_done(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await settle(store, DeliveryOutcome.DONE, "d1")
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []


def test_retry_is_due_when_it_says(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await settle(store, DeliveryOutcome.RETRY, "d1", next_due=AT + 50)
        early = await taken(store)
        clock.ms = AT + 50
        return early, [(d.id, d.attempts, d.due) for d in await take(store)]

    assert run(case()) == ([], [("d1", 1, AT + 50)])


def test_a_clock_that_was_set_back_prolongs_no_wait(run, store, clock):
    async def case():
        await announce(store, one("retried"), one("fresh", target="other"), one("leased", target="third"))
        assert len(await take(store)) == 3
        await settle(store, DeliveryOutcome.RETRY, "retried", next_due=clock.ms + 9_000)
        await announce(store, one("new", target="new", due=clock.ms), task_id="t2")
        clock.ms -= 86_400_000
        before = await taken(store)
        await store.outbox.rebase(LEASE)
        found = [before, await taken(store)]
        for passed in (8_999, 1, LEASE - 9_000):
            clock.ms += passed
            await store.outbox.rebase(LEASE)
            found.append(sorted(await taken(store)))
        return found

    # The rest of the wait, as long as it was to be, and no longer than that however often it is counted.
    assert run(case()) == [[], ["new"], [], ["retried"], ["fresh", "leased", "new"]]


def test_attempts_add_up(run, store):
    async def case():
        await announce(store, one())
        counts = []
        for _ in range(4):
            (delivery,) = await take(store)
            counts.append(delivery.attempts)
            await settle(store, DeliveryOutcome.RETRY, "d1", next_due=AT)
        return counts

    assert run(case()) == [0, 1, 2, 3]


def test_what_was_not_tried_does_not_count(run, store):
    async def scene():
        await announce(store, one(), one("d2", target="other"))
        await take(store)
        await settle(store, DeliveryOutcome.RETRY, "d1", next_due=AT, untried=True)
        await settle(store, DeliveryOutcome.RETRY, "d2", next_due=AT)
        return {delivery.id: delivery.attempts for delivery in await take(store)}

    assert run(scene()) == {"d1": 0, "d2": 1}


def test_dead_is_never_taken_again(run, store, clock):
    async def case():
        await announce(store, one())
        await taken(store)
        await settle(store, DeliveryOutcome.DEAD, "d1")
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []


def test_settling_the_unknown_is_fine(run, store):
    async def case():
        await announce(store, one())
        await store.outbox.settle([])
        await store.outbox.settle(
            [
                *(DeliveryResult("nothing", outcome) for outcome in DeliveryOutcome),
                DeliveryResult("d1", DeliveryOutcome.DEAD),
            ]
        )
        return [(posted.id, posted.state) for posted in await store.outbox.list()]

    assert run(case()) == [("d1", "dead")]


def test_limit(run, store):
    async def case():
        await announce(store, *(one(f"d{n}", target=f"hook-{n}") for n in range(5)))
        return [len(await taken(store, limit)) for limit in (0, 2, 2, 2, 2)]

    assert run(case()) == [0, 2, 2, 1, 0]


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
            await settle(store, DeliveryOutcome.DONE, *names)
        return order

    assert run(case()) == [["d1"], ["d2"], ["d3"]]


def test_a_retry_holds_back_what_follows(run, store, clock):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await taken(store)
        await settle(store, DeliveryOutcome.RETRY, "d1", next_due=AT + 100)
        held = await taken(store)
        clock.ms = AT + 100
        return held, await taken(store)

    assert run(case()) == ([], ["d1"])


def test_a_dead_one_lets_the_next_pass(run, store):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await taken(store)
        await settle(store, DeliveryOutcome.DEAD, "d1")
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
        return results, await store.log.read(A, "t2")

    (twice, beside), nothing = run(case())
    assert isinstance(twice, StoreError)
    assert (beside, nothing) == (1, [])


def test_many_deliveries_in_one_append(run, store):
    async def case():
        await announce(store, *(one(f"d{n:03}", target=f"h{n}") for n in range(300)))
        return len(await taken(store, 1_000, 1_000))

    assert run(case()) == 300


def test_settles_made_together(run, store, clock):
    async def case():
        await announce(store, *(one(f"d{n}", target=f"h{n}") for n in range(20)))
        names = await taken(store, 100)
        await asyncio.gather(*(settle(store, DeliveryOutcome.DONE, name) for name in names))
        clock.ms = AT + 10 * LEASE
        return await taken(store)

    assert run(case()) == []


# Lanes


def crowded(store, lanes=20, crowd=5_000):
    """One lane full of what is oldest, and others with one each."""
    full = [one(f"full-{n}", target=f"h{n}", lane="full", due=AT - 1_000) for n in range(crowd)]
    others = [one(f"few-{n}", target=f"o{n}", lane=f"few-{n}", due=AT - n) for n in range(lanes)]
    return announce(store, *full, *others)


def test_a_crowded_lane_keeps_nobody_waiting(run, store):
    async def case():
        await crowded(store)
        return [Counter(name.partition("-")[0] for name in await taken(store, 30, 8)) for _ in range(2)]

    assert run(case()) == [{"full": 8, "few": 20}, {"full": 8}]


def test_no_more_of_a_lane_than_asked_for(run, store):
    async def case():
        names = [(lane, n) for lane in "abc" for n in range(5)]
        await announce(store, *(one(f"{lane}{n}", target=f"{lane}{n}", lane=lane) for lane, n in names))
        return [sorted(name[0] for name in await taken(store, 100, 2)) for _ in range(4)]

    assert run(case()) == [list("aabbcc"), list("aabbcc"), list("abc"), []]


def test_the_oldest_of_all_lanes_when_not_all_fit(run, store):
    async def case():
        dues = {"a1": 5, "a2": 40, "a3": 45, "b1": 10, "b2": 20, "c1": 30, "d1": 50}
        await announce(
            store, *(one(name, target=name, lane=name[0], due=AT - 100 + due) for name, due in dues.items())
        )
        return [await taken(store, 3, 2), await taken(store, 3, 2), await taken(store, 3, 2)]

    assert run(case()) == [["a1", "b1", "b2"], ["c1", "a2", "a3"], ["d1"]]


def test_tenants_take_turns_whoever_was_there_first(run, store):
    """2.4: one that names host after host keeps the others waiting for one place, not for all of them."""

    async def case():
        many = [one(f"evil-{n}", target=f"e{n}", lane=f"h{n} evil p", due=AT - 1_000) for n in range(40)]
        few = [one(f"good-{n}", target=f"g{n}", lane=f"h good p{n}", due=AT - n) for n in range(3)]
        await announce(store, *many, *few)
        first = await taken(store, 8)
        shares = Shares({f"h{n} evil p": 1 for n in range(5)}, per_tenant=6)
        second = await store.outbox.take(8, LEASE, per_lane=5, shares=shares)
        return Counter(name[:4] for name in first), Counter(name.id[:4] for name in second)

    assert run(case()) == ({"evil": 5, "good": 3}, {"evil": 1})


def test_a_host_is_given_up_with_all_who_want_it(run, store, clock):
    async def case():
        lanes = ("h", "h t p", "h u q", "hx t p", "g t p", "h.x t p")
        await announce(store, *(one(lane, target=lane, lane=lane, due=AT - 20) for lane in lanes))
        assert await store.outbox.expire("h", AT - 10, "down") == 3
        return await taken(store)

    assert run(case()) == ["g t p", "h.x t p", "hx t p"]


def test_nothing_of_a_busy_lane(run, store):
    async def case():
        await announce(store, *(one(lane, target=lane, lane=lane) for lane in ("a", "b", "", "d\"'é")))
        first = await taken(store, busy=["a", "", "d\"'é", "unknown"])
        return first, await taken(store, busy=["a"]), await taken(store)

    assert run(case()) == (["b"], ["", "d\"'é"], ["a"])


def test_what_waits_for_an_earlier_one_takes_no_place(run, store):
    async def case():
        await announce(store, *(one(f"a{n}", n, due=AT - 10) for n in range(1, 9)), one("b", target="other"))
        await announce(store, one("c", lane="c"), task_id="t2")
        return await taken(store, 2, 2), await taken(store, 2, 2)

    assert run(case()) == (["a1", "b"], ["c"])


def test_a_lane_that_only_waits_keeps_no_other_back(run, store):
    async def case():
        waiting = [one(f"{lane}{n}", n, lane, lane, AT - 10) for lane in "abcd" for n in (1, 2)]
        await announce(store, *waiting)
        first = await taken(store, 4)
        await announce(store, one("z", target="z", lane="z"), task_id="t2")
        return first, await taken(store, 2)

    assert run(case()) == (["a1", "b1", "c1", "d1"], ["z"])


def test_one_row_is_never_with_two_takers_of_many_lanes(run, store):
    async def case():
        await announce(store, *(one(f"d{n:03}", target=f"h{n}", lane=f"l{n % 10}") for n in range(200)))
        found = []
        while batches := [
            batch for batch in await asyncio.gather(*(taken(store, 9, 3) for _ in range(6))) if batch
        ]:
            found += [name for batch in batches for name in batch]
        return sorted(found)

    assert run(case()) == [f"d{n:03}" for n in range(200)]


def test_a_retry_moves_what_follows_behind_it(run, store, clock):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2), one("d3", 3, due=AT + 500), one("x", 2, "other"))
        await taken(store)
        await settle(store, DeliveryOutcome.RETRY, "d1", next_due=AT + 100)
        dues = {posted.id: posted.due for posted in await store.outbox.list()}
        clock.ms = AT + 100
        await settle(store, DeliveryOutcome.DONE, *await taken(store))
        return dues, await taken(store)

    assert run(case()) == ({"d1": AT + 100, "d2": AT + 100, "d3": AT + 500, "x": AT}, ["d2"])


# What became of them


def test_settled_ones_are_shown_with_how_they_ended(run, store, clock):
    async def case():
        await announce(store, *(one(f"d{n}", target=f"h{n}") for n in range(1, 6)))
        await taken(store, 4)
        clock.ms = AT + 7
        settled = [
            DeliveryResult("d1", DeliveryOutcome.DONE, status=200),
            DeliveryResult("d2", DeliveryOutcome.RETRY, AT + 50, 503, "busy"),
            DeliveryResult("d3", DeliveryOutcome.DEAD, 0, 404, "no such page"),
            DeliveryResult("d4", DeliveryOutcome.DROPPED, note="nobody wants it"),
        ]
        await store.outbox.settle(settled)
        return await store.outbox.list()

    def posted(n, *rest):
        return DeliveryRecord(f"d{n}", A, "t1", 1, f"h{n}", "host", *rest)

    assert run(case()) == [
        posted(5, "pending", AT, 0, 0, "", 0),
        posted(4, "dropped", None, 1, 0, "nobody wants it", AT + 7),
        posted(3, "dead", None, 1, 404, "no such page", AT + 7),
        posted(2, "pending", AT + 50, 1, 503, "busy", AT + 7),
        posted(1, "done", None, 1, 200, "", AT + 7),
    ]


def test_dropped_is_never_taken_again_and_lets_the_next_pass(run, store):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await taken(store)
        await settle(store, DeliveryOutcome.DROPPED, "d1")
        return await taken(store)

    assert run(case()) == ["d2"]


@pytest.mark.parametrize("late", DeliveryOutcome, ids=str)
def test_what_comes_late_changes_nothing(run, store, clock, late):
    async def case():
        await announce(store, one())
        await taken(store)
        clock.ms = AT + LEASE
        await taken(store)
        await settle(store, DeliveryOutcome.DONE, "d1", status=200)
        before = await store.outbox.list()
        clock.ms += 1
        await settle(store, late, "d1", status=500, next_due=AT)
        return before == await store.outbox.list(), await taken(store)

    assert run(case()) == (True, [])


def test_a_note_may_hold_anything(run, store):
    async def case():
        await announce(store, one("d1"), one("d2", target="other"))
        await store.outbox.settle(
            [
                DeliveryResult("d1", DeliveryOutcome.DEAD, note="a\0b'é\n"),
                DeliveryResult("d2", DeliveryOutcome.DONE),
            ]
        )
        return [(posted.state, posted.note.replace("\0", "")) for posted in await store.outbox.list()]

    assert run(case()) == [("done", ""), ("dead", "ab'é\n")]


async def mixed(store):
    """Two tasks of each tenant with a delivery of every state."""
    for tenant in (A, B):
        for task_id in ("t1", "t2"):
            name = f"{task_id}-{tenant[-1]}"
            targets = ("dead", "done", "dropped", "pending")
            await announce(
                store, *(one(f"{name}.{t}", target=t) for t in targets), task_id=name, tenant=tenant
            )
            await store.outbox.settle(
                [
                    DeliveryResult(f"{name}.{o.value}", o)
                    for o in DeliveryOutcome
                    if o is not DeliveryOutcome.RETRY
                ]
            )


def test_deliveries_are_listed_by_what_is_asked_for(run, store):
    async def case():
        await mixed(store)
        everything = await shown(store)
        assert everything == sorted(everything, reverse=True)
        assert len(everything) == 16
        for state in ("pending", "done", "dead", "dropped"):
            assert await shown(store, state=state) == [name for name in everything if name.endswith(state)]
            assert await shown(store, task_id="t2-b", state=state) == [f"t2-b.{state}"]
            assert await shown(store, tenant=A, state=state) == [f"t2-a.{state}", f"t1-a.{state}"]
        assert await shown(store, state="unknown") == []
        assert await shown(store, tenant=B) == [name for name in everything if "-b" in name]
        assert await shown(store, task_id="t1-a") == [name for name in everything if name.startswith("t1-a")]
        assert await shown(store, tenant=A, task_id="t1-a") == await shown(store, task_id="t1-a")
        assert await shown(store, tenant=B, task_id="t1-a") == []
        assert await shown(store, task_id="nothing") == []

    run(case())


@pytest.mark.parametrize(
    "which", [{}, {"tenant": A}, {"state": "dead"}, {"state": "pending"}, {"task_id": "t1-b"}]
)
def test_pages_join(run, store, which):
    async def case():
        await mixed(store)
        pages, after = [], ""
        while page := await shown(store, **which, limit=3, after=after):
            assert len(page) <= 3
            pages += page
            after = page[-1]
        return pages, await shown(store, **which)

    pages, whole = run(case())
    assert pages == whole != []


# Giving up, and once more


def test_what_waited_too_long_is_given_up(run, store, clock):
    async def case():
        names = {"old": -10, "older": -20, "leased": -30, "young": 0, "later": 50}
        await announce(store, *(one(name, target=name, due=AT + due) for name, due in names.items()))
        await announce(store, one("elsewhere", lane="other", due=AT - 20), task_id="t2")
        assert await taken(store, 1) == ["leased"]
        count = await store.outbox.expire("host", AT, "down for too long")
        dead = [(posted.id, posted.note, posted.due) for posted in await store.outbox.list(state="dead")]
        return count, dead, sorted(await taken(store)), await store.outbox.expire("host", AT, "")

    told = "down for too long"
    dead = [("older", told, None), ("old", told, None)]
    assert run(case()) == (2, dead, ["elsewhere", "young"], 0)


def test_a_lease_is_safe_whatever_the_moment(run, store):
    async def case():
        await announce(store, one("d1"), one("d2", target="other"))
        await taken(store, 1)
        return await store.outbox.expire("host", AT + 10 * LEASE, ""), await shown(store, state="pending")

    assert run(case()) == (1, ["d1"])


def test_a_great_deal_is_given_up(run, store):
    async def case():
        await announce(store, *(one(f"d{n:04}", target=f"h{n}") for n in range(2_300)))
        return await store.outbox.expire("host", AT + 1, "down"), len(
            await shown(store, state="dead", limit=5_000)
        )

    assert run(case()) == (2_300, 2_300)


@pytest.mark.parametrize(
    "outcome", [DeliveryOutcome.DONE, DeliveryOutcome.DEAD, DeliveryOutcome.DROPPED], ids=str
)
def test_a_settled_one_can_be_sent_again(run, store, clock, outcome):
    async def case():
        await announce(store, one())
        for _ in range(3):
            await taken(store)
            clock.ms += LEASE
        await settle(store, outcome, "d1", status=500, note="why")
        assert await store.outbox.replay("d1")
        (waits,) = await store.outbox.list()
        return (waits.state, waits.due, waits.attempts, waits.status, waits.note), await take(store)

    shown, again = run(case())
    due = AT + 3 * LEASE
    assert shown == ("pending", due, 0, 500, "why")
    assert again == [Delivery("d1", A, "t1", 1, "hook", "host", due, 0)]


def test_only_what_is_settled_can_be_sent_again(run, store):
    async def case():
        await announce(store, one())
        before = await store.outbox.replay("d1")
        await taken(store)
        return (
            before,
            await store.outbox.replay("d1"),
            await store.outbox.replay("nothing"),
            await taken(store),
        )

    assert run(case()) == (False, False, False, [])


def test_what_is_sent_again_goes_before_what_follows(run, store):
    async def case():
        await announce(store, one("d1", 1), one("d2", 2))
        await settle(store, DeliveryOutcome.DEAD, *await taken(store))
        await store.outbox.replay("d1")
        return await taken(store), await taken(store)

    assert run(case()) == (["d1"], [])


# Beside the rest of the store


async def ended(store, task_id, *deliveries):
    author = Author(store, task_id)
    await author.append(submitted(), status(TaskState.COMPLETED))
    await store.log.append(A, task_id, 2, [delta()], at=AT, deliveries=deliveries)


@pytest.mark.parametrize(
    "outcome", [DeliveryOutcome.DONE, DeliveryOutcome.DEAD, DeliveryOutcome.DROPPED], ids=str
)
def test_a_task_is_not_forgotten_before_all_were_told(run, store, outcome):
    async def case():
        await ended(store, "t1", one("d1", 3), one("d2", 3, "other"))
        await ended(store, "t2")
        counts = [await store.maintenance.prune(AT + 1)]
        await settle(store, outcome, "d1")
        counts.append(await store.maintenance.prune(AT + 1))
        assert len(await store.log.read(A, "t1")) == 3
        await settle(store, DeliveryOutcome.DONE, "d2")
        counts.append(await store.maintenance.prune(AT + 1))
        return counts, await shown(store), await store.maintenance.faults()

    assert run(case()) == ([1, 0, 1], [], [])


def test_what_nobody_posts_does_not_keep_a_task_for_ever(run, store):
    async def case():
        days = 86_400_000
        await ended(store, "t1", one("d1", 3))
        await ended(store, "t2", one("d2", 3, due=AT + 2 * days))
        counts = [await store.maintenance.prune(AT + 5 * days)]
        counts.append(await store.maintenance.prune(AT + 5 * days + 1))
        return counts, await shown(store), await store.maintenance.faults()

    assert run(case()) == ([0, 1], ["d2"], [])


def test_what_is_sent_again_is_not_forgotten(run, store):
    async def case():
        await ended(store, "t1", one("d1", 3))
        await settle(store, DeliveryOutcome.DEAD, "d1")
        await store.outbox.replay("d1")
        return await store.maintenance.prune(AT + 1), await taken(store)

    assert run(case()) == (0, ["d1"])


def test_tasks_that_wait_do_not_hide_others_from_a_prune(run, store):
    async def case():
        await asyncio.gather(*(ended(store, f"t{n:03}", one(f"d{n}", 3)) for n in range(250)))
        await asyncio.gather(*(task(store, f"u{n}", state=TaskState.FAILED, at=AT + 1) for n in range(5)))
        return await store.maintenance.prune(AT + 2)

    assert run(case()) == 5


def test_deliveries_of_appends_made_together(run, store):
    async def case():
        appends = [
            store.log.append(
                A,
                f"t{n % 7}",
                n // 7,
                [delta()],
                at=AT,
                deliveries=[one(f"d{n:02}", n // 7 + 1, lane=f"l{n % 7}")],
            )
            for n in range(70)
        ]
        await asyncio.gather(*appends)
        rounds = []
        while names := await taken(store, 100):
            rounds.append(sorted(names))
            await settle(store, DeliveryOutcome.DONE, *names)
        return rounds

    assert run(case()) == [[f"d{n:02}" for n in range(start, start + 7)] for start in range(0, 70, 7)]


def test_what_was_taken_outlives_the_taker(run, bench):
    if not bench.lasts:
        pytest.skip("nothing outlives a store in memory")

    async def case():
        first = bench.make()
        await first.open()
        await announce(first, one("d1"), one("d2", target="other"))
        await taken(first)
        await settle(first, DeliveryOutcome.DONE, "d2", status=200)
        await first.close()
        second = bench.make()
        await second.open()
        early = await taken(second)
        bench.clock.ms += LEASE
        found = early, await taken(second), [posted.state for posted in await second.outbox.list()]
        shared = second.shared
        await second.close()
        return shared, found

    shared, found = run(case())
    # Whoever has a file to himself knows that earlier takers are gone; others wait for the lease.
    assert found == ([] if shared else ["d1"], ["d1"], ["done", "pending"])


def killed(url, lines):
    """What somebody had acknowledged when a kill -9 ended him: announced, settled."""
    told = {"announced": set(), "settled": set()}
    command = [sys.executable, str(Path(__file__).with_name("post.py")), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        heard = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        for line in (*heard, *process.stdout):
            word, name = line.split()
            told[word].add(name)
    return told["announced"], told["settled"]


def test_a_kill_loses_nothing_that_was_announced_or_settled(run, bench):
    if not bench.lasts:
        pytest.skip("nothing outlives a store in memory")
    announced, settled = killed(bench.url, 300)

    async def case():
        store = bench.make()
        await store.open()
        states = {posted.id: posted.state for posted in await store.outbox.list(limit=100_000)}
        bench.clock.ms = AT + LEASE
        again = []
        while names := await taken(store, 1_000, 1_000):
            again += names
            await settle(store, DeliveryOutcome.DONE, *names)
        await store.close()
        return states, again

    states, again = run(case())
    assert announced and settled
    assert announced <= set(states)
    assert {states[name] for name in settled} == {"done"}
    assert {name for name, state in states.items() if state == "pending"} <= set(again)
    assert len(again) == len(set(again))
    assert not settled & set(again)
