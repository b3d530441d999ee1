"""Brings a database to the newest schema, forwards only; one transaction per step.

A kill between two steps leaves the older schema whole, and the next start goes on from there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from trunkline.errors import StoreError
from trunkline.store.statements import Migration, migrations

# "TRNK" in the file's header, so that we never write into somebody else's database.
APPLICATION_ID = 0x54524E4B
SQLITE: tuple[Migration, ...] = migrations("sqlite")


def migrate(
    connection: sqlite3.Connection, name: str, steps: Sequence[Migration] = SQLITE
) -> tuple[int, int]:
    """Apply the steps that this database lacks; gives its version before and after.

    Raises:
        StoreError: it belongs to a newer version, or is no store of ours.
    """
    version = _known(connection, name, steps[-1].version)
    for step in steps:
        if step.version > version:
            _apply(connection, step)
    return version, steps[-1].version


def verify(connection: sqlite3.Connection, name: str, steps: Sequence[Migration] = SQLITE) -> None:
    """See that this database can be read as it is.

    Raises:
        StoreError: it cannot; the message names the way out.
    """
    newest = steps[-1].version
    version = _known(connection, name, newest)
    if version < newest:
        raise StoreError(
            f"{name} has schema {version} and this trunkline reads {newest}: run trunkline store migrate"
        )


def _known(connection: sqlite3.Connection, name: str, newest: int) -> int:
    version = _number(connection, "PRAGMA user_version")
    if version > newest:
        raise StoreError(
            f"{name} was written by a newer trunkline (schema {version}, this one knows {newest}); "
            "upgrade trunkline or choose another --store"
        )
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if tables and _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{name} is a database of another program; choose another --store")
    return version


def _apply(connection: sqlite3.Connection, step: Migration) -> None:
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{step.script}\n"
            f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {step.version};\nCOMMIT;"
        )
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])
