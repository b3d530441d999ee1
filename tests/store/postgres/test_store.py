"""What only PostgreSQL has: row-level tenancy, its own time, a login that must not leak."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
import traceback
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests import postgres
from trunkline import clock
from trunkline.clock import now_ms
from trunkline.errors import Duplicate, StoreError
from trunkline.log.events import Delta, Submitted
from trunkline.log.head import Head
from trunkline.store.check import check
from trunkline.store.postgres import sessions
from trunkline.store.postgres import store as postgres_store
from trunkline.store.postgres.address import EVERY_TENANT
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.store import PostgresStore
from trunkline.store.records import Dedup, DeliveryOutcome, DeliveryResult, Fault, OutboxEntry, TaskRef
from trunkline.store.url import store_from_url
from trunkline.wire.types import Message, TaskState

PLANTED = "planted-5f0c1e"
TABLES = ("events", "tasks", "dedup", "outbox", "docs")


async def fill(store, tenant):
    head = Head(f"t-{tenant}", "c", "ann", TaskState.WORKING, 1, 1, "n")
    await store.log.append(
        tenant, f"t-{tenant}", 0, [Submitted(Message("m"), "c", "ann", "n")], at=1, head=head,
        dedup=Dedup("k", b"", 1 << 40), deliveries=[OutboxEntry(f"d-{tenant}", 1, "hook", "lane", 1)],
    )  # fmt: skip
    await store.docs.put(tenant, "kind", "x", b"body", 0)


@pytest.mark.parametrize("setting", ["a", "b", "", "nobody", None])
def test_a_session_of_one_tenant_sees_no_other(run, postgres_url, opened, setting):
    async def case():
        async with opened(postgres_url) as store:
            await fill(store, "a")
            await fill(store, "b")
        connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "trunkline"})
        if setting is not None:
            await connection.execute(f"SET trunkline.tenant = '{setting}'")
        partitions = [f"events_{n:02}" for n in range(16)]
        found = [
            {row[0] for row in await connection.fetch(f"SELECT tenant FROM {table}")}
            for table in (*TABLES, *partitions)
        ]
        await connection.close()
        return found

    own = {setting} if setting in ("a", "b") else set()
    found = run(case())
    assert found[:5] == [own] * 5
    assert set().union(*found) == own


def test_a_query_of_ours_that_forgets_its_tenant_finds_nothing_of_another(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await fill(store, "a")
            await fill(store, "b")
            queries = [f"SELECT tenant FROM {table}" for table in TABLES]
            return [
                {
                    row[0]
                    for row in await store.database.read(tenant, lambda each, text=text: each.fetch(text))
                }
                for tenant in ("a", "b", "nobody")
                for text in queries
            ]

    assert run(case()) == [{"a"}] * 5 + [{"b"}] * 5 + [set()] * 5


def test_every_table_with_a_tenant_is_protected(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url):
            pass

    run(case())
    ((open_tables,),) = (
        postgres_database.execute(
            "SELECT count(*) FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid "
            "WHERE c.relnamespace = 'trunkline'::regnamespace AND a.attname = 'tenant' "
            "AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)"
        )[0],
    )
    assert open_tables == (0,)


def test_a_tenant_cannot_write_for_another(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await fill(store, "a")
        connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "trunkline"})
        await connection.execute("SET trunkline.tenant = 'b'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(
                "INSERT INTO docs (tenant, kind, id, rev, body) VALUES ('a', 'kind', 'y', 1, '')"
            )
        changed = await connection.execute("UPDATE docs SET body = 'stolen'")
        await connection.close()
        return changed

    assert run(case()) == "UPDATE 0"


def test_a_tenant_named_like_the_master_key_has_only_its_own(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await fill(store, "a")
            await fill(store, "*")
            return (
                await store.log.read("*", "t-a"),
                await store.heads.get("*", "t-a"),
                len(await store.docs.list("*", "kind")),
                len(await store.log.read("*", "t-*")),
            )

    assert run(case()) == ([], None, 1, 1)


def test_time_is_the_databases(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as store:
            return await store.clock.now()

    ours = run(case())
    theirs = postgres_database.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000")[0][0][0]
    assert abs(theirs - ours) < 5_000


@pytest.mark.parametrize(
    "place",
    [
        "127.0.0.1:1/x",
        "nowhere.invalid/x",
        "127.0.0.1:1/x?sslmode=require",
        "127.0.0.1:1/x?sslmode=nonsense",
        "127.0.0.1:99999999/x",
        "[::1/x",
        "127.0.0.1:1/x?target_session_attrs=nonsense",
    ],
)
def test_a_store_that_does_not_open_says_why_without_the_password(run, place, caplog):
    caplog.set_level(logging.DEBUG)

    async def case():
        await store_from_url(f"postgresql://ann:{PLANTED}@{place}").open()

    with pytest.raises(Exception, match=r".{10}") as caught:
        run(case())
    assert type(caught.value).__module__ == "trunkline.errors"
    told = "".join(traceback.format_exception(caught.value)) + str(caught.value) + caplog.text
    assert PLANTED not in told


def test_unknown_role_and_database_have_the_command_that_creates_them(run, postgres_database):
    parts = urlsplit(postgres_database.url)
    at = f"--host {parts.hostname} --port {parts.port} --username postgres"
    for url, error, hint in (
        (
            parts._replace(netloc=f"noone@{parts.hostname}:{parts.port}").geturl(),
            'refuses the login: role "noone" does not exist',
            f"createuser {at} noone",
        ),
        (
            parts._replace(path="/none").geturl(),
            'cannot be opened: database "none" does not exist',
            f"createdb {at} --owner {postgres_database.user} none",
        ),
    ):
        with pytest.raises(StoreError, match=error) as caught:
            run(PostgresStore(url).open())
        assert caught.value.hint == hint


def test_a_login_that_is_not_there(run, postgres_database):
    url = postgres_database.url.replace(postgres_database.user, "nobody_like_this")
    with pytest.raises(StoreError, match="nobody_like_this") as caught:
        run(PostgresStore(url).open())
    assert PLANTED not in str(caught.value)


def test_without_the_driver_the_message_names_the_extra():
    script = (
        "import sys; from trunkline.store.url import store_from_url; store_from_url('memory:')\n"
        "assert 'asyncpg' not in sys.modules\n"
        "sys.modules['asyncpg'] = None\n"
        f"store_from_url('postgresql://ann:{PLANTED}@host/x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("trunkline.errors.Misuse")
    assert "pip install 'trunkline[postgres]'" in last
    assert PLANTED not in last


def test_sessions_are_few_and_named(run, worker_id, postgres_database, opened, monkeypatch):
    # How long one waits for a free connection is not what is shown here, and a busy machine takes longer.
    monkeypatch.setattr("trunkline.store.postgres.sessions.WAIT_SECONDS", 30.0)
    names = (
        "SELECT split_part(application_name, ' ', 2), count(*) FROM pg_stat_activity "
        "WHERE application_name LIKE 'trunkline %' AND datname = current_database() GROUP BY 1"
    )
    # Servers of other tests come and go at the one that those share.
    alone = postgres.database(f"trunkline_{worker_id}_alone")

    async def case():
        async with opened(alone.url) as store:
            await store.nodes.join("n1", ("",))
            for n in range(20):
                await store.log.append("a", f"t{n}", 0, [Delta("a", "x")], at=1)
                await store.log.read("a", f"t{n}")
            await asyncio.gather(*(store.log.read("a", f"t{n}") for n in range(100)))
            return dict((await asyncio.to_thread(alone.execute, names))[0])

    try:
        assert run(case()) == {
            "writer": 1,
            "reader": 4,
            "hints": 1,
            "liveness": 1,
        }
    finally:
        alone.drop()


def test_a_target_that_comes_while_its_task_is_dropped_leaves_nothing(run, postgres_url, opened, monkeypatch):
    async def case():
        async with opened(postgres_url) as store:
            drop = store.database.transaction

            async def late(call):
                gone = await drop(call)
                # As the append of somebody does who saw the task before, and commits only now.
                await store.database.change(
                    lambda connection: connection.execute(
                        "INSERT INTO events (task_id, first, last, at, mark, tenant, body) "
                        "VALUES ('t-a', 2, 2, 1, 1, 'a', '[]'), ('t-b', 1, 1, 1, 1, 'b', '[]'); "
                        "INSERT INTO outbox (tenant, task_id, target, seq, id, due) "
                        "VALUES ('a', 't-a', 'hook', 2, 'late', 1)"
                    )
                )
                return gone

            monkeypatch.setattr(store.database, "transaction", late)
            for tenant in ("a", "b"):
                head = Head(f"t-{tenant}", "c", "ann", TaskState.COMPLETED, 1, 1, "n")
                first = [Submitted(Message("m"), "c", "ann", "n")]
                await store.log.append(tenant, head.task_id, 0, first, at=1, head=head)
            return (
                await store.maintenance.prune(2),
                await store.outbox.list(),
                await store.maintenance.tasks(""),
                await store.maintenance.faults(),
            )

    # The other one has its first event: it is no remains, whoever brought it back.
    assert run(case()) == (2, [], ([TaskRef("b", "t-b")], "t-b"), [])


@pytest.mark.parametrize("skew", [-3_600_000, 3_600_000], ids=["behind", "ahead"])
def test_a_caller_whose_clock_is_wrong_waits_neither_longer_nor_shorter(
    run, postgres_url, opened, monkeypatch, skew
):
    moment = time.time_ns

    monkeypatch.setattr(clock.time, "time_ns", lambda: moment() + skew * 1_000_000)

    async def case():
        async with opened(postgres_url) as store:
            news = [
                OutboxEntry("d-1", 1, "hook", "lane", now_ms()),
                OutboxEntry("d-2", 2, "hook", "lane", now_ms()),
            ]
            key = Dedup("k", b"", 600_000)
            await store.log.append("a", "t-1", 0, [Delta("a", "x")] * 2, at=1, deliveries=news, dedup=key)
            ((left,),) = await store.database.read(
                EVERY_TENANT, lambda connection: connection.fetch("SELECT expires_at - now_ms() FROM dedup")
            )
            assert 0 < left <= 600_000
            await store.maintenance.prune(0)
            with pytest.raises(Duplicate):
                await store.log.append("a", "t-2", 0, [Delta("a", "x")], at=1, dedup=key)
            await store.database.change(
                lambda connection: connection.execute("UPDATE dedup SET expires_at = now_ms() - 1")
            )
            await store.maintenance.prune(0)
            assert not await store.database.read(
                EVERY_TENANT, lambda connection: connection.fetch("SELECT FROM dedup")
            )
            (first,) = await store.outbox.take(9, 60_000, per_lane=9)
            assert first.id == "d-1"
            await store.outbox.settle([DeliveryResult("d-1", DeliveryOutcome.RETRY, now_ms() + 60_000)])
            assert await store.outbox.take(9, 60_000, per_lane=9) == []
            for posted in await store.outbox.list():
                assert abs(posted.due - await store.clock.now() - 60_000) < 5000
            # Nothing has waited for an hour, whatever the clock says.
            assert await store.outbox.expire("lane", now_ms() - 1_800_000, "old") == 0
            assert await store.outbox.expire("lane", now_ms() + 120_000, "old") == 2
            assert await store.outbox.replay("d-1")
            assert [one.id for one in await store.outbox.take(9, 60_000, per_lane=9)] == ["d-1"]

    run(case())


def test_a_check_has_a_limit_of_its_own_and_goes_in_pages(run, postgres_url, opened, monkeypatch):
    pages: list[str] = []
    rows = PostgresDatabase.rows

    async def noted(database, name, *tenant, **values):
        pages.append(name)
        return await rows(database, name, *tenant, **values)

    async def case():
        async with opened(postgres_url) as store:
            for number in range(5):
                first = [Submitted(Message("m"), "c", "ann", "n")]
                head = Head(f"t{number}", "c", "ann", TaskState.SUBMITTED, 1, 1, "n")
                posted = [OutboxEntry(f"d{number}", 1, "hook", "lane", 1)]
                await store.log.append("a", f"t{number}", 0, first, at=1, head=head, deliveries=posted)
                await store.log.append("a", f"t{number}", 1, [Delta("a", "x")], at=1)
            await store.database.change(
                lambda connection: connection.execute(
                    "DELETE FROM events WHERE task_id = 't1' AND first = 1; DELETE FROM events WHERE task_id = 't3'"
                )
            )
        monkeypatch.setattr(postgres_store, "PAGE_CHECKED", 2)
        monkeypatch.setattr(PostgresDatabase, "rows", noted)
        # What answers callers within seconds has no say here.
        monkeypatch.setattr(sessions, "READ_SECONDS", 0.0)
        reader = PostgresStore(postgres_url, read_only=True)
        await reader.open()
        limits = await reader.database.read(
            EVERY_TENANT,
            lambda connection: connection.fetchval("SELECT current_setting('statement_timeout')"),
        )
        report = await check(reader)
        await reader.close()
        return limits, report

    limit, report = run(case())
    assert limit == "10min"
    # Seven rows of events and five deliveries, two at a time, and one look that finds no more.
    assert (pages.count("without_first"), pages.count("without_task")) == (5, 4)
    assert report.tasks == {"submitted": 3}
    assert report.problems == [
        Fault("t1", "has events but not the first one"),
        Fault("t3", "a delivery of a task that is not there: d3"),
        Fault("t1", "event 2 does not follow 0"),
        Fault("t3", "has a head but no events"),
    ]


def test_a_snapshot_whose_session_was_lost_is_not_gone_on_with(run, postgres_url, opened):
    async def case():
        async with opened(postgres_url) as store:
            await store.log.append("a", "t1", 0, [Submitted(Message("m"), "c", "ann", "n")], at=1)
            reader = PostgresStore(postgres_url, read_only=True)
            await reader.open()
            assert len(await reader.log.read("a", "t1")) == 1
            await store.database.change(
                lambda connection: connection.fetch(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'trunkline snapshot%' AND datname = current_database()"
                )
            )
            with pytest.raises(StoreError):
                # The server ends a session when it comes to it.
                while True:
                    await reader.log.read("a", "t1")
            report = await check(reader)
            await reader.close()
            return report.problems

    (problem,) = run(case())
    assert problem.text.startswith("the store cannot be read to its end: ")
