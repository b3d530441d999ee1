"""The writer thread: batches, refusals inside them, and a loop that goes away."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from tests.store.conftest import AT, look
from trunkline.errors import Conflict, StoreError
from trunkline.log.events import Delta


async def batch(store, *calls):
    """Changes that surely meet in one batch: the thread is held until all are queued."""
    gate, started = threading.Event(), threading.Event()
    held = store.database._writer.read(lambda connection: (started.set(), gate.wait(60)))
    await asyncio.to_thread(started.wait, 10)
    queued = [store.database.change(call) for call in calls]
    append = store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
    await asyncio.sleep(0)
    gate.set()
    await held
    return await asyncio.gather(append, *queued, return_exceptions=True)


@pytest.fixture
def kept(store):
    return store


def put(name, rev=0):
    def change(connection):
        found = connection.execute("SELECT count(*) FROM docs WHERE id = ?", (name,)).fetchone()[0]
        if found != rev:
            raise Conflict(found)
        connection.execute(
            "INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'k', ?, 1, x'')", (name,)
        )
        return name

    return change


def broken(connection):
    connection.execute("INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'k', 'half', 1, x'')")
    connection.execute("INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'k', 'half', 1, x'')")


async def names(store):
    return [doc.id for doc in await store.docs.list("a", "k")]


def test_a_refusal_inside_a_batch_is_its_own(run, kept):
    results = run(batch(kept, put("x"), put("x"), put("y")))
    assert [results[0], results[1], results[3]] == [1, "x", "y"]
    assert isinstance(results[2], Conflict)
    assert run(names(kept)) == ["x", "y"]


def test_a_broken_change_is_rolled_back_without_its_neighbours(run, kept, caplog):
    results = run(batch(kept, put("x"), broken, put("x"), put("y")))
    assert [results[0], results[1], results[4]] == [1, "x", "y"]
    assert type(results[2]) is StoreError
    assert isinstance(results[3], Conflict)
    assert run(names(kept)) == ["x", "y"]
    assert "IntegrityError" in caplog.text


def test_a_broken_look_is_its_own(run, kept, caplog):
    with pytest.raises(StoreError, match="no such table"):
        run(look(kept, lambda connection: connection.execute("SELECT * FROM nowhere")))
    assert run(names(kept)) == []


def test_an_unforeseen_error_reaches_its_callers_and_the_thread_lives_on(run, kept, caplog):
    def odd(connection):
        raise RuntimeError("odd")

    results = run(batch(kept, put("x"), odd))
    assert [type(result) for result in results] == [StoreError] * 3
    assert run(names(kept)) == []
    assert run(kept.docs.put("a", "k", "later", b"", 0)) == 1


def test_a_rollback_that_fails_replaces_the_connection(run, make, caplog):
    class Stubborn(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql == "ROLLBACK":
                raise sqlite3.OperationalError("no")
            return super().execute(sql, *values)

    async def case():
        store = make()
        await store.open()
        path = store.database._path
        store.database._transactions._connection.close()
        store.database._transactions._connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Stubborn
        )
        with pytest.raises(StoreError):
            await store.database.change(broken)
        assert await store.docs.put("a", "k", "x", b"", 0) == 1
        replaced = not isinstance(store.database._transactions._connection, Stubborn)
        await store.close()
        return replaced

    assert run(case())


def test_a_file_that_cannot_be_opened_again_fails_until_it_can(run, make, monkeypatch, caplog):
    async def case():
        store = make()
        await store.open()
        await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
        connect = store.database._transactions._connect
        store.database._transactions._connection.close()
        store.database._transactions._connection = None

        def refuse():
            raise sqlite3.OperationalError("unable to open database file")

        store.database._transactions._connect = refuse
        with pytest.raises(StoreError, match="unable to open"):
            await store.log.append("a", "t1", 1, [Delta("a", "x")], at=AT)
        store.database._transactions._connect = connect
        last = await store.log.append("a", "t1", 1, [Delta("a", "x")], at=AT)
        await store.close()
        return last

    assert run(case()) == 2


def test_a_file_without_our_tables_is_not_kept_open(run, make, monkeypatch):
    closed = []

    class Watched(sqlite3.Connection):
        def close(self):
            closed.append(True)
            super().close()

    store = make()
    store.database._transactions._connect = lambda: sqlite3.connect(":memory:", factory=Watched)
    with pytest.raises(StoreError, match="no such table"):
        run(store.open())
    assert closed == [True]


@pytest.mark.parametrize("moment", ["open", "serving"])
def test_a_thread_whose_loop_is_gone_ends(make, moment):
    store = make()
    gate = threading.Event()

    async def abandon():
        if moment == "open":
            connect = store.database._transactions._connect

            def late():
                gate.wait(60)
                return connect()

            store.database._transactions._connect = late
            waiting = store.database._writer.start(store.database.group_commit.done)
            waiting.cancel()
        else:
            await store.database._writer.start(store.database.group_commit.done)
            store.database._writer.read(lambda connection: gate.wait(60)).cancel()

    asyncio.run(abandon())
    gate.set()
    store.database._writer._thread.join(60)
    assert not store.database._writer._thread.is_alive()


def test_an_opening_that_nobody_awaits_any_more(make):
    store = make()

    async def leave():
        waiting = store.database._writer.start(store.database.group_commit.done)
        waiting.cancel()
        await store.database._writer.stop()

    asyncio.run(leave())
    failing = make()
    failing.database._transactions._connect = lambda: 1 / 0

    async def leave_failing():
        failing.database._writer.start(failing.database.group_commit.done).cancel()
        await asyncio.to_thread(failing.database._writer._thread.join, 10)
        await asyncio.sleep(0)

    asyncio.run(leave_failing())


def test_a_caller_that_left_is_passed_over(run, kept):
    async def case():
        gone = asyncio.ensure_future(kept.docs.put("a", "k", "x", b"", 0))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await kept.docs.put("a", "k", "y", b"", 0)
        return await names(kept)

    assert run(case()) == ["x", "y"]


def test_close_when_the_connection_is_lost(run, make):
    async def case():
        store = make()
        await store.open()
        store.database._transactions._connection.close()
        store.database._transactions._connection = None
        await store.close()

    run(case())
