"""Cooldowns and what is in work keep agents from work, on all replicas; the alarm comes once."""

from __future__ import annotations

from tests.fleet.stores import AT, Replicas
from tests.log.samples import opening
from trunkline.fleet.journal import Journals
from trunkline.fleet.routing.choose import Standing
from trunkline.fleet.routing.guards import QUIET_MS, STORM, SUBJECTS, WINDOW_MS, Guards, Storm
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.base import Store
from trunkline.wire.types import TaskState

HASTY = Standing(agent="a", cooldown_s=30.0)
NARROW = Standing(agent="a", concurrency=2)


def guards(store: Store) -> Guards:
    return Guards(store.heads, Journals(store.docs))


def test_a_cooldown_is_of_a_skill_and_a_subject_on_all_replicas(replicas: Replicas) -> None:
    async def work(one: Store, other: Store) -> None:
        here, there = guards(one), guards(other)
        assert await here.take("t", "triage", "repo#1", HASTY, AT)
        assert not await there.take("t", "triage", "repo#1", HASTY, AT + 29_999)
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
        (elsewhere,) = await there.judge("south", "triage", "repo#1", [HASTY], AT)
        assert not elsewhere.excluded
        assert await there.take("t", "triage", "repo#1", HASTY, AT + 30_000)
        # A replica may be a little behind; one that is hours behind was set right.
        assert not await there.take("t", "triage", "repo#1", HASTY, AT + 15_000)
        (free,) = await there.judge("t", "triage", "repo#1", [HASTY], AT - 3_600_000)
        assert not free.excluded
        assert await there.take("t", "triage", "repo#1", HASTY, AT - 3_600_000)

    replicas.run(work, 2)


def test_subjects_are_forgotten_when_there_are_too_many() -> None:
    async def work(store: Store) -> None:
        made = guards(store)
        journals = Journals(store.docs)
        for number in range(SUBJECTS // 100 + 2):
            await made.take("t", "triage", str(number), HASTY, AT)
        (kept,) = [await journals.read("t", doc.id) for doc in await store.docs.list("t", "journal")]
        assert len(kept.state) < 64 << 10

    Replicas("memory:").run(work)


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
        (free,) = await guards(other).judge("t", "", "", [NARROW], AT)
        assert not free.excluded
        await open_task(one, "t3", "a", TaskState.WORKING)
        (full,) = await guards(other).judge("t", "", "", [NARROW], AT)
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
