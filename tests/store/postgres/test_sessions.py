"""Reads: never a hang, whatever the database does."""

from __future__ import annotations

import asyncio

import pytest

from trunkline.errors import StoreError
from trunkline.log.events import Delta
from trunkline.store.postgres.sessions import SIZE

AT = 1_800_000_000_000
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'trunkline reader %'"


def sleep(seconds):
    async def call(connection):
        return await connection.fetchval(f"SELECT pg_sleep({seconds})")

    return call


def test_a_lost_session_is_replaced_within_the_read(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store:
            await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            lengths = []
            for _ in range(3):
                await asyncio.gather(*(store.log.read("a", "t1") for _ in range(SIZE)))
                await asyncio.to_thread(postgres_database.execute, KILL)
                lengths.append(len(await store.log.read("a", "t1")))
            return lengths

    assert run(case()) == [1, 1, 1]


def test_a_session_killed_in_the_middle_of_a_change_is_an_error(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store:
            changing = asyncio.create_task(store.database._pool.change(sleep(4)))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(postgres_database.execute, KILL)
            with pytest.raises(StoreError):
                await changing

    run(case())


def test_a_busy_store_says_so_within_a_second(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            held = [asyncio.create_task(store.database._pool.read("*", sleep(1.5))) for _ in range(SIZE)]
            await asyncio.sleep(0.05)
            loop = asyncio.get_running_loop()
            started = loop.time()
            results = await asyncio.gather(
                *(store.log.read("a", "t1") for _ in range(50)), return_exceptions=True
            )
            seconds = loop.time() - started
            # Appends have their own session.
            last = await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            await asyncio.gather(*held)
            return results, seconds, last, len(await store.log.read("a", "t1"))

    results, seconds, last, length = run(case())
    assert all(isinstance(result, StoreError) and "busy" in str(result) for result in results)
    assert seconds < 1.5
    assert (last, length) == (1, 1)


def test_a_session_that_cannot_be_had_does_not_matter_while_another_comes_free(
    run, postgres_url, postgres_database, opened
):
    user = postgres_database.user

    async def case():
        async with opened(postgres_url) as store:
            pool = store.database._pool
            await store.log.read("a", "t1")
            held = asyncio.create_task(pool.read("*", sleep(0.2)))
            await asyncio.sleep(0)
            dialled = asyncio.Event()
            dial = pool._dial

            async def slow():
                dialled.set()
                await held
                return await dial()

            pool._dial = slow
            await asyncio.to_thread(postgres_database.execute, f'ALTER ROLE "{user}" CONNECTION LIMIT 2')
            try:
                found = await store.log.read("a", "t1")
            finally:
                await asyncio.to_thread(postgres_database.execute, f'ALTER ROLE "{user}" CONNECTION LIMIT -1')
            return found, dialled.is_set()

    assert run(case()) == ([], True)


def test_too_many_connections_are_an_error_and_pass(run, postgres_url, postgres_database, opened):
    user = postgres_database.user

    async def case():
        async with opened(postgres_url) as store:
            await asyncio.to_thread(postgres_database.execute, f'ALTER ROLE "{user}" CONNECTION LIMIT 2')
            try:
                with pytest.raises(StoreError, match="too many connections"):
                    await store.log.read("a", "t1")
                last = await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            finally:
                await asyncio.to_thread(postgres_database.execute, f'ALTER ROLE "{user}" CONNECTION LIMIT -1')
            return last, len(await store.log.read("a", "t1"))

    assert run(case()) == (1, 1)


def test_a_cancelled_read_leaves_the_others_alone(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            for _ in range(3 * SIZE):
                reading = asyncio.create_task(store.database._pool.read("*", sleep(5)))
                await asyncio.sleep(0.01)
                reading.cancel()
                await asyncio.wait({reading})
            return len(await store.log.read("a", "t1"))

    assert run(case()) == 1


def test_a_statement_that_fails_keeps_its_session(run, postgres_url, opened):
    async def wrong(connection):
        return await connection.fetchval("SELECT 1 / 0")

    async def case():
        async with opened(postgres_url) as store:
            await store.clock.now()
            before = list(store.database._pool._free)
            with pytest.raises(StoreError, match="division by zero"):
                await store.database._pool.read("*", wrong)
            return store.database._pool._free == before

    assert run(case())


@pytest.mark.parametrize("tenant", ["\0", "b\0trunkline.tenant\0*", "b\0", "*\0"])
def test_a_tenant_cannot_be_forged_by_a_nul(run, postgres_url, opened, tenant):
    async def case():
        async with opened(postgres_url) as store:
            await store.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            with pytest.raises(StoreError):
                await store.log.read(tenant, "t1")
            with pytest.raises(StoreError):
                await store.docs.list(tenant, "kind")
            return [seat.tenant for seat in store.database._pool._free], len(await store.log.read("a", "t1"))

    assert run(case()) == (["*"], 1)
