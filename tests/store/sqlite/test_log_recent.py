"""What a tail is given from memory is what the file holds, wherever it begins and however little is kept."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.conftest import AT, look
from trunkline.errors import Conflict
from trunkline.log.encoding import placed
from trunkline.log.events import Delta
from trunkline.store.records import TailRecord
from trunkline.store.sqlite import log
from trunkline.store.sqlite.store import SqliteStore

TASKS = 7


async def fill(store, appends):
    """Append to some tasks, each time some events; and once in vain."""
    seqs = dict.fromkeys(range(TASKS), 0)
    for number, (task, count) in enumerate(appends):
        events = [Delta("a", f"{number}.{place} " * 20) for place in range(count)]
        await store.log.append("default", f"t{task}", seqs[task], events, at=AT)
        seqs[task] += count
    refused = store.log.append("default", f"t{appends[0][0]}", 0, [Delta("a", "late")], at=AT)
    with pytest.raises(Conflict):
        await refused
    return sum(seqs.values())


async def pages(store, limit):
    found, cursor = [], ""
    while (page := await store.log.tail(cursor, limit))[0]:
        assert len(page[0]) <= limit
        found += page[0]
        cursor = page[1]
    return found


@given(
    appends=st.lists(st.tuples(st.integers(0, TASKS - 1), st.integers(1, 9)), min_size=1, max_size=20),
    limit=st.integers(1, 40),
    kept=st.sampled_from([0, 2_000, 20_000, 8 << 20]),
)
def test_pages_are_those_of_the_file(appends, limit, kept):
    async def case():
        store = SqliteStore(None, now_ms=lambda: AT)
        await store.open()
        # From here on the newest are kept.
        await store.log.tail("")
        count = await fill(store, appends)
        appends_of_file = await look(store, partial(log._tail, after=0, limit=1000))
        whole = [
            (one.id - one.last + recorded.seq, TailRecord(one.tenant, one.task_id, recorded))
            for one in appends_of_file
            for recorded in placed(one.last, one.at, one.events)
        ]
        for after in range(0, count + 1, max(1, count // 5)):
            stored = [one for one in whole if one[0] > after]
            page, cursor = await store.log.tail(str(after), limit)
            assert page == [record for _, record in stored][: len(page)]
            assert cursor == (str(stored[len(page) - 1][0]) if stored else str(after))
            assert bool(page) == bool(stored)
            found, reached, _ = await store.log.tail_appends(str(after), limit)
            assert [(one.task_id, one.last) for one in found] == [
                (one.task_id, one.last) for one in appends_of_file if one.id > after
            ][: len(found)]
            assert found[1:] == [one for one in appends_of_file if one.id > after][1 : len(found)]
            assert sum(len(one.events) for one in found) == int(reached) - after
            assert sum(len(one.events) for one in found[1:]) < limit
        assert len(await pages(store, limit)) == count
        await store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "RECENT_BYTES", kept)
        asyncio.run(case())


def test_what_is_kept_is_not_read_from_the_file(run, store, monkeypatch):
    run(store.log.tail(""))
    count = run(fill(store, [(1, 3), (2, 2)]))
    monkeypatch.setattr(store.database, "read", lambda call: pytest.fail("the file was asked"))
    page, cursor = run(store.log.tail("0"))
    assert [(one.task_id, one.recorded.seq) for one in page] == [
        ("t1", 1), ("t1", 2), ("t1", 3), ("t2", 1), ("t2", 2),
    ]  # fmt: skip
    assert (len(page), cursor) == (count, str(count))


def test_a_new_process_reads_the_file(run, make, store):
    run(fill(store, [(1, 3)]))
    run(store.close())
    again = make()
    run(again.open())
    assert len(run(again.log.tail(""))[0]) == 3
    run(again.close())
