"""The catalogue: every task once, by its id, and what is wrong beside the logs."""

from __future__ import annotations

from tests.conformance.store.given import AT, A, B, delta, task
from trunkline.store.records import START, OutboxEntry, TaskRef


async def every(store, limit=500):
    found, cursor = [], START
    while (page := await store.maintenance.tasks(cursor, limit))[0]:
        found += page[0]
        cursor = page[1]
    return found


def test_nothing_yet(run, store):
    assert run(every(store)) == []
    assert run(store.maintenance.faults()) == []


def test_every_task_once_by_its_id_whatever_the_page(run, store):
    async def case():
        for name, tenant in (("t3", A), ("t1", B), ("t2", A)):
            await task(store, name, tenant=tenant)
        return [await every(store, limit) for limit in (1, 2, 3, 500)]

    expected = [TaskRef(B, "t1"), TaskRef(A, "t2"), TaskRef(A, "t3")]
    assert run(case()) == [expected] * 4


def test_what_is_sound_has_no_fault(run, store):
    async def case():
        author = await task(store, "t1")
        announced = [OutboxEntry("d1", 3, "hook", "lane", AT)]
        await store.log.append(A, "t1", author.state.seq, [delta()], at=AT, deliveries=announced)
        return await store.maintenance.faults()

    assert run(case()) == []


def test_the_version_of_the_schema_is_told(run, store):
    before, after = store.migrated
    assert 0 <= before <= after
    assert after >= 1
