"""Who lives: seen at once when a process dies, after a while when it only looks connected."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.postgres.conftest import until
from tests.store.postgres.proxy import Proxy
from trunkline.errors import StoreError
from trunkline.store.records import Orphan

SCRIPT = Path(__file__).with_name("alive.py")


@contextmanager
def replica(url: str, node: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, SCRIPT, url, node], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


async def settled(store) -> None:
    """Just after a start of the server nobody is called dead."""
    age = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '2.1 s'"
    await until(lambda: store.database._pool.read("*", lambda connection: connection.fetchval(age)))


def test_a_killed_process_is_seen_at_once(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await settled(store)
            with replica(postgres_url, "n1") as process:
                alive = await store.nodes.alive("n1"), await store.nodes.orphans(("",))
                process.kill()
                took = await until(lambda: store.nodes.orphans(("",)))
                return alive, took, await store.nodes.orphans(("",)), await store.nodes.alive("n1")

    alive, took, orphans, after = run(case())
    assert alive == (True, [])
    assert took < 1.0
    assert orphans == [Orphan("a", "of-n1", "n1")]
    assert not after


def test_a_blocked_loop_is_no_death(run, postgres_url, opened):
    async def watch():
        async with opened(postgres_url, node_ttl_s=1.0) as watcher:
            await until(lambda: watcher.nodes.alive("n1"))
            seen = set()
            deadline = time.monotonic() + 2.0
            while time.monotonic() < deadline:
                seen.add(await watcher.nodes.alive("n1"))
                await asyncio.sleep(0.05)
            return seen

    async def case():
        async with opened(postgres_url) as store:
            await settled(store)
            await store.nodes.join("n1", ("",))
            watching = asyncio.create_task(asyncio.to_thread(asyncio.run, watch()))
            await asyncio.sleep(0)
            # As a skill does that computes without ever awaiting; twice the time to live.
            time.sleep(2.2)  # noqa: ASYNC251
            return await watching

    assert run(case()) == {True}


def test_a_silent_connection_is_dead_after_its_time(run, postgres_url, opened):
    async def case():
        async with (
            Proxy(postgres_url) as proxy,
            opened(proxy.url) as store,
            opened(postgres_url, node_ttl_s=1.0) as watcher,
        ):
            await settled(watcher)
            await store.nodes.join("n1", ("",))
            alive = await watcher.nodes.alive("n1")
            proxy.silent = True

            async def dead():
                return not await watcher.nodes.alive("n1")

            took = await until(dead)
            with pytest.raises(StoreError):
                await store.nodes.beat("n1")
            proxy.silent = False
            proxy.cut()
            return alive, took, await until(lambda: watcher.nodes.alive("n1"))

    alive, took, back = run(case())
    assert alive
    assert 0.3 < took < 2.5
    assert back < 3.0


def test_a_lost_session_joins_again_by_itself(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store, opened(postgres_url) as watcher:
            await store.nodes.join("n1", ("",))
            holder = await _holder(postgres_database)
            kill = f"SELECT pg_terminate_backend({holder})"
            await asyncio.to_thread(postgres_database.execute, kill)

            async def taken_again():
                return await _holder(postgres_database) not in (None, holder)

            await until(taken_again)
            await store.nodes.beat("n1")
            return await watcher.nodes.alive("n1"), store.database.liveness.judging()

    assert run(case()) == (True, False)


async def _holder(database) -> int | None:
    """Whose session holds the lock of node n1; other servers of the tests have theirs on this database."""
    locks = """
        SELECT pid FROM pg_locks, trunkline.nodes WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
        AND granted AND id = 'n1' AND classid = ((key >> 32) & 4294967295)::oid
        AND objid = (key & 4294967295)::oid
    """
    (found,) = await asyncio.to_thread(database.execute, locks)
    return found[0][0] if found else None


def test_a_restart_of_the_database_kills_nobody(run, server, url, opened):
    async def case():
        async with opened(url) as here, opened(url) as there:
            await here.nodes.join("n1", ("",))
            await there.nodes.join("n2", ("",))
            await asyncio.to_thread(server.crash)
            with pytest.raises(StoreError):
                await here.nodes.beat("n1")
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            seen = set()
            deadline = time.monotonic() + 2.8
            while time.monotonic() < deadline:
                try:
                    seen |= {await here.nodes.alive("n2"), await there.nodes.alive("n1")}
                except StoreError:
                    pass
                await asyncio.sleep(0.05)
            return seen

    assert run(case()) == {True}


def test_who_left_is_gone_even_just_after_a_start(run, server, url, opened):
    async def case():
        async with opened(url) as here, opened(url) as there:
            await here.nodes.join("n1", ("",))
            before = await there.nodes.alive("n1")
            await here.nodes.leave("n1")
            return before, await there.nodes.alive("n1")

    assert run(case()) == (True, False)


def test_rows_of_the_long_dead_are_tidied_away(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store:
            await store.nodes.join("n1", ("",))
            await store.nodes.join("n2", ("",))
            await store.nodes.leave("n2")
            await asyncio.to_thread(
                postgres_database.execute, "UPDATE trunkline.nodes SET beat = beat - 7200000 WHERE id = 'n2'"
            )
            await store.maintenance.prune(0)

    run(case())
    assert postgres_database.execute("SELECT id FROM trunkline.nodes ORDER BY id") == [[("n1",)]]
