"""Cooldowns and what is in work keep agents from work, on all replicas; the alarm comes once."""

from __future__ import annotations

import asyncio

import pytest

from tests.fleet.stores import AT, Replicas
from tests.log.samples import opening
from trunkline.errors import Conflict, Duplicate
from trunkline.fleet.routing.choose import Standing
from trunkline.fleet.routing.guards import QUIET_MS, STORM, WINDOW_MS, Guards, Storm
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.base import Store
from trunkline.store.records import Dedup
from trunkline.wire.types import TaskState

HASTY = Standing(agent="a", cooldown_s=30.0)
SLOW = Standing(agent="c", cooldown_s=60.0)
NARROW = Standing(agent="a", concurrency=2)


async def start(store: Store, skill: str, subject: str, at: int, standing: Standing = HASTY) -> bool:
    """Open a task that starts a cooldown; return whether none was on."""
    claim = await Guards(store.heads).claim("t", skill, subject, standing, at)
    if claim is not None:
        await store.log.append("t", f"of{at}{subject}", 0, (opening(),), at=at, claim=claim)
    return claim is not None


def test_a_cooldown_is_of_a_skill_and_a_subject_on_all_replicas(replicas: Replicas) -> None:
    async def work(one: Store, other: Store) -> None:
        there = Guards(other.heads)
        assert await start(one, "triage", "repo#1", AT)
        assert not await start(other, "triage", "repo#1", AT + 29_999)
        for skill, subject, at in (
            ("triage", "repo#2", AT + 1),
            ("review", "repo#1", AT + 1),
            ("triage", "repo#1", AT + 30_000),
        ):
            (free,) = await there.judge("t", skill, subject, [HASTY], at)
            assert not free.excluded
        hasty, patient = await there.judge("t", "triage", "repo#1", [HASTY, Standing(agent="b")], AT + 10_000)
        assert (hasty.excluded, hasty.cools) == ("it cools down for 20.0 s more", True)
        assert not patient.excluded
        # Each agent has its own cooldown since the same start.
        (slow,) = await there.judge("t", "triage", "repo#1", [SLOW], AT + 30_000)
        assert slow.excluded == "it cools down for 30.0 s more"
        (elsewhere,) = await there.judge("south", "triage", "repo#1", [HASTY], AT)
        assert not elsewhere.excluded
        assert await start(other, "triage", "repo#1", AT + 30_000)
        # A replica may be a little behind; one that is hours behind was set right.
        assert not await start(other, "triage", "repo#1", AT + 15_000)
        (free,) = await there.judge("t", "triage", "repo#1", [HASTY], AT - 3_600_000)
        assert not free.excluded
        assert await start(other, "triage", "repo#1", AT - 3_600_000)

    replicas.run(work, 2)


def test_cooldown_is_started_by_one_of_two_replicas(replicas: Replicas) -> None:
    async def work(*stores: Store) -> None:
        # The first cooldown of a subject, and one that replaces another.
        for at in (AT, AT + 30_000):
            claims = [await Guards(store.heads).claim("t", "triage", "s", HASTY, at) for store in stores]
            assert None not in claims
            appends = [
                store.log.append("t", f"{at}.{place}", 0, (opening(),), at=at, claim=claim)
                for place, (store, claim) in enumerate(zip(stores, claims, strict=True))
            ]
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            (refused,) = [one for one in outcomes if isinstance(one, Duplicate)]
            assert outcomes.count(1) == 1 and refused.key == claims[0].key  # type: ignore[union-attr]
            heads = [await stores[0].log.read("t", f"{at}.{place}") for place in range(2)]
            assert sorted(map(len, heads)) == [0, 1]

    replicas.run(work, 2)


def test_refused_append_starts_no_cooldown(replicas: Replicas) -> None:
    async def work(store: Store) -> None:
        made = Guards(store.heads)
        dedup = Dedup("own", b"x", 60_000)
        await store.log.append("t", "first", 0, (opening(),), at=AT, dedup=dedup)
        for task_id, own, error in (("again", dedup, Duplicate), ("first", None, Conflict)):
            claim = await made.claim("t", "triage", "s", HASTY, AT)
            with pytest.raises(error):
                await store.log.append("t", task_id, 0, (opening(),), at=AT, dedup=own, claim=claim)
            (free,) = await made.judge("t", "triage", "s", [HASTY], AT + 1)
            assert not free.excluded

    replicas.run(work)


async def open_task(store: Store, task_id: str, agent: str, state: TaskState | None = None) -> None:
    first = ev.Submitted(opening().message, context_id="c", principal="o", node="n", agent=agent)
    events = (first,) if state is None else (first, ev.Status(state))
    await store.log.append("t", task_id, 0, events, at=AT, head=head_after(State(task_id), events, AT))


def test_what_is_in_work_is_counted_on_all_replicas(replicas: Replicas) -> None:
    async def work(one: Store, other: Store) -> None:
        await open_task(one, "t1", "a")
        await open_task(one, "t2", "b")
        for place, ended in enumerate([TaskState.COMPLETED, TaskState.INPUT_REQUIRED, TaskState.REJECTED]):
            await open_task(one, f"e{place}", "a", ended)
        (free,) = await Guards(other.heads).judge("t", "", "", [NARROW], AT)
        assert not free.excluded
        await open_task(one, "t3", "a", TaskState.WORKING)
        (full,) = await Guards(other.heads).judge("t", "", "", [NARROW], AT)
        assert full.excluded.startswith("2 tasks are in work")
        assert not full.cools

    replicas.run(work, 2)


def test_ten_equal_refusals_make_one_alarm_in_half_an_hour() -> None:
    storm = Storm()
    kind, other = ("t", "unknown_skill", "fly", ""), ("t", "unknown_skill", "swim", "")
    assert [storm.count(kind, AT + n) for n in range(STORM)] == [False] * (STORM - 1) + [True]
    assert not any(storm.count(other, AT + n) for n in range(STORM - 1))
    assert not any(storm.count(kind, AT + n * 1000) for n in range(1, 1700))
    assert storm.count(kind, AT + STORM - 1 + QUIET_MS)
    # By a clock that is set back since.
    assert [storm.count(kind, AT + n) for n in range(STORM)].count(True) == 1


def test_refusals_now_and_then_are_no_storm() -> None:
    storm = Storm()
    step = WINDOW_MS // (STORM - 1) + 1
    assert not any(storm.count(("t",), AT + n * step) for n in range(100))
