"""A store that was opened to be read only: one moment of what others go on writing."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from tests.conformance.store.given import AT, A, B, delta, status, submitted, task
from trunkline.errors import StoreError
from trunkline.store.backup import export, restore
from trunkline.store.check import check
from trunkline.store.url import store_from_url
from trunkline.wire.types import TaskState


@pytest.fixture
def snapshot(bench):
    if not bench.lasts:
        pytest.skip("nobody else can open a store in memory")

    @asynccontextmanager
    async def opened():
        reader = store_from_url(bench.url, now_ms=bench.clock, read_only=True)
        await reader.open()
        try:
            yield reader
        finally:
            await reader.close()

    return opened


async def exported(store):
    return b"".join([lines async for lines in export(store, "1.2.3")])


async def go_on(store, asked, working):
    """What a server does meanwhile: tasks end, come, and are forgotten."""
    await asked.append(status(TaskState.WORKING), delta())
    await working.append(delta(), status(TaskState.COMPLETED))
    await task(store, "t1")
    await task(store, "t9", tenant=B)
    assert await store.maintenance.prune(AT + 1) == 2


def test_an_export_beside_a_server_is_of_one_moment(run, store, snapshot):
    async def case():
        asked = await task(store, "t2", state=TaskState.INPUT_REQUIRED)
        await task(store, "t3", state=TaskState.COMPLETED, tenant=B)
        working = await task(store, "t5")
        before = await exported(store)
        async with snapshot() as reader:
            lines = export(reader, "1.2.3")
            found = [await anext(lines)]
            await go_on(store, asked, working)
            found += [page async for page in lines]
        assert b"".join(found) == before != await exported(store)
        other = store_from_url("memory:", now_ms=lambda: AT)
        await other.open()
        done = await restore(other, before.splitlines(keepends=True))
        await other.close()
        return done.tasks

    assert run(case()) == 3


def test_a_check_beside_a_server_is_of_one_moment(run, store, snapshot):
    async def case():
        asked = await task(store, "t2", state=TaskState.INPUT_REQUIRED)
        working = await task(store, "t5")
        await task(store, "t7", state=TaskState.FAILED)
        async with snapshot() as reader:
            tasks = reader.maintenance.tasks

            async def busy(*about):
                # Between the list of tasks and their logs, and again between pages.
                found = await tasks(*about)
                if asked.state.seq == 2:
                    await go_on(store, asked, working)
                return found

            reader.maintenance.tasks = busy
            return await check(reader)

    report = run(case())
    assert report.problems == []
    assert report.tasks == {"input-required": 1, "working": 1, "failed": 1}


def test_nothing_can_be_changed_in_it(run, store, snapshot):
    async def case():
        await task(store, "t1", state=TaskState.COMPLETED)
        async with snapshot() as reader:
            with pytest.raises(StoreError, match="not open"):
                await reader.log.append(A, "t2", 0, [submitted()], at=AT)
            for change in (reader.maintenance.prune(AT + 1), reader.docs.put(A, "kind", "id", b"", 0)):
                with pytest.raises(StoreError, match="opened to be read only"):
                    await change
        return len(await store.log.read(A, "t1"))

    assert run(case()) == 2
