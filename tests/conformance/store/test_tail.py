"""Tail: the whole log in commit order, never skipping."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas, task
from trunkline.errors import StoreError
from trunkline.log.encoding import placed
from trunkline.store.records import START, TailRecord
from trunkline.wire.types import TaskState


async def all_of(store, cursor=START, limit=7):
    found = []
    while True:
        page, cursor = await store.log.tail(cursor, limit)
        if not page:
            return found, cursor
        found += page


def test_an_empty_log(run, store):
    records, cursor = run(store.log.tail(START))
    assert records == []
    assert cursor == START


def test_a_record_carries_its_tenant_and_task(run, store):
    async def case():
        await store.log.append(B, "t1", 0, [delta("x")], at=5)
        return (await store.log.tail(START))[0][0]

    record = run(case())
    assert (record.tenant, record.task_id) == (B, "t1")
    assert (record.recorded.seq, record.recorded.at, record.recorded.event) == (1, 5, delta("x"))


def test_order_is_the_order_of_commits(run, store):
    async def case():
        for name in ("t3", "t1", "t2"):
            await store.log.append(A, name, 0, [delta(name)], at=AT)
        return [record.task_id for record in (await all_of(store))[0]]

    assert run(case()) == ["t3", "t1", "t2"]


def test_all_tenants_are_in_it(run, store):
    async def case():
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        await store.log.append(B, "t2", 0, [delta()], at=AT)
        return {record.tenant for record in (await all_of(store))[0]}

    assert run(case()) == {A, B}


def test_pages_neither_skip_nor_repeat(run, store):
    async def case():
        await asyncio.gather(*(store.log.append(A, f"t{n}", 0, deltas(5), at=AT) for n in range(20)))
        found, _ = await all_of(store)
        return [(record.task_id, record.recorded.seq) for record in found]

    pairs = run(case())
    assert len(pairs) == len(set(pairs)) == 100


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9, 100])
def test_a_page_may_end_inside_an_append(run, store, limit):
    async def case():
        for n, count in enumerate((1, 4, 2, 5)):
            await store.log.append(A, f"t{n}", 0, deltas(count), at=AT)
        found, cursor = [], START
        while page := await store.log.tail(cursor, limit):
            if not page[0]:
                return found
            assert len(page[0]) <= limit
            found += page[0]
            cursor = page[1]

    pairs = [(record.task_id, record.recorded.seq) for record in run(case())]
    assert pairs == [(f"t{n}", seq + 1) for n, count in enumerate((1, 4, 2, 5)) for seq in range(count)]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_page_of_appends_cuts_none_of_them(run, store, limit):
    async def case():
        for n, count in enumerate((1, 4, 2, 5)):
            await store.log.append(A, f"t{n}", 0, deltas(count), at=AT + n)
        found, cursor = [], START
        while page := await store.log.tail_appends(cursor, limit):
            if not page[0]:
                return found
            found += page[0]
            cursor = page[1]

    assert [(one.tenant, one.task_id, one.last, one.at, one.events) for one in run(case())] == [
        (A, f"t{n}", count, AT + n, deltas(count)) for n, count in enumerate((1, 4, 2, 5))
    ]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_page_of_appends_without_more_is_the_last(run, store, limit):
    async def case():
        for n, count in enumerate((1, 4, 2, 5)):
            await store.log.append(A, f"t{n}", 0, deltas(count), at=AT + n)
        # The first pages are read from the file of a store that keeps the newest at hand, later ones are not.
        for since in range(2):
            await store.log.append(A, "t9", since, [delta()], at=AT)
            found, cursor, more = [], START, True
            while more:
                page, cursor, more = await store.log.tail_appends(cursor, limit)
                found += page
            assert sum(len(one.events) for one in found) == 13 + since
        assert await store.log.tail_appends(cursor, limit) == ([], cursor, False)
        await store.log.append(A, "t9", 2, [delta()], at=AT)
        # What is at hand is known to be all: nobody has to ask once more.
        assert (await store.log.tail_appends(cursor, 2))[2] is False

    run(case())


def test_a_cursor_inside_an_append_leads_to_the_rest_of_it(run, store):
    async def case():
        await store.log.append(A, "t1", 0, deltas(5), at=AT)
        await store.log.append(A, "t2", 0, deltas(2), at=AT)
        for behind in range(1, 7):
            _, cursor = await store.log.tail(START, behind)
            records, end = await store.log.tail(cursor)
            appends, same, _ = await store.log.tail_appends(cursor)
            assert same == end
            assert [
                TailRecord(one.tenant, one.task_id, recorded)
                for one in appends
                for recorded in placed(one.last, one.at, one.events)
            ] == records
            assert len(records) == 7 - behind

    run(case())


def test_holes_left_by_a_prune_end_no_tail(run, store):
    async def case():
        for n in range(30):
            ended = TaskState.WORKING if n % 10 == 9 else TaskState.COMPLETED
            await task(store, f"t{n}", state=ended)
        assert await store.maintenance.prune(AT + 1) == 27
        return [record.task_id for record in (await all_of(store, limit=2))[0]]

    assert run(case()) == ["t9", "t9", "t19", "t19", "t29", "t29"]


def test_within_a_task_seq_grows(run, store):
    async def case():
        appends = [store.log.append(A, f"t{n % 3}", n // 3, [delta()], at=AT) for n in range(60)]
        await asyncio.gather(*appends)
        return (await all_of(store))[0]

    seen = {}
    for record in run(case()):
        assert record.recorded.seq == seen.get(record.task_id, 0) + 1
        seen[record.task_id] = record.recorded.seq


def test_at_the_end_the_cursor_stays(run, store):
    async def case():
        await store.log.append(A, "t1", 0, deltas(3), at=AT)
        _, cursor = await store.log.tail(START)
        return cursor, await store.log.tail(cursor)

    cursor, (records, again) = run(case())
    assert records == []
    assert again == cursor


def test_news_follow_the_cursor(run, store):
    async def case():
        await store.log.append(A, "t1", 0, deltas(3), at=AT)
        _, cursor = await store.log.tail(START)
        await store.log.append(A, "t1", 3, [delta("news")], at=AT)
        return (await store.log.tail(cursor))[0]

    (record,) = run(case())
    assert record.recorded.event == delta("news")


def test_a_tail_beside_writers_misses_nothing(run, store):
    async def write(name):
        for seq in range(40):
            await store.log.append(A, name, seq, [delta()], at=AT)

    async def follow():
        found, cursor = [], START
        while len(found) < 320:
            page, cursor = await store.log.tail(cursor, 50)
            found += page
        return found

    async def case():
        _, found = await asyncio.gather(asyncio.gather(*(write(f"t{n}") for n in range(8))), follow())
        return [(record.task_id, record.recorded.seq) for record in found]

    pairs = run(case())
    assert len(set(pairs)) == len(pairs) == 320


def test_refused_appends_are_not_in_it(run, store):
    async def case():
        rivals = [store.log.append(A, "t1", 0, [delta()], at=AT) for _ in range(9)]
        await asyncio.gather(*rivals, return_exceptions=True)
        return len((await all_of(store))[0])

    assert run(case()) == 1


def test_a_cursor_survives_a_prune_of_everything(run, store):
    async def case():
        await task(store, "t1", state=TaskState.COMPLETED)
        _, cursor = await store.log.tail(START)
        assert await store.maintenance.prune(AT + 1) == 1
        await store.log.append(A, "t2", 0, [delta("after")], at=AT)
        return [record.task_id for record in (await store.log.tail(cursor))[0]]

    assert run(case()) == ["t2"]


def test_a_cursor_survives_a_prune_and_a_restart(run, bench):
    if not bench.lasts:
        pytest.skip("nothing outlives a store in memory")

    async def case():
        store = bench.make()
        await store.open()
        await task(store, "t1", state=TaskState.COMPLETED)
        _, cursor = await store.log.tail(START)
        await store.maintenance.prune(AT + 1)
        await store.close()
        store = bench.make()
        await store.open()
        await store.log.append(A, "t2", 0, [delta("after")], at=AT)
        records, _ = await store.log.tail(cursor)
        await store.close()
        return [record.task_id for record in records]

    assert run(case()) == ["t2"]


def test_a_cursor_from_elsewhere_is_refused(run, store):
    with pytest.raises(StoreError, match="cursor"):
        run(store.log.tail("no-cursor"))


def test_the_end_is_behind_what_there_is_and_before_what_comes(run, store):
    async def case():
        empty = await store.log.end()
        first = await task(store, "t1")
        # Another transaction may keep what was written from a tail for a moment.
        while len((await store.log.tail(START))[0]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        end = await store.log.end()
        after_end, _ = await store.log.tail(end)
        await first.append(delta())
        await task(store, "t2", tenant=B)
        while len(page := (await store.log.tail(end))[0]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return [one.task_id for one in (await store.log.tail(empty))[0]], after_end, page

    whole, after_end, page = run(case())
    assert (whole, after_end) == (["t1"] * 3 + ["t2"] * 2, [])
    assert [(one.task_id, one.recorded.seq) for one in page] == [("t1", 3), ("t2", 1), ("t2", 2)]
