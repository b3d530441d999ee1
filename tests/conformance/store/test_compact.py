"""Compact: what an ended task wrote piece by piece becomes whole; seqs stay as ranges."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, Author, B, delta, message, status, submitted, task
from trunkline.log import events as ev
from trunkline.log.encoding import placed
from trunkline.log.fold import fold
from trunkline.store.records import START, Hint, Where
from trunkline.wire.types import TaskState


async def written(store, task_id, *, tenant=A, pieces=30, state=TaskState.COMPLETED, at=AT):
    """A task that wrote an answer, an append per piece, and then ended."""
    author = await task(store, task_id, tenant=tenant, at=at)
    for number in range(pieces):
        await author.append(delta(f"{number} "), at=at)
    await author.append(status(state), at=at)
    return author


async def all_of(store, task_id, tenant=A):
    found, after = [], 0
    while page := await store.log.read(tenant, task_id, after, 7):
        found += page
        after = page[-1].seq
    return found


async def tailed(store, limit=1000):
    found, cursor = [], START
    while (page := await store.log.tail(cursor, limit))[0]:
        found += page[0]
        cursor = page[1]
    return found


def test_nothing_to_compact(run, store):
    assert run(store.maintenance.compact(AT + 10**9)) == 0


def test_an_ended_task_shrinks_and_folds_the_same(run, store):
    async def case():
        await written(store, "t1")
        before = await all_of(store, "t1")
        count = await store.maintenance.compact(AT + 1)
        return before, count, await all_of(store, "t1")

    before, count, after = run(case())
    assert count == 1
    assert len(after) < len(before) / 3
    assert after[-1].seq == before[-1].seq
    assert fold("t1", after).task() == fold("t1", before).task()


def test_ranges_leave_no_hole(run, store):
    async def case():
        await written(store, "t1")
        await store.maintenance.compact(AT + 1)
        return await all_of(store, "t1")

    seq = 0
    for recorded in run(case()):
        assert recorded.seq - ev.span(recorded.event) == seq
        seq = recorded.seq
    assert seq == 33


def test_only_what_ended_before(run, store):
    async def case():
        await written(store, "old")
        await written(store, "new", at=AT + 100)
        await written(store, "open", state=TaskState.INPUT_REQUIRED)
        count = await store.maintenance.compact(AT + 100)
        lengths = [len(await all_of(store, name)) for name in ("old", "new", "open")]
        return count, lengths[0] < 10, lengths[1:]

    assert run(case()) == (1, True, [33, 33])


def test_what_came_later_is_compacted_the_next_time(run, store):
    async def case():
        await written(store, "t1")
        first = await store.maintenance.compact(AT + 1)
        await written(store, "t2", at=AT + 10)
        return first, await store.maintenance.compact(AT + 11), await store.maintenance.compact(AT + 11)

    assert run(case()) == (1, 1, 0)


def test_heads_and_tenants_stay(run, store):
    async def case():
        await written(store, "t1", tenant=B)
        before = await store.heads.get(B, "t1"), await store.heads.count(B, Where())
        await store.maintenance.compact(AT + 1)
        return before == (await store.heads.get(B, "t1"), 1), await store.log.read(A, "t1")

    assert run(case()) == (True, [])


def test_a_reader_in_the_middle_gets_the_whole(run, store):
    async def case():
        await written(store, "t1")
        before = fold("t1", await all_of(store, "t1"))
        some = (await store.log.read(A, "t1", 0, 12))[:12]
        await store.maintenance.compact(AT + 1)
        rest = await store.log.read(A, "t1", some[-1].seq)
        news = await store.log.news([Hint(A, "t1", some[-1].seq)])
        return before, fold("t1", some + rest), [record.recorded for record in news] == rest

    before, resumed, same = run(case())
    assert resumed.task() == before.task()
    assert same


def test_kinds_of_newer_versions_stay(run, store):
    async def case():
        author = await task(store, "t1")
        unread = ev.Unread(b'{"kind":"tomorrow","x":[1,2]}')
        for _ in range(20):
            await author.append(delta())
        await author.append(delta(), unread, delta())
        await author.append(status(TaskState.COMPLETED))
        await store.maintenance.compact(AT + 1)
        return unread, await all_of(store, "t1")

    unread, found = run(case())
    assert [recorded.seq for recorded in found if recorded.event == unread] == [24]
    assert len(found) < 10


def test_a_tail_finds_the_last_of_every_task(run, store):
    async def case():
        for name in ("t1", "t2", "t3"):
            await written(store, name)
        _, cursor = await store.log.tail(START, 40)
        await store.maintenance.compact(AT + 1)
        after, end = await store.log.tail(cursor, 1000)
        appends, same, _ = await store.log.tail_appends(cursor, 1000)
        assert same == end
        assert [one.recorded for one in after] == [
            one for append in appends for one in placed(append.last, append.at, append.events)
        ]
        return await tailed(store, 3), {record.task_id: record.recorded.seq for record in after}

    records, lasts = run(case())
    seqs = {}
    for record in records:
        recorded = record.recorded
        assert recorded.seq - ev.span(recorded.event) == seqs.get(record.task_id, 0)
        seqs[record.task_id] = recorded.seq
    assert seqs == {"t1": 33, "t2": 33, "t3": 33}
    assert lasts["t2"] == lasts["t3"] == 33


def test_rebuild_and_prune_after_it(run, store):
    async def case():
        await written(store, "t1")
        head = await store.heads.get(A, "t1")
        await store.maintenance.compact(AT + 1)
        assert await store.heads.rebuild() == 1
        same = head == await store.heads.get(A, "t1")
        return same, await store.maintenance.prune(AT + 1), await all_of(store, "t1")

    assert run(case()) == (True, 1, [])


def test_a_reply_has_nothing_to_gain(run, store):
    async def case():
        author = await task(store, "t1")
        await author.append(ev.Replied(message()))
        return await store.maintenance.compact(AT + 1), len(await all_of(store, "t1"))

    assert run(case()) == (0, 3)


@pytest.mark.parametrize("place", range(0, 34, 5))
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_over_ranges_join_up(run, store, place, limit):
    async def case():
        await written(store, "t1")
        await store.maintenance.compact(AT + 1)
        found, after = [], place
        while page := await store.log.read(A, "t1", after, limit):
            assert len(page) <= limit
            found += page
            after = page[-1].seq
        return [recorded.seq for recorded in found], [one.seq for one in await store.log.read(A, "t1", place)]

    found, whole = run(case())
    assert found == whole
    assert whole[-1] == 33


def test_a_page_is_short_at_the_end_of_a_log_only(run, store):
    async def case():
        author = Author(store, "t1")
        await author.append(submitted(), status())
        for _ in range(60):
            await author.append(delta())
        await author.append(ev.Claimed("n2"))
        for _ in range(60):
            await author.append(delta())
        await author.append(delta(), status(TaskState.COMPLETED))
        assert await store.maintenance.compact(AT + 10**6) == 1
        events = await store.log.read(A, "t1", limit=1000)
        assert [one.seq for one in events] == [1, 2, 62, 63, 123, 124, 125]
        for after in range(125):
            left = [one for one in events if one.seq > after]
            for limit in (1, 2, 3, 5, 7, 50):
                assert await store.log.read(A, "t1", after=after, limit=limit) == left[:limit]

    run(case())
