"""Forwards only, one at a time, and from wherever the last one was stopped."""

from __future__ import annotations

import asyncio

import pytest

from tests import postgres
from trunkline.errors import Misuse, StoreError
from trunkline.store.postgres.address import DatabaseAddress
from trunkline.store.postgres.database import POSTGRES, migrate, verify
from trunkline.store.postgres.store import PostgresStore
from trunkline.store.records import Delivery
from trunkline.store.statements import Migration


@pytest.fixture
def fresh(postgres_database):
    """A schema of its own name; gives its URL."""
    yield f"{postgres_database.url}?schema=other"
    postgres_database.execute("DROP SCHEMA IF EXISTS other CASCADE")


async def migrated(url, steps=POSTGRES, by=migrate):
    address = DatabaseAddress(url)
    connection = await address.connect("test", seconds=5)
    try:
        return await by(connection, address, steps)
    finally:
        await connection.close()


def test_many_replicas_start_at_once_on_nothing(run, fresh):
    async def case():
        stores = [PostgresStore(fresh) for _ in range(6)]
        await asyncio.gather(*(store.open() for store in stores))
        versions = [store.migrated for store in stores]
        await asyncio.gather(*(store.close() for store in stores))
        return versions

    versions = run(case())
    assert sorted(versions)[0] == (0, POSTGRES[-1].version)
    assert versions.count((0, POSTGRES[-1].version)) == 1


def test_a_second_start_changes_nothing(run, fresh):
    newest = POSTGRES[-1].version
    assert run(migrated(fresh)) == (0, newest)
    assert run(migrated(fresh)) == (newest, newest)


def test_stopped_in_the_middle_it_goes_on(run, fresh, postgres_database):
    newest = POSTGRES[-1].version
    good = Migration(newest + 1, "CREATE TABLE one (x integer)")
    bad = Migration(newest + 2, "CREATE TABLE two (x integer); SELECT 1 / 0")
    with pytest.raises(Exception, match="division"):
        run(migrated(fresh, [*POSTGRES, good, bad]))
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'other' AND tablename IN ('one', 'two')"
    assert postgres_database.execute(tables) == [[("one",)]]
    mended = Migration(newest + 2, "CREATE TABLE two (x integer)")
    assert run(migrated(fresh, [*POSTGRES, good, mended])) == (newest + 1, newest + 2)


def test_deliveries_of_the_first_schema_go_on(run, fresh, opened):
    async def case():
        await migrated(fresh, POSTGRES[:1])
        connection = await DatabaseAddress(fresh).connect("test", seconds=5)
        await connection.execute(
            "INSERT INTO outbox (tenant, task_id, target, seq, id, due, lease_until, attempts) VALUES "
            "('a', 't1', 'hook', 1, 'd1', NULL, 0, 1), ('a', 't1', 'hook', 2, 'd2', 5, 0, 2), "
            "('b', 't2', 'hook', 3, 'd3', 9, 1::bigint << 50, 3), ('b', 't3', 'hook', 4, 'd4', NULL, 0, 4)"
        )
        await connection.close()
        async with opened(fresh) as store:
            assert store.migrated == (1, POSTGRES[-1].version)
            taken = await store.outbox.take(10, 1_000, per_lane=10)
            return taken, [(posted.id, posted.state, posted.attempts) for posted in await store.outbox.list()]

    taken, listed = run(case())
    assert taken == [Delivery("d2", "a", "t1", 2, "hook", "", 5, 2)]
    assert listed == [("d4", "dead", 4), ("d3", "pending", 3), ("d2", "pending", 3), ("d1", "dead", 1)]


def test_a_newer_schema_is_refused(run, fresh):
    newest = POSTGRES[-1].version
    run(migrated(fresh, [*POSTGRES, Migration(newest + 1, "SELECT 1")]))
    with pytest.raises(StoreError, match=f"newer trunkline .schema {newest + 1}, this one knows {newest}"):
        run(PostgresStore(fresh).open())


def test_whoever_only_looks_changes_nothing(run, fresh, postgres_database):
    newest = POSTGRES[-1].version
    with pytest.raises(StoreError, match=r"schema other of .* holds no store"):
        run(PostgresStore(fresh, read_only=True).open())
    assert postgres_database.execute("SELECT to_regnamespace('other')::text") == [[(None,)]]
    run(migrated(fresh))
    later = [*POSTGRES, Migration(newest + 1, "SELECT 1")]
    with pytest.raises(
        StoreError, match=f"schema {newest} .* reads {newest + 1}: run trunkline store migrate"
    ):
        run(migrated(fresh, later, by=verify))
    assert run(migrated(fresh, by=verify)) == (newest, newest)


def test_another_programs_schema_is_refused(run, fresh, postgres_database):
    postgres_database.execute(f'CREATE SCHEMA other AUTHORIZATION "{postgres_database.user}"')
    postgres_database.execute("CREATE TABLE other.theirs (x integer)")
    with pytest.raises(StoreError, match="another program's"):
        run(PostgresStore(fresh).open())


def test_a_schema_that_was_given_to_us_is_enough(run, fresh, postgres_database):
    user = postgres_database.user
    database = postgres_database.admin.rpartition("/")[2]
    postgres_database.execute(f'CREATE SCHEMA other AUTHORIZATION "{user}"')
    postgres_database.execute(f'ALTER DATABASE "{database}" OWNER TO CURRENT_USER')
    try:
        assert run(migrated(fresh))[1] == POSTGRES[-1].version
    finally:
        postgres_database.execute(f'ALTER DATABASE "{database}" OWNER TO "{user}"')


def test_schemas_do_not_mix(run, fresh, postgres_url, opened):
    async def case():
        async with opened(fresh) as here, opened(postgres_url) as there:
            await here.docs.put("a", "kind", "x", b"here", 0)
            return await there.docs.get("a", "kind", "x")

    assert run(case()) is None


@pytest.mark.parametrize("schema", ["", "Upper", "a b", "x;y", "pg'", "x" * 50])
def test_only_plain_names_are_schemas(schema):
    with pytest.raises(Misuse, match="schema="):
        PostgresStore(f"postgresql://localhost/x?schema={schema}")


@pytest.mark.parametrize("login", ["me:p@xyz", "me:p@/#xyz", "me:p#xyz", "me:p/xyz", "me:p?xyz"])
def test_a_login_that_is_not_quoted_is_named_and_not_shown(login):
    with pytest.raises(Misuse, match="write / : @ # [?] % in its login as %2F") as refused:
        PostgresStore(f"postgresql://{login}@db.example/x")
    assert "xyz" not in str(refused.value)


def test_the_wheel_or_the_system_has_a_server():
    assert postgres.why_none() == ""
