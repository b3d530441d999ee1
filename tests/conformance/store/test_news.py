"""News: what named logs hold beyond named seqs, in one call."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, B, deltas, task
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.store.records import Hint
from trunkline.wire.types import TaskState


@pytest.fixture
def three(run, store):
    """Three tasks of one tenant with 2, 5 and 9 events, one of another with 3."""

    async def fill():
        for name, counts in (("t1", [2]), ("t2", [1, 4]), ("t3", [3, 3, 3])):
            seq = 0
            for count in counts:
                seq = await store.log.append(A, name, seq, deltas(count, seq), at=AT + seq)
        await store.log.append(B, "b1", 0, deltas(3), at=AT)

    run(fill())
    return store


def pairs(records):
    return [(record.task_id, record.recorded.seq) for record in records]


def test_no_places(run, three):
    assert run(three.log.news([])) == []


def test_nothing_new(run, three):
    places = [Hint(A, "t1", 2), Hint(A, "t2", 5), Hint(A, "t3", 9)]
    assert run(three.log.news(places)) == []


def test_a_log_that_ends_before_its_place_is_named(run, three):
    async def case():
        with pytest.raises(
            StoreError, match="task t2 cannot be read: it ends at seq 5 and was seen up to 6"
        ) as raised:
            await three.log.news([Hint(A, "t1", 0), Hint(A, "t2", 6), Hint(A, "t3", 9)])
        # Nobody learns that another tenant's is there.
        assert await three.log.news([Hint(B, "t2", 6), Hint(A, "nobody", 6)]) == []
        return raised.value.damaged_task

    assert run(case()) == "t2"


def test_unknown_tasks_and_other_tenants_have_no_news(run, three):
    places = [Hint(A, "nobody", 0), Hint(B, "t1", 0), Hint(A, "b1", 0), Hint("", "t1", 0), Hint("*", "t1", 0)]
    assert run(three.log.news(places)) == []


def test_the_rest_of_each_log_in_order(run, three):
    found = run(three.log.news([Hint(A, "t3", 5), Hint(A, "t1", 2), Hint(A, "t2", 0), Hint(B, "b1", 2)]))
    by_task = {}
    for name, seq in pairs(found):
        by_task.setdefault(name, []).append(seq)
    assert by_task == {"t3": [6, 7, 8, 9], "t2": [1, 2, 3, 4, 5], "b1": [3]}


def test_a_record_is_as_read_gives_it(run, three):
    async def case():
        news = await three.log.news([Hint(A, "t3", 1)])
        return [(record.tenant, record.recorded) for record in news], await three.log.read(A, "t3", 1)

    news, read = run(case())
    assert news == [(A, recorded) for recorded in read]


@pytest.mark.parametrize("limit", [1, 2, 4, 7, 100])
def test_asking_again_from_where_it_ended_gives_everything(run, three, limit):
    async def case():
        seqs = {"t1": 0, "t2": 0, "t3": 0}
        found = []
        while news := await three.log.news([Hint(A, name, seq) for name, seq in seqs.items()], limit):
            assert len(news) <= limit + 5
            for record in news:
                assert record.recorded.seq == seqs[record.task_id] + 1
                seqs[record.task_id] = record.recorded.seq
            found += news
        return len(found)

    assert run(case()) == 16


def test_many_places_with_few_news(run, store):
    async def case():
        for n in range(300):
            await task(store, f"t{n}", state=TaskState.WORKING)
        grown = [7, 133, 299]
        for n in grown:
            await store.log.append(A, f"t{n}", 2, [ev.CancelRequested("ann")], at=AT)
        return pairs(await store.log.news([Hint(A, f"t{n}", 2) for n in range(300)]))

    assert sorted(run(case())) == [("t133", 3), ("t299", 3), ("t7", 3)]
