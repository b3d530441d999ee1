"""Compaction in a file and in memory: fewer rows, the same tasks, and no tail that misses anything."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.store.given import AT, A, Author, B, delta, status, submitted
from tests.log.test_fold import picture
from tests.store.conftest import change, look
from trunkline.errors import Conflict
from trunkline.log import events as ev
from trunkline.log.fold import fold
from trunkline.store import parts
from trunkline.store.sqlite import store as sqlite_store
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

LATER = AT + 1_000_000
DONE = status(TaskState.COMPLETED)


@pytest.fixture(params=["file", "memory"])
def store(request, run, path):
    made = SqliteStore(str(path) if request.param == "file" else None, now_ms=lambda: LATER)
    run(made.open())
    yield made
    run(made.close())


async def streamed(store, task_id, *, appends=20, tenant=A, at=AT, end=DONE):
    """A task that wrote its answer in pieces, and the author who could go on with it."""
    author = Author(store, task_id, tenant)
    await author.append(submitted(), status(), at=at)
    for number in range(appends):
        await author.append(delta(f"{number}"), delta(" "), at=at + number)
    if end is not None:
        await author.append(delta("end"), end, at=at + appends)
    return author


async def rows(store):
    return await look(
        store, lambda connection: connection.execute("SELECT count(*) FROM events").fetchone()[0]
    )


async def whole(store, task_id, tenant=A):
    return await store.log.read(tenant, task_id, limit=100_000)


def told(task_id, events):
    return picture(fold(task_id, events))


def test_a_streamed_answer_takes_three_rows_and_tells_the_same(run, store):
    async def case():
        await streamed(store, "t1")
        await streamed(store, "t2", tenant=B)
        before, head = await whole(store, "t1"), await store.heads.get(A, "t1")
        assert await rows(store) == 44
        assert await store.maintenance.compact(LATER) == 2
        assert await rows(store) == 6
        after = await whole(store, "t1")
        assert told("t1", after) == told("t1", before)
        assert await store.heads.get(A, "t1") == head
        assert [(one.seq, one.at) for one in after] == [
            (1, AT),
            (2, AT),
            (42, AT + 19),
            (43, AT + 20),
            (44, AT + 20),
        ]
        assert [one.seq for one in await store.log.read(A, "t1", after=10, limit=2)] == [42, 43]
        assert await store.heads.rebuild() == 2
        assert await store.heads.get(A, "t1") == head
        with pytest.raises(Conflict) as conflict:
            await store.log.append(A, "t1", 3, [delta()], at=AT)
        assert conflict.value.actual == 44
        assert await store.maintenance.compact(LATER) == 0

    run(case())


def test_only_what_ended_before_shrinks(run, store):
    async def case():
        await streamed(store, "old")
        await streamed(store, "new", at=AT + 500)
        running = await streamed(store, "running", end=None)
        await streamed(store, "asked", end=status(TaskState.INPUT_REQUIRED))
        assert await store.maintenance.compact(AT + 100) == 1
        assert len(await whole(store, "new")) == 44
        assert await store.maintenance.compact(AT + 600) == 1
        assert (len(await whole(store, "running")), len(await whole(store, "asked"))) == (42, 44)
        # Its pieces were passed by long ago; its end brings it up.
        await running.append(DONE, at=AT + 600)
        assert await store.maintenance.compact(AT + 700) == 1
        return len(await whole(store, "running"))

    assert run(case()) == 4


def test_a_short_task_is_not_worth_it(run, store):
    async def case():
        await streamed(store, "t1", appends=6)
        assert await store.maintenance.compact(LATER) == 0
        author = Author(store, "t2")
        await author.append(submitted(), *[delta() for _ in range(70)], DONE)
        return await store.maintenance.compact(LATER), len(await whole(store, "t2"))

    assert run(case()) == (1, 3)


def test_a_large_task_stays_in_pieces_that_can_be_read_one_by_one(run, store, monkeypatch):
    monkeypatch.setattr(sqlite_store, "LARGEST_BYTES", 3_000)

    async def case():
        await streamed(store, "t1", appends=20)
        await streamed(store, "t2", appends=40)
        return (
            await store.maintenance.compact(LATER),
            len(await whole(store, "t1")),
            len(await whole(store, "t2")),
        )

    assert run(case()) == (1, 5, 84)


def test_a_long_task_without_pieces_stays_as_it_is(run, store):
    async def case():
        author = Author(store, "t1")
        await author.append(submitted())
        for _ in range(20):
            await author.append(ev.Claimed("n2"))
        await author.append(DONE)
        return await store.maintenance.compact(LATER), len(await whole(store, "t1"))

    assert run(case()) == (0, 22)


def test_nothing_to_do(run, store):
    assert run(store.maintenance.compact(LATER)) == 0


def test_what_a_newer_version_wrote_stays(run, store):
    later = ev.Unread(b'{"kind":"later","x":[1, 2]}')

    async def case():
        author = await streamed(store, "t1", end=None)
        await author.append(later)
        await author.append(*[delta() for _ in range(9)], DONE)
        before = await whole(store, "t1")
        assert await store.maintenance.compact(LATER) == 1
        after = await whole(store, "t1")
        assert told("t1", after) == told("t1", before)
        return [one for one in after if one.event == later] == [one for one in before if one.event == later]

    assert run(case())


def test_many_tasks_over_several_pages(run, store, monkeypatch):
    monkeypatch.setattr(sqlite_store, "PAGE_ROWS", 7)
    monkeypatch.setattr(parts, "PAGE_SHORTENED", 2)

    async def case():
        await asyncio.gather(*(streamed(store, f"t{number}") for number in range(12)))
        return await store.maintenance.compact(LATER), await rows(store)

    assert run(case()) == (12, 36)


def test_a_crash_before_the_mark_costs_a_second_look_only(run, store):
    async def case():
        await streamed(store, "t1")
        assert await store.maintenance.compact(LATER) == 1
        await change(
            store,
            lambda connection: connection.execute("UPDATE marks SET value = 0 WHERE name = 'compacted'"),
        )
        return await store.maintenance.compact(LATER), await rows(store)

    assert run(case()) == (0, 3)


def test_what_is_damaged_is_named_and_holds_nobody_up(run, store, caplog):
    async def case():
        await streamed(store, "bad")
        await streamed(store, "torn")
        await streamed(store, "good")

        def damage(connection):
            connection.execute('UPDATE events SET body = \'[{"kind":"claimed"}]\' WHERE task = 1 AND seq = 4')
            connection.execute("DELETE FROM events WHERE task = 2 AND seq = 4")

        await change(store, damage)
        return await store.maintenance.compact(LATER)

    assert run(case()) == 1
    assert "store.damaged task=bad reason=ValidationError" in caplog.text
    assert "store.damaged task=torn reason=ValueError" in caplog.text


def test_a_task_that_moved_meanwhile_is_left_alone(run, store):
    async def case():
        await streamed(store, "grown")
        await streamed(store, "pruned")
        found = await store.maintenance._shorter(["pruned", "grown"])
        assert [task.task_id for task in found] == ["grown", "pruned"]
        await store.log.append(A, "grown", 44, [delta("late")], at=LATER)
        await store.maintenance.prune(LATER)
        count = await store.database.transaction(partial(parts._rewrite, found))
        return count, await rows(store)

    assert run(case()) == (0, 0)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_tail_gets_every_event_or_the_range_that_holds_it(chance: random.Random):
    """Whatever was interleaved, and wherever the reader stood when its log shrank."""

    async def case():
        store = SqliteStore(None, now_ms=lambda: LATER)
        await store.open()
        authors = [Author(store, f"t{number}") for number in range(3)]
        for author in authors:
            await author.append(submitted())
        for _ in range(60):
            author = chance.choice(authors)
            await author.append(*[chance.choice((delta(), ev.Claimed("n1")))] * chance.randint(1, 3))
        for author in chance.sample(authors, 2):
            await author.append(delta(), DONE)
        cursor, seen = "", {author.state.task_id: 0 for author in authors}
        turns = chance.randint(0, 20)
        while True:
            page, following = await store.log.tail(cursor, limit=chance.randint(1, 9))
            for record in page:
                event, seq = record.recorded.event, record.recorded.seq
                # Never a gap: what comes begins at most one after what was seen.
                assert seq - ev.span(event) <= seen[record.task_id]
                seen[record.task_id] = max(seq, seen[record.task_id])
            if not page and turns < 0:
                break
            cursor, turns = following, turns - 1
            if turns == 0:
                await store.maintenance.compact(LATER)
        assert seen == {author.state.task_id: author.state.seq for author in authors}
        await store.close()

    asyncio.run(case())


def test_appends_beside_it_lose_nothing(run, store):
    async def case():
        await asyncio.gather(*(streamed(store, f"old{number}") for number in range(60)))
        living = [Author(store, f"new{number}") for number in range(20)]

        async def work(author):
            for _ in range(10):
                await author.append(submitted() if author.state.seq == 0 else delta(), at=LATER)

        count, *_ = await asyncio.gather(store.maintenance.compact(LATER), *map(work, living))
        return count, [len(await whole(store, f"new{number}")) for number in range(20)]

    assert run(case()) == (60, [10] * 20)
