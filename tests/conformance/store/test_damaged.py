"""One log that cannot be read back: it is named, and stands in nobody's way."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, delta, status, task
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.store.check import check
from trunkline.store.records import START, Hint
from trunkline.wire.types import TaskState

DEEP = b'{"kind":"later","x":%b%b}' % (b"[" * 3000, b"]" * 3000)
BODIES = pytest.mark.parametrize(
    "body",
    [b'{"kind":"claimed"}', b'{"kind":"cla', b'{"kind":"\xff"}', DEEP],
    ids=["type", "torn", "utf8", "deep"],
)


async def damaged(store, task_id, body, state=TaskState.WORKING):
    """A task whose last event is as it should not be."""
    author = await task(store, task_id, state=TaskState.WORKING)
    await author.append(*[delta()] * 70)
    await author.append(ev.Unread(body))
    if state is not TaskState.WORKING:
        await author.append(status(state))
    return author


@BODIES
def test_a_read_names_the_task(run, store, body):
    async def case():
        await damaged(store, "t1", body)
        with pytest.raises(StoreError, match="task t1 cannot be read: ") as raised:
            await store.log.read(A, "t1")
        return raised.value.damaged_task

    assert run(case()) == "t1"


@BODIES
def test_news_names_the_task_and_come_without_it(run, store, body):
    async def case():
        await damaged(store, "t1", body)
        await task(store, "t2")
        with pytest.raises(StoreError) as raised:
            await store.log.news([Hint(A, "t2", 0), Hint(A, "t1", 0)])
        return raised.value.damaged_task, {one.task_id for one in await store.log.news([Hint(A, "t2", 0)])}

    assert run(case()) == ("t1", {"t2"})


@BODIES
def test_a_check_names_it(run, store, body):
    async def case():
        await damaged(store, "t1", body)
        await task(store, "t2")
        return await check(store)

    report = run(case())
    assert [fault.task_id for fault in report.problems] == ["t1"]
    assert report.tasks == {"working": 1}


@BODIES
def test_rebuild_keeps_its_head_and_makes_the_others(run, store, body, caplog):
    async def case():
        await damaged(store, "t1", body)
        await task(store, "t2")
        before = await store.heads.get(A, "t1")
        count = await store.heads.rebuild()
        return count, await store.heads.get(A, "t1") == before

    assert run(case()) == (1, True)
    assert "store.damaged task=t1" in caplog.text


@BODIES
def test_compaction_and_pruning_go_on(run, store, body, caplog):
    async def case():
        await damaged(store, "t1", body, TaskState.COMPLETED)
        sound = await task(store, "t2")
        for _ in range(70):
            await sound.append(delta())
        await sound.append(status(TaskState.COMPLETED))
        return await store.maintenance.compact(AT + 100_000), await store.maintenance.prune(AT + 100_000)

    assert run(case()) == (1, 2)


@BODIES
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_tail_goes_past_it_and_names_it(run, store, body, limit, caplog):
    async def case():
        await task(store, "t0")
        await damaged(store, "t1", body)
        await task(store, "t2")
        found, cursor = [], START
        while (page := await store.log.tail(cursor, limit))[0]:
            found += page[0]
            cursor = page[1]
        return found

    found = run(case())
    seqs = [record.recorded.seq for record in found if record.task_id == "t1"]
    assert seqs == list(range(1, 74))
    assert [record.task_id for record in found if isinstance(record.recorded.event, ev.Unread)] == ["t1"]
    assert [record.task_id for record in found[-2:]] == ["t2", "t2"]
    assert "store.damaged task=t1 seq=73" in caplog.text
