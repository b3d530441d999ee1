"""What sweeping costs and what it gives back."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest

from tests.conformance.store.given import AT, A, Author, delta, status, submitted, task
from tests.store.conftest import change, look
from trunkline.store.records import Dedup
from trunkline.store.sqlite import store as sqlite_store
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

DAY = 86_400_000
DONE = status(TaskState.COMPLETED)


class Hand:
    ms = AT

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Hand()


@pytest.fixture
def store(run, path, clock):
    made = SqliteStore(str(path), now_ms=clock)
    run(made.open())
    yield made
    run(made.close())


def steps(connection, call):
    """About how many steps of SQLite's machine a call takes."""
    count = 0

    def tick():
        nonlocal count
        count += 10

    connection.set_progress_handler(tick, 10)
    call(connection)
    connection.set_progress_handler(None, 0)
    return count


def test_pruning_costs_nothing_when_all_are_young(run, store):
    async def case():
        for owner in ("ann", "bob"):
            await asyncio.gather(
                *(task(store, f"{owner}{n}", owner=owner, state=TaskState.COMPLETED) for n in range(1_000))
            )
        ended, given = store.database.sql["ended_tasks"], {"before": AT, "agents": None, "tenant": None}
        cost = await look(
            store,
            lambda connection: steps(
                connection, lambda c: c.execute(ended, {**given, "limit": 5000}).fetchall()
            ),
        )
        return cost, await store.maintenance.prune(AT)

    cost, pruned = run(case())
    assert pruned == 0
    assert cost < 1_000


def test_owners_of_all_tenants_are_visited(run, store):
    async def case():
        for tenant in ("a", "b", "c"):
            for owner in ("", "ann", "bob"):
                await task(store, f"{tenant}{owner}", tenant=tenant, owner=owner, state=TaskState.FAILED)
        await store.log.append("a", "no head", 0, [delta()], at=AT)
        return await store.maintenance.prune(AT + 1)

    assert run(case()) == 9


def test_a_long_task_is_dropped_alone():
    found = [(1, 10), (2, 19_995), (3, 5), (4, 30_000), *((number, 1) for number in range(5, 206))]
    portions = sqlite_store._portions(found)
    assert portions[:3] == [[1], [2, 3], [4]]
    assert [len(portion) for portion in portions[3:]] == [100, 100, 1]
    assert sqlite_store._portions([]) == []


def test_more_than_a_page_goes(run, store, monkeypatch):
    monkeypatch.setattr(sqlite_store, "PAGE_ENDED", 7)

    async def case():
        await asyncio.gather(*(task(store, f"t{n}", state=TaskState.COMPLETED) for n in range(30)))
        return await store.maintenance.prune(AT + 1)

    assert run(case()) == 30


async def count(store, table):
    return await look(
        store, lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    )


def test_old_instants_go(run, store, clock):
    async def case():
        assert await store.clock.fire_once("hourly", AT)
        assert await store.clock.fire_once("hourly", AT + DAY)
        clock.ms = AT + 8 * DAY + 1
        await store.maintenance.prune(0)
        assert await count(store, "fires") == 1
        return await store.clock.fire_once("hourly", AT + DAY)

    assert run(case()) is False


def test_keys_and_instants_are_looked_through_now_and_then(run, store, clock):
    async def case():
        await store.maintenance.prune(0)
        await store.log.append(A, "t1", 0, [delta()], at=AT, dedup=Dedup("k", b"", 1_000))
        clock.ms = AT + 2_000
        await store.maintenance.prune(0)
        assert await count(store, "dedup") == 1
        clock.ms = AT + sqlite_store.KEYS_EVERY
        await store.maintenance.prune(0)
        assert await count(store, "dedup") == 0
        # A clock that was set back does not put it off.
        await store.log.append(A, "t2", 0, [delta()], at=AT, dedup=Dedup("k", b"", -DAY))
        clock.ms = AT
        await store.maintenance.prune(0)
        return await count(store, "dedup")

    assert run(case()) == 0


async def bulk(store, tasks=40):
    async def one(number):
        author = Author(store, f"t{number}")
        await author.append(submitted())
        for _ in range(12):
            await author.append(delta("x" * 4_000))
        await author.append(DONE)

    await asyncio.gather(*map(one, range(tasks)))


def test_what_is_freed_is_given_back(run, make, path, store):
    async def case():
        await bulk(store)
        await change(store, lambda connection: None)
        large = await look(store, lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        await store.maintenance.prune(AT + 1)
        return large, await look(store, lambda c: c.execute("PRAGMA page_count").fetchone()[0])

    large, small = run(case())
    assert large > 500
    assert small <= sqlite_store.KEPT_PAGES + 20


def test_a_file_made_without_that_is_swept_all_the_same(run, path, clock):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    store = SqliteStore(str(path), now_ms=clock)

    async def case():
        await store.open()
        await bulk(store)
        assert await store.maintenance.prune(AT + 1) == 40
        free = await look(store, lambda c: c.execute("PRAGMA freelist_count").fetchone()[0])
        await bulk(store)
        await store.close()
        return free

    assert run(case()) > 500
    # The second half fitted into what the first had left.
    assert os.path.getsize(path) < 4_000_000
