"""Kills a process at each statement of opening a file, with one migration more than there is. Argument: folder.

Prints for each kill the version it left and whether the next start completed what it had begun.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys

from trunkline.store.sqlite import database as module
from trunkline.store.sqlite.store import SqliteStore
from trunkline.store.statements import Migration

LATER = Migration(
    len(module.SQLITE) + 1, "CREATE TABLE later (x); INSERT INTO later VALUES (1); CREATE TABLE last (x);"
)


def open_and_die(path: str, statement: int) -> None:
    """Open as a store does; the kernel ends this process before the given statement."""
    count = 0

    def count_down(_: str) -> None:
        nonlocal count
        count += 1
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*args: object, **more: object) -> sqlite3.Connection:
        connection = connect(*args, **more)  # type: ignore[call-overload]
        connection.set_trace_callback(count_down)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    SqliteStore(path, now_ms=lambda: 0).database._connect().close()
    os._exit(0)


def state(path: str) -> tuple[int, int]:
    """The version of a file, and how many tables it has."""
    connection = sqlite3.connect(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
    (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    assert sound == "ok", sound
    return version, tables


def main(folder: str) -> None:
    module.migrate.__defaults__ = ((*module.SQLITE, LATER),)
    statement = 0
    while True:
        statement += 1
        path = f"{folder}/{statement}.db"
        pid = os.fork()
        if pid == 0:
            open_and_die(path, statement)
        _, how = os.waitpid(pid, 0)
        left = state(path)
        SqliteStore(path, now_ms=lambda: 0).database._connect().close()
        print(os.WIFSIGNALED(how), *left, *state(path))
        if how == 0:
            return


if __name__ == "__main__":
    main(sys.argv[1])
