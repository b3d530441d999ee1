"""The store in memory: the loop writes, and refusals stay with whoever caused them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.store.conftest import AT, change, look
from trunkline.errors import Conflict, StoreError
from trunkline.log.events import Delta
from trunkline.store.sqlite.store import SqliteStore


@pytest.fixture
def kept(run):
    store = SqliteStore(None, now_ms=lambda: AT)
    run(store.open())
    yield store
    run(store.close())


def add(store, task_id, expected=0):
    return store.log.append("a", task_id, expected, [Delta("a", "x")], at=AT)


def test_it_needs_no_thread(run):
    async def case():
        before = threading.active_count()
        store = SqliteStore(None, now_ms=lambda: AT)
        await store.open()
        await add(store, "t1")
        await store.log.read("a", "t1")
        during = threading.active_count()
        await store.close()
        return during - before

    assert run(case()) == 0


def test_no_promise_is_settled_inside_the_call_that_appends(run, kept):
    async def case():
        first, second = add(kept, "t1"), add(kept, "t1", 1)
        assert not first.done()
        return await asyncio.gather(first, second)

    assert run(case()) == [1, 2]


def test_what_followers_append_is_the_next_group(run, kept):
    groups = []
    submit = kept.database.group_commit._submit
    kept.database.group_commit._submit = lambda group: (groups.append(len(group)), submit(group))

    async def case():
        later = []
        for number in range(5):
            ack = add(kept, f"t{number}")
            ack.then(lambda error, name=f"t{number}": later.append(add(kept, name, 1)))
        await ack
        return [await ack for ack in later]

    assert run(case()) == [2] * 5
    assert groups == [5, 5]


def test_whoever_reads_without_end_leaves_others_a_turn(run, kept):
    async def watch():
        while not await kept.log.read("a", "t1"):
            pass

    async def case():
        await asyncio.gather(watch(), add(kept, "t1"))

    run(case())


def test_a_broken_change_is_rolled_back(run, kept, caplog):
    def broken(connection):
        connection.execute("INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'k', 'half', 1, x'')")
        connection.execute("INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'k', 'half', 1, x'')")

    async def case():
        with pytest.raises(StoreError, match="UNIQUE"):
            await change(kept, broken)
        with pytest.raises(Conflict):
            await kept.docs.put("a", "k", "d", b"", 7)
        return await kept.docs.list("a", "k"), await add(kept, "t1")

    assert run(case()) == ([], 1)


def test_a_broken_look_is_its_own(run, kept, caplog):
    with pytest.raises(StoreError, match="no such table"):
        run(look(kept, lambda connection: connection.execute("SELECT * FROM nowhere")))
    assert run(kept.docs.list("a", "k")) == []


def test_an_opening_that_fails_says_why(run):
    store = SqliteStore(None, now_ms=lambda: AT)
    store.database._transactions._connect = lambda: (_ for _ in ()).throw(OSError("no memory"))
    with pytest.raises(StoreError, match="no memory"):
        run(store.open())
