"""Parked tasks and children: what wakes them is found, and what is not due is passed over."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, B, ids, listed, message, status, task
from trunkline.log import events as ev
from trunkline.log.fold import NEVER
from trunkline.store.records import TaskRef, Where
from trunkline.wire.types import TaskState

WORKING, ASKING, CANCELED = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.CANCELED


async def parked(store, task_id, wake_at=0, child="", **more):
    author = await task(store, task_id, **more)
    await author.append(ev.Parked(wake_at, child))
    return author


async def due(store):
    return [orphan.task_id for orphan in await store.nodes.orphans(("",))]


def test_a_head_says_what_it_waits_for(run, store):
    async def case():
        author = await parked(store, "t1", AT + 5, "c1")
        found = [await store.heads.get(A, "t1")]
        await author.append(ev.Claimed("n2"), at=AT + 6)
        return [*found, await store.heads.get(A, "t1")]

    asleep, awake = run(case())
    assert (asleep.node, asleep.child, asleep.wake_at) == ("", "c1", AT + 5)
    assert (awake.node, awake.child, awake.wake_at) == ("n2", "", None)


def test_lists_and_rebuilds_know_it_too(run, store):
    async def case():
        await parked(store, "t1")
        before = await listed(store, Where())
        await store.heads.rebuild()
        return before, await listed(store, Where())

    before, after = run(case())
    assert before == after
    assert before[0].wake_at == NEVER


@pytest.mark.parametrize("state", [WORKING, ASKING], ids=str)
def test_a_moment_that_comes(run, store, clock, state):
    async def case():
        await parked(store, "t1", AT + 10, state=state)
        found = []
        for ms in (AT, AT + 9, AT + 10, AT + 11):
            clock.ms = ms
            found.append(await due(store))
        return found

    assert run(case()) == [[], [], ["t1"], ["t1"]]


def test_without_a_moment_it_is_nobodys_orphan(run, store, clock):
    async def case():
        await parked(store, "t1")
        clock.ms = NEVER - 1
        return await due(store)

    assert run(case()) == []


@pytest.mark.parametrize(
    "event",
    [
        ev.FollowUp(message()),
        ev.CancelRequested("ann"),
        ev.ChildEnded("c1", TaskState.FAILED),
        ev.ChildAsked("c1", "q"),
    ],
    ids=str,
)
def test_an_append_wakes_it(run, store, event):
    async def case():
        author = await parked(store, "t1", child="c1")
        await author.append(event)
        return await due(store)

    assert run(case()) == ["t1"]


def test_who_is_claimed_again_is_an_orphan_only_of_the_dead(run, store):
    async def case():
        author = await parked(store, "t1", AT)
        await author.append(ev.Claimed("n2"))
        found = [await due(store)]
        await store.nodes.join("n2", ("",))
        return [*found, await due(store)]

    assert run(case()) == [["t1"], []]


def test_the_oldest_come_first_whether_parked_or_not(run, store):
    async def case():
        for number in (3, 1, 2):
            await task(store, f"r{number}", at=AT + number * 2)
            await parked(store, f"p{number}", AT, at=AT + number * 2 + 1)
        return await due(store)

    assert run(case()) == ["r1", "p1", "r2", "p2", "r3", "p3"]


def test_an_end_or_question_that_a_parent_was_not_told_of(run, store, clock):
    async def case():
        for name, wake_at, state in (
            ("told-by-time", AT, TaskState.COMPLETED),
            ("untold", 0, TaskState.FAILED),
            ("with-deadline", AT + 99, CANCELED),
            ("unasked", 0, ASKING),
            ("still-running", 0, WORKING),
        ):
            await task(store, f"child-of-{name}", state=state, parent=name)
            await parked(store, name, wake_at, f"child-of-{name}")
        await task(store, "stranger", state=TaskState.COMPLETED, tenant=B)
        await parked(store, "of-another-tenant", 0, "stranger")
        found = await store.nodes.rested_children()
        return found, await store.nodes.rested_children(limit=1)

    found, one = run(case())
    # Also where the moment has come: a clock that was set may show it although the task still waits.
    names = ("told-by-time", "unasked", "untold", "with-deadline")
    assert found == [TaskRef(A, f"child-of-{name}") for name in names]
    assert one == found[:1]


def test_children_that_outlive_their_parent(run, store):
    async def case():
        for name, state in (("canceled", CANCELED), ("completed", TaskState.COMPLETED), ("running", WORKING)):
            await task(store, name, state=state)
            for child, how in (("open", WORKING), ("asks", ASKING), ("over", TaskState.FAILED)):
                await task(store, f"{name}-{child}", parent=name, state=how)
        await task(store, "foreign", parent="canceled", tenant=B)
        return await store.nodes.open_children_of_ended(), await store.nodes.open_children_of_ended(1)

    found, one = run(case())
    names = ("canceled-asks", "canceled-open", "completed-asks", "completed-open")
    assert found == [TaskRef(A, name) for name in names]
    assert one == found[:1]


def test_the_children_of_a_task(run, store):
    async def case():
        for number in range(3):
            await task(store, f"c{number}", parent="p", at=AT + number, agent="alpha" if number else "")
        author = await task(store, "other", parent="q")
        await author.append(status(TaskState.COMPLETED))
        await task(store, "foreign", parent="p", tenant=B)
        found = [
            Where(parent="p"),
            Where(parent="p", agents=("alpha",)),
            Where("ann", parent="q"),
            Where(parent=""),
        ]
        return [ids(await listed(store, where)) for where in found]

    assert run(case()) == [["c2", "c1", "c0"], ["c2", "c1"], ["other"], []]
