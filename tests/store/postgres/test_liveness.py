"""Who lives: seen at once when a process dies, after a while when it only looks connected."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.postgres.conftest import until
from tests.store.postgres.proxy import Proxy
from trunkline.errors import Conflict, StoreError
from trunkline.log.events import Delta
from trunkline.store.postgres import liveness
from trunkline.store.postgres.address import DatabaseAddress
from trunkline.store.records import Orphan

SCRIPT = Path(__file__).with_name("alive.py")
HOUR_S = 3600.0
DAY_MS = 86_400_000
NOW = """
CREATE OR REPLACE FUNCTION trunkline.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {}
"""


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
        process.communicate(timeout=120)


async def settled(store) -> None:
    """Just after a start of the server nobody is called dead."""
    age = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '3.1 s'"
    await until(lambda: store.database._pool.read("*", lambda connection: connection.fetchval(age)))


async def dead(store, node) -> bool:
    return not await store.nodes.alive(node)


def cut(database, store, keep=()) -> None:
    """End the sessions of a store, but for those of these pids."""
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE application_name LIKE '% {store.database._address.process}' "
        f"AND pid <> ALL ('{{{','.join(map(str, keep))}}}'::int[])"
    )


def pids(database, store, role="%") -> list[int]:
    name = f"trunkline {role} {store.database._address.process}"
    (found,) = database.execute(f"SELECT pid FROM pg_stat_activity WHERE application_name LIKE '{name}'")
    return [pid for (pid,) in found]


def unreachable(patch, store) -> None:
    """Keep the liveness session from being dialled again."""

    async def refused():
        raise StoreError("kept away")

    patch.setattr(store.database.liveness, "_live", refused)


SIGNS = liveness.NodeSigns("n1", [""], False, 500, True, True, False, 1_000_000)
TTL_MS = 3000


@pytest.mark.parametrize(
    ("signs", "calm", "alive"),
    [
        # It holds its lock.
        (SIGNS, True, True),
        # It left, whatever else shows.
        (SIGNS._replace(gone=True), True, False),
        (SIGNS._replace(gone=True, locked=False), False, False),
        # Its liveness session was cut, others are there.
        (SIGNS._replace(locked=False, connected=True), True, True),
        # All its sessions are gone: dead if that is so twice.
        (SIGNS._replace(locked=False), True, None),
        # Its sessions cannot be found by their names: only silence tells.
        (SIGNS._replace(locked=False, named=False), True, True),
        (SIGNS._replace(locked=False, named=False, silent_ms=3001), True, False),
        # It looks connected and does not beat.
        (SIGNS._replace(silent_ms=3000), True, True),
        (SIGNS._replace(silent_ms=3001), True, False),
        (SIGNS._replace(silent_ms=3001, locked=False, connected=True), True, False),
        # What cut us may have cut it too.
        (SIGNS._replace(locked=False), False, True),
        (SIGNS._replace(locked=False, silent_ms=3001), False, True),
        # The database has just come up.
        (SIGNS._replace(locked=False, up_ms=2999), True, True),
        (SIGNS._replace(silent_ms=3001, up_ms=2999), True, True),
        (SIGNS._replace(locked=False, up_ms=3000), True, None),
        # The clock of the database was set back behind its start.
        (SIGNS._replace(locked=False, up_ms=-80_000_000), True, None),
    ],
)
def test_what_a_look_tells_of_a_node(signs, calm, alive):
    assert liveness.lives(signs, ttl_ms=TTL_MS, calm=calm) is alive


def test_a_killed_process_is_seen_at_once(run, postgres_url, opened):
    async def case():
        # Not by its silence: that would take an hour.
        async with opened(postgres_url, node_ttl_s=HOUR_S) as store:
            await settled(store)
            with replica(postgres_url, "n1") as process:
                alive = await store.nodes.alive("n1"), await store.nodes.orphans(("",))
                process.kill()
                await until(lambda: store.nodes.orphans(("",)))
                return alive, await store.nodes.orphans(("",)), await store.nodes.alive("n1")

    alive, orphans, after = run(case())
    assert alive == (True, [])
    assert orphans == [Orphan("a", "of-n1", "n1")]
    assert not after


def test_a_node_lives_while_one_of_its_sessions_does(run, postgres_url, postgres_database, opened):
    async def case():
        async with (
            opened(postgres_url, node_ttl_s=HOUR_S) as store,
            opened(postgres_url, node_ttl_s=HOUR_S) as watcher,
        ):
            await settled(watcher)
            await store.nodes.join("n1", ("",))
            await watcher.nodes.join("n2", ("",))
            found, seq = [], 0
            for number in range(20):
                # Either is back when it has done something; no other session of the store is left then.
                await until(lambda: _succeeds(store.log.read("a", "t1")))
                await until(
                    lambda seq=seq: _succeeds(store.log.append("a", "t1", seq, [Delta("a", "x")], at=1))
                )
                seq = (await store.log.read("a", "t1"))[-1].seq
                writer, reader = store.database._writer._connection, store.database._pool._free[-1].connection
                keep = (writer, reader)[number % 2].get_server_pid()
                await asyncio.to_thread(cut, postgres_database, store, [keep])
                found += [await watcher.nodes.alive("n1") for _ in range(3)]
            return found

    assert run(case()) == [True] * 60


async def _succeeds(work) -> bool:
    try:
        await work
    except Conflict:
        # Written before its answer was lost.
        return True
    except StoreError:
        return False
    return True


def test_a_node_without_its_liveness_session_lives(run, postgres_url, postgres_database, opened, monkeypatch):
    async def case():
        async with (
            opened(postgres_url, node_ttl_s=HOUR_S) as store,
            opened(postgres_url, node_ttl_s=HOUR_S) as watcher,
        ):
            await settled(watcher)
            await store.nodes.join("n1", ("",))
            with monkeypatch.context() as patch:
                unreachable(patch, store)
                others = set(await asyncio.to_thread(pids, postgres_database, store))
                others -= set(await asyncio.to_thread(pids, postgres_database, store, "liveness"))
                await asyncio.to_thread(cut, postgres_database, store, others)

                async def is_free():
                    return await _holder(postgres_database) is None

                await until(is_free)
                alone = await watcher.nodes.alive("n1"), await watcher.nodes.orphans(("",))
                # As a node of the version before looks, and one behind a pooler with names of its own.
                await asyncio.to_thread(postgres_database.execute, "UPDATE trunkline.nodes SET process = ''")
                unnamed = await watcher.nodes.alive("n1")
                silence = "UPDATE trunkline.nodes SET beat = beat - 4000000"
                await asyncio.to_thread(postgres_database.execute, silence)
                async with opened(postgres_url, node_ttl_s=HOUR_S) as late:
                    silent = await late.nodes.alive("n1")
            await until(lambda: watcher.nodes.alive("n1"))
            return alone, unnamed, silent

    assert run(case()) == ((True, []), True, False)


@pytest.mark.parametrize("step_ms", [-DAY_MS, DAY_MS])
def test_clock_of_the_database_that_is_set_kills_nobody(
    run, postgres_url, postgres_database, opened, monkeypatch, step_ms
):
    async def case():
        async with (
            opened(postgres_url, node_ttl_s=HOUR_S) as store,
            opened(postgres_url, node_ttl_s=1.0) as watcher,
            opened(postgres_url, node_ttl_s=HOUR_S) as patient,
        ):
            await settled(watcher)
            await store.nodes.join("n1", ("",))
            with monkeypatch.context() as patch:
                # No beat comes between the step and the look.
                unreachable(patch, store)
                assert await patient.nodes.alive("n1") and await watcher.nodes.alive("n1")
                await asyncio.to_thread(postgres_database.execute, NOW.format(step_ms))
                try:
                    assert await patient.nodes.alive("n1")
                    # Silence is noticed after its time.
                    await until(lambda: dead(watcher, "n1"))
                finally:
                    await asyncio.to_thread(postgres_database.execute, NOW.format(0))

    run(case())


def test_whoever_was_cut_itself_calls_nobody_dead(run, postgres_url, opened, monkeypatch):
    async def case():
        async with (
            Proxy(postgres_url) as near,
            Proxy(postgres_url) as far,
            opened(near.url, node_ttl_s=HOUR_S) as watcher,
            opened(far.url, node_ttl_s=HOUR_S) as store,
        ):
            await settled(watcher)
            await watcher.nodes.join("n2", ("",))
            await store.nodes.join("n1", ("",))
            with monkeypatch.context() as patch:
                patch.setattr(liveness, "GRACE_SECONDS", HOUR_S)
                # As a pooler that restarts: one of them is back long before the other.
                unreachable(patch, store)
                near.cut()
                far.close()

                async def looks():
                    found = []
                    while not watcher.database.liveness.lost_lately():
                        found.append(await _alive(watcher, "n1"))
                    return [*found, *[await _alive(watcher, "n1") for _ in range(3)]]

                early = await looks()
                patch.setattr(liveness, "GRACE_SECONDS", 0.0)
                await until(lambda: dead(watcher, "n1"))
            return set(early)

    assert run(case()) <= {True, None}


async def _alive(store, node) -> bool | None:
    try:
        return await store.nodes.alive(node)
    except StoreError:
        return None


def test_a_blocked_loop_is_no_death(run, postgres_url, postgres_database, opened):
    seen = threading.Event()

    def watch():
        beats = set()
        while len(beats) < 4:
            ((found,),) = postgres_database.execute("SELECT beat FROM trunkline.nodes WHERE id = 'n1'")
            beats.add(found)
        seen.set()

    async def case():
        async with opened(postgres_url) as store:
            await store.nodes.join("n1", ("",))
            threading.Thread(target=watch, daemon=True).start()
            # As a skill does that computes without ever awaiting: the node beats on meanwhile.
            return seen.wait(30)

    assert run(case())


def test_a_silent_connection_is_dead_after_its_time(run, postgres_url, opened):
    async def case():
        async with (
            Proxy(postgres_url) as proxy,
            opened(proxy.url) as store,
            opened(postgres_url, node_ttl_s=1.0) as watcher,
        ):
            await settled(watcher)
            await store.nodes.join("n1", ("",))
            await until(lambda: watcher.nodes.alive("n1"))
            proxy.silent = True
            await until(lambda: dead(watcher, "n1"))
            with pytest.raises(StoreError):
                await store.nodes.beat("n1")
            proxy.silent = False
            proxy.cut()
            await until(lambda: watcher.nodes.alive("n1"))

    run(case())


def test_a_lost_session_joins_again_by_itself(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store, opened(postgres_url, node_ttl_s=HOUR_S) as watcher:
            await store.nodes.join("n1", ("",))
            holder = await _holder(postgres_database)
            kill = f"SELECT pg_terminate_backend({holder})"
            await asyncio.to_thread(postgres_database.execute, kill)

            async def taken_again():
                return await _holder(postgres_database) not in (None, holder)

            await until(taken_again)
            await store.nodes.beat("n1")
            return await watcher.nodes.alive("n1")

    assert run(case())


async def _holder(database) -> int | None:
    """Whose session holds the lock of node n1; other servers of the tests have theirs on this database."""
    locks = """
        SELECT pid FROM pg_locks, trunkline.nodes WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
        AND granted AND id = 'n1' AND classid = ((key >> 32) & 4294967295)::oid
        AND objid = (key & 4294967295)::oid
    """
    (found,) = await asyncio.to_thread(database.execute, locks)
    return found[0][0] if found else None


def test_a_restart_of_the_database_kills_nobody(run, server, url, opened, monkeypatch):
    # Each looks from when it is back until the other is, however long that takes.
    monkeypatch.setattr(liveness, "GRACE_SECONDS", HOUR_S)

    async def case():
        async with opened(url) as here, opened(url) as there:
            await here.nodes.join("n1", ("",))
            await there.nodes.join("n2", ("",))
            await asyncio.to_thread(server.crash)
            with pytest.raises(StoreError):
                await here.nodes.beat("n1")
            await asyncio.to_thread(server.start)
            seen = set()
            while not (here.database.liveness.lost_lately() and there.database.liveness.lost_lately()):
                seen |= {await _alive(here, "n2"), await _alive(there, "n1")}
            return seen | {await here.nodes.alive("n2"), await there.nodes.alive("n1")}

    assert run(case()) <= {True, None}


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


def test_a_beat_without_nodes_says_nothing() -> None:
    """The last node may have left while the beat waited for its turn: the thread must outlive that."""
    nowhere = DatabaseAddress("postgresql://nobody@127.0.0.1:9/nothing")
    asyncio.run(liveness.Liveness(nowhere)._beat())
