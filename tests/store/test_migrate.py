"""Forwards only, one transaction per step."""

from __future__ import annotations

import sqlite3

import pytest

from trunkline.errors import StoreError
from trunkline.store import migrate as module
from trunkline.store.migrate import SQLITE, migrate
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
    migrate(connection, "x", STEPS[:1])
    migrate(connection, "x", STEPS)
    migrate(connection, "x", STEPS)
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
