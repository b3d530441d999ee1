"""Forwards only, one transaction per step."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import AT
from trunkline.errors import StoreError
from trunkline.store.records import Delivery
from trunkline.store.sqlite import database as module
from trunkline.store.sqlite.database import SQLITE, migrate, verify
from trunkline.store.statements import Migration

STEPS = (
    Migration(1, "CREATE TABLE one (x);"),
    Migration(2, "CREATE TABLE two (x); INSERT INTO two VALUES (1);"),
)


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:", isolation_level=None)
    yield made
    made.close()


def version(connection):
    return connection.execute("PRAGMA user_version").fetchone()[0]


def tables(connection):
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_all_steps_from_nothing(connection):
    migrate(connection, "x", STEPS)
    assert (version(connection), tables(connection)) == (2, {"one", "two"})


def test_only_the_missing_steps(connection):
    assert migrate(connection, "x", STEPS[:1]) == (0, 1)
    assert migrate(connection, "x", STEPS) == (1, 2)
    assert migrate(connection, "x", STEPS) == (2, 2)
    assert connection.execute("SELECT count(*) FROM two").fetchone() == (1,)


def test_a_step_that_fails_leaves_nothing_of_itself(connection):
    broken = Migration(2, "CREATE TABLE two (x); CREATE TABLE one (x);")
    with pytest.raises(sqlite3.Error):
        migrate(connection, "x", (STEPS[0], broken))
    assert not connection.in_transaction
    assert (version(connection), tables(connection)) == (1, {"one"})
    migrate(connection, "x", STEPS)
    assert version(connection) == 2


def test_a_step_that_cannot_begin(connection):
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.Error):
        migrate(connection, "x", STEPS)
    assert version(connection) == 0


def test_a_newer_schema_is_refused(connection):
    migrate(connection, "x", STEPS)
    with pytest.raises(StoreError, match="newer trunkline .schema 2, this one knows 1.*upgrade"):
        migrate(connection, "x", STEPS[:1])


def test_a_foreign_database_is_refused(connection):
    connection.execute("CREATE TABLE somebody (x)")
    with pytest.raises(StoreError, match="another program"):
        migrate(connection, "x", STEPS)
    assert tables(connection) == {"somebody"}


def test_a_reader_migrates_nothing(connection):
    with pytest.raises(
        StoreError, match="x has schema 0 and this trunkline reads 2: run trunkline store migrate"
    ):
        verify(connection, "x", STEPS)
    migrate(connection, "x", STEPS)
    verify(connection, "x", STEPS)
    with pytest.raises(StoreError, match="newer trunkline"):
        verify(connection, "x", STEPS[:1])


def test_steps_are_numbered_without_holes():
    assert [step.version for step in SQLITE] == list(range(1, len(SQLITE) + 1))


def test_an_interrupted_migration_goes_on_at_the_next_start(run, make, path, monkeypatch):
    broken = (*SQLITE, Migration(len(SQLITE) + 1, "CREATE TABLE later (x); SELECT no_such_function();"))
    monkeypatch.setattr(module.migrate, "__defaults__", (broken,))
    with pytest.raises(StoreError, match=r"store\.db cannot be opened"):
        run(make().open())
    monkeypatch.undo()
    store = make()
    run(store.open())
    run(store.close())
    with sqlite3.connect(path) as connection:
        assert "later" not in tables(connection)
    connection.close()


def test_the_store_refuses_a_newer_file(run, make, path):
    store = make()
    run(store.open())
    run(store.close())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreError, match=r"store\.db was written by a newer trunkline"):
        run(make().open())
    # Refused, not held: the file is free for the right version.
    with pytest.raises(StoreError, match="newer trunkline"):
        run(make().open())


def test_deliveries_of_the_first_schema_go_on(run, make, path):
    rows = "('a', 't1', 'hook', {0}, 'd{0}', {1}, {2}, {0})"
    values = [rows.format(1, "NULL", 0), rows.format(2, AT - 5, 0), rows.format(3, AT - 4, 0)]
    values.append(rows.format(4, AT - 9, AT + 100).replace("'hook'", "'leased'"))
    with sqlite3.connect(path, isolation_level=None) as connection:
        migrate(connection, "x", SQLITE[:1])
        connection.execute(
            "INSERT INTO outbox (tenant, task_id, target, seq, id, due, lease_until, attempts) VALUES "
            + ", ".join(values)
        )
    connection.close()

    async def case():
        store = make()
        await store.open()
        assert store.migrated == (1, SQLITE[-1].version)
        taken = await store.outbox.take(10, 1_000, per_lane=10)
        listed = [(posted.id, posted.state, posted.attempts) for posted in await store.outbox.list()]
        await store.close()
        return taken, listed

    taken, listed = run(case())
    # The lease went with the process that had it; d3 waits for d2.
    assert taken == [
        Delivery("d4", "a", "t1", 4, "leased", "", AT - 9, 4),
        Delivery("d2", "a", "t1", 2, "hook", "", AT - 5, 2),
    ]
    assert listed == [("d4", "pending", 5), ("d3", "pending", 3), ("d2", "pending", 3), ("d1", "dead", 1)]


def test_a_kill_at_any_statement_leaves_a_whole_schema(tmp_path):
    script = Path(__file__).with_name("interrupt.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    *killed, last = [line.split() for line in done.stdout.splitlines()]
    newest = str(len(SQLITE) + 1)
    assert last[0] == "False"
    assert {line[0] for line in killed} == {"True"}
    # A version has all of its tables or is not there at all. The newest takes the last statement, so no kill
    # comes after it.
    left = {(version, tables) for _, version, tables, *_ in killed}
    assert [version for version, _ in sorted(left)] == [str(version) for version in range(len(SQLITE) + 1)]
    assert ("0", "0") in left
    assert len(killed) > 15
    # Every next start got to the end.
    whole = {(version, tables) for *_, version, tables in (*killed, last)}
    assert whole == {(newest, last[2])}
