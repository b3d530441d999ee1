"""Every kind of damage is found and named; a healthy store, also a busy one, has none."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.conformance.store.given import AT, A, Author, B, delta, status, submitted, task
from tests.store.conftest import change
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.store.check import CheckReport, check
from trunkline.store.records import Fault, OutboxEntry
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

DONE = status(TaskState.COMPLETED)


class Wrapped:
    """A store with something between it and whoever asks for its tasks."""

    def __init__(self, store):
        self._store, self.maintenance = store, self

    def __getattr__(self, name):
        return getattr(self._store, name, None) or getattr(self._store.maintenance, name)


async def fill(store):
    """Two tasks of two tenants."""
    first = Author(store, "t1")
    await first.append(submitted())
    await first.append(status())
    await first.append(delta(), delta())
    await first.append(DONE)
    await task(store, "t2", tenant=B)


def test_what_there_is(run, store):
    async def case():
        assert await check(store) == CheckReport(tasks={}, problems=[])
        await fill(store)
        later = Author(store, "t3")
        await later.append(submitted())
        await later.append(ev.Unread(b'{"kind":"later"}'))
        return await check(store)

    report = run(case())
    assert report.problems == []
    assert report.tasks == {"completed": 1, "working": 1, "submitted": 1}
    assert (report.events, report.unread) == (9, 1)
    assert report.bytes > 500


def test_an_ended_task_may_still_be_given_a_target(run, store):
    async def case():
        await fill(store)
        target = ev.PushTarget("p", "https://example.com/", "1.0")
        late = [ev.PushSet(target, "ann"), ev.PushDeleted("p", "ann")]
        await store.log.append(A, "t1", 5, late, at=AT)
        healthy = await check(store)
        await store.log.append(A, "t1", 7, [delta()], at=AT)
        return healthy, await check(store)

    healthy, damaged = run(case())
    assert (healthy.problems, healthy.events) == ([], 9)
    assert damaged.problems == [Fault("t1", "event 8 comes after its end")]


def test_a_compacted_log_is_a_healthy_one(run, store):
    async def case():
        author = Author(store, "t1")
        await author.append(submitted())
        for _ in range(30):
            await author.append(delta())
        await author.append(DONE)
        assert await store.maintenance.compact(AT + 1) == 1
        return await check(store)

    report = run(case())
    assert (report.problems, report.events) == ([], 3)


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM events WHERE task = 1 AND seq = 2", Fault("t1", "event 3 does not follow 1")),
        ("UPDATE events SET seq = 9 WHERE task = 1 AND seq = 5", Fault("t1", "event 9 does not follow 4")),
        ("DELETE FROM events WHERE task = 1 AND seq = 1", Fault("t1", "event 2 does not follow 0")),
        (
            "UPDATE events SET body = '[{\"kind\":\"claimed\",\"node\":\"n\"}]' WHERE task = 1 AND seq = 1",
            Fault("t1", "does not begin with what was submitted"),
        ),
        (
            "UPDATE events SET body = '[{\"kind\":\"compacted\",\"count\":0}]' WHERE task = 1 AND seq = 2",
            Fault("t1", "event 2 does not follow 1"),
        ),
        (
            "UPDATE events SET body = '[{\"kind\":\"replied\",\"message\":{\"messageId\":\"m\"}}]'"
            " WHERE task = 1 AND seq = 2",
            Fault("t1", "event 3 comes after its end"),
        ),
        ("UPDATE tasks SET state = 2 WHERE num = 1",
         Fault("t1", "its head does not fit its log: state is TaskState.WORKING, not TaskState.COMPLETED")),
        ("UPDATE tasks SET state = NULL, owner = NULL WHERE num = 1", Fault("t1", "has a log but no head")),
        ("DELETE FROM events WHERE task = 1", Fault("t1", "has a head but no events")),
        ("DELETE FROM tasks WHERE num = 1", Fault("", "events of a task that is not there (number 1)")),
        ("INSERT INTO tasks (num, tenant, task_id) VALUES (9, 'a', 't9')",
         Fault("t9", "has neither events nor a head")),
    ],
)  # fmt: skip
def test_each_damage_has_a_name(run, store, statement, fault):
    async def case():
        await fill(store)
        await change(store, lambda connection: connection.execute(statement))
        return await check(store)

    report = run(case())
    assert report.problems == [fault]
    # The other one is counted all the same.
    assert report.tasks.get("working") == 1


def test_a_body_that_is_none(run, store):
    async def case():
        await fill(store)
        await change(store, lambda c: c.execute("UPDATE events SET body = '[{' WHERE task = 1 AND seq = 2"))
        return await check(store)

    assert [one.task_id for one in run(case()).problems] == ["t1"]


def test_a_store_that_goes_away_is_a_problem(run, store):
    class Gone(Wrapped):
        async def tasks(self, cursor, limit=500):
            if cursor:
                raise StoreError("the disk is gone")
            return await self._store.maintenance.tasks(cursor, limit)

    async def case():
        await fill(store)
        return await check(Gone(store))

    assert run(case()).problems == [Fault("", "the store cannot be read to its end: the disk is gone")]


def test_a_delivery_of_nobody(run, store):
    async def case():
        author = await task(store, "t1")
        announced = [OutboxEntry("d1", 3, "hook", "lane", AT)]
        await store.log.append(A, "t1", author.state.seq, [delta()], at=AT, deliveries=announced)
        assert (await check(store)).problems == []
        await change(store, lambda c: c.execute("UPDATE outbox SET task_id = 't9'"))
        return await check(store)

    assert run(case()).problems == [Fault("t9", "a delivery of a task that is not there: d1")]


def test_a_file_with_a_hole_in_it(run, make, path):
    logging.disable()

    async def case():
        store = make()
        await store.open()
        await asyncio.gather(*(task(store, f"t{number}") for number in range(300)))
        await store.close()
        content = bytearray(path.read_bytes())
        # Every other page from the third on is gone; the first holds the schema.
        for start in range(3 * 4096, len(content), 2 * 4096):
            content[start : start + 4096] = bytes(4096)
        path.write_bytes(content)
        reader = SqliteStore(str(path), now_ms=lambda: AT, read_only=True)
        await reader.open()
        report = await check(reader)
        await reader.close()
        return report

    try:
        assert run(case()).problems
    finally:
        logging.disable(logging.NOTSET)


def test_a_busy_store_is_no_damaged_one(run, store, path):
    async def looked_at():
        reader = SqliteStore(str(path), now_ms=lambda: AT, read_only=True)
        await reader.open()
        try:
            return await check(reader)
        finally:
            await reader.close()

    async def case():
        done = asyncio.Event()

        async def work(number):
            author = await task(store, f"t{number}")
            while not done.is_set():
                state = TaskState.INPUT_REQUIRED if author.state.seq % 2 else TaskState.WORKING
                await author.append(delta(), status(state))
            await author.append(DONE)

        works = [asyncio.ensure_future(work(number)) for number in range(8)]
        reports = [await looked_at() for _ in range(20)]
        done.set()
        await asyncio.gather(*works)
        return [*reports, await check(store)]

    reports = run(case())
    assert [report.problems for report in reports] == [[]] * 21
    assert reports[-1].tasks == {"completed": 8}


def test_what_is_pruned_meanwhile_is_no_damage(run, store):
    class Slow(Wrapped):
        async def tasks(self, cursor, limit=500):
            found = await self._store.maintenance.tasks(cursor, limit)
            await self._store.maintenance.prune(AT + 1)
            return found

    async def case():
        await fill(store)
        return await check(Slow(store))

    report = run(case())
    assert (report.problems, report.tasks) == ([], {"working": 1})
