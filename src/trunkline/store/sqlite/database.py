"""One SQLite file, opened: its lock, its schema, the connections to it.

An append is acknowledged after its fsync. In memory there is one connection, which the loop itself uses.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from urllib.parse import quote

import msgspec

from trunkline.errors import StoreError, StoreInUse
from trunkline.store.database import PATIENCE, Database, Rows, check_readable, check_version
from trunkline.store.sqlite.append_plan import AppendPlan
from trunkline.store.sqlite.writer import MemoryWriter, SqliteTransactions, WriterThread
from trunkline.store.statements import Migration, migrations, statements

T = TypeVar("T")

# RETURNING came with this one.
_OLDEST_SQLITE = (3, 35, 0)
_BUSY_SECONDS = 5.0
_READERS = 2
_KEPT_STATEMENTS = 256
# What to run a command with where the file of the store cannot be used.
_ANOTHER = "--store sqlite:///other.db"
_SQL = statements("sqlite")
# "TRNK" in the file's header, so that we never write into somebody else's database.
APPLICATION_ID = 0x54524E4B
SQLITE: tuple[Migration, ...] = migrations("sqlite")
_logger = logging.getLogger("trunkline.store")


class SqliteDatabase(Database):
    """The connections to one file, or to memory when there is no path: one that writes, two that read."""

    sql = _SQL

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        # The real path, so that two names of one file share one lock.
        self._path = "" if path is None else os.path.realpath(path)
        self._now = now_ms
        self._lock = FileLock(self._path)
        # The files that were opened, by path: device and inode.
        self._opened: dict[str, tuple[int, int]] = {}
        self.plan = AppendPlan(now_ms)
        self._transactions = SqliteTransactions(self._connect, self.plan)
        self._writer = (WriterThread if self._path else MemoryWriter)(self._transactions)
        self._readers = Readers(self._connect_snapshot, 1) if read_only else Readers(self._connect_reader)
        super().__init__(self._path or "the in-memory store", self._writer.submit, read_only=read_only)

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the clock that the store was given."""
        return self._now()

    # Life

    async def _open(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
        if self._read_only:
            self._find_file()
            try:
                await self._readers.read(partial(verify, name=self.name))
            except StoreError as error:
                cause = error.__cause__
                what = f"{self.name} cannot be opened: {cause}" if cause else str(error)
                raise StoreError(what, hint="--store URL") from cause
            return
        try:
            if self._path:
                self._claim_file()
            async with asyncio.timeout(PATIENCE):
                await self._writer.start(self.group_commit.done)
        except TimeoutError:
            # The thread may still get there, so the lock stays with this process.
            raise StoreError(f"{self.name} did not open within {PATIENCE:.0f} s") from None
        except (sqlite3.Error, OSError, StoreError) as error:
            self._lock.release()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.name} cannot be opened: {error}", hint=_ANOTHER) from error
        self.group_commit.start()
        await self._writer.change(_forget_processes)

    async def _close(self) -> None:
        if not self._read_only:
            await self.group_commit.stop()
        # The writer's connection goes last: it then folds the WAL back into the file.
        await asyncio.to_thread(self._readers.close)
        if not self._read_only:
            await self._writer.stop()
            self._writer.join()
            self._lock.release()

    def _find_file(self) -> None:
        if not os.path.isfile(self._path):
            raise StoreError(f"{self.name} cannot be opened: there is no such file", hint="--store DIR")

    def _claim_file(self) -> None:
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise StoreError(
                f"{self._path} cannot be opened: there is no folder {folder}", hint=f"mkdir {folder}"
            )
        self._lock.acquire()
        # Logs hold what people said; SQLite gives the WAL the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._opened = {path: _identity(path) for path in (self._path, self._lock.path)}

    def check_files(self) -> None:
        """Take appends only while the file, its WAL and its lock are where they were; in the writer's thread.

        Raises:
            StoreError: one was removed or replaced: what is written would be lost, or is not ours alone.
        """
        wal = f"{self._path}-wal"
        self._opened.setdefault(wal, _identity(wal))
        moved = [path for path, opened in self._opened.items() if _identity(path) != opened]
        reason = f"{moved[0]} was removed or replaced while in use: put it back, or restart" if moved else ""
        self.group_commit.refusal = self._refusal or reason
        if reason:
            raise StoreError(reason)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path or ":memory:",
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            cached_statements=_KEPT_STATEMENTS,
            check_same_thread=False,
        )
        try:
            # Before anything else, and of effect on a new file only. What is written costs the same with it
            # (measured: 160 000 appends in 2.57 s either way), and a sweep can shrink the file.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -2048")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            before, after = migrate(connection, self.name)
            # Opened anew after an error it may have another WAL, and nothing is left to migrate.
            self._opened.pop(f"{self._path}-wal", None)
            if after != self.migrated[1]:
                self.migrated = (before, after)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _connect_snapshot(self) -> sqlite3.Connection:
        # Never ended: all of it sees the file as it stood when it was opened, whoever writes meanwhile.
        connection = self._connect_reader()
        connection.execute("BEGIN")
        return connection

    # What the parts of every store ask, by the names of statements

    async def rows_of(self, text: str, tenant: str | None = None, /, **values: Any) -> list[Any]:
        """See `Database`."""
        given = _parameters(tenant, values)
        return await self.read(lambda connection: connection.execute(text, given).fetchall())

    async def write(self, name: str, tenant: str | None = None, /, **values: Any) -> list[Any]:
        """See `Database`."""
        given = _parameters(tenant, values)
        return await self.change(lambda connection: connection.execute(_SQL[name], given).fetchall())

    async def transaction(self, call: Callable[[Rows], Awaitable[T]], tenant: str | None = None) -> T:
        """See `Database`."""
        return await self.change(partial(_all_or_none, call))

    def change(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run a call with the writer's connection, inside a transaction."""
        self.check_writable()
        return self._writer.change(call)

    def read(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run a call that only reads."""
        self.check()
        return self._readers.read(call) if self._path else self._writer.read(call)


def _all_or_none(call: Callable[[Rows], Awaitable[T]], connection: sqlite3.Connection) -> T:
    """Run what is written for both databases, to its end: with this one, nothing in it ever waits."""

    async def rows(name: str, tenant: str | None = None, /, **values: Any) -> list[Any]:
        return connection.execute(_SQL[name], _parameters(tenant, values)).fetchall()

    # Others share the transaction; the end of it lets all savepoints go.
    connection.execute("SAVEPOINT call")
    try:
        call(rows).__await__().send(None)
    except StopIteration as end:
        return end.value
    except StoreError:
        connection.execute("ROLLBACK TO call")
        raise
    raise RuntimeError("a transaction waited for something else than its statements")


class Readers:
    """Read-only connections, one for each thread; a connection that failed is thrown away.

    They never write and never checkpoint, so the writer's connection is alone in doing both;
    SQLite's WAL-reset race (3.7.0 to 3.51.2) needs two that do.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], threads: int = _READERS) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(threads, "trunkline-read")
        self._free: SimpleQueue[sqlite3.Connection] = SimpleQueue()

    def read(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, self._run, call)

    def close(self) -> None:
        """Answer the reads that were taken, then close; blocks."""
        self._threads.shutdown()
        while not self._free.empty():
            self._free.get().close()

    def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            try:
                connection = self._free.get_nowait()
            except Empty:
                connection = self._connect()
            try:
                result = call(connection)
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                # Not the connection's fault.
                self._free.put(connection)
                raise
        except sqlite3.Error as error:
            _logger.error("store.read_failed reason=%s: %s", type(error).__name__, error)
            raise StoreError(f"the store could not be read: {error}") from error
        self._free.put(connection)
        return result


class FileLock:
    """The lock on `FILE.lock` beside one database file, which holds the pid: one process per file.

    The kernel drops the lock with the process, so a killed one leaves nothing to clean up.
    """

    __slots__ = ("_database", "_fd", "path")

    def __init__(self, database: str) -> None:
        self._database = database
        self.path = f"{database}.lock"
        self._fd = -1

    def acquire(self) -> None:
        """Take it at once or not at all.

        Raises:
            StoreInUse: somebody has it.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"this process (pid {pid})" if pid == str(os.getpid()) else f"process {pid or 'unknown'}"
            raise StoreInUse(
                f"{self._database} is open in {who}; one process per SQLite file: "
                "stop it or choose another --store",
                pid,
                hint=_ANOTHER,
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let the next one in. The file stays: removing it could split the lock in two."""
        if self._fd < 0:
            return
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = -1


def _parameters(tenant: str | None, values: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a statement; a list is one text, which the statement reads by `json_each`."""
    lists = {
        name: msgspec.json.encode(cast("object", value)).decode()
        for name, value in values.items()
        if isinstance(value, list | tuple)
    }
    return {"tenant": tenant, **values, **lists}


def _identity(path: str) -> tuple[int, int]:
    """Which file is at a path: its device and inode, zeros if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _forget_processes(connection: sqlite3.Connection) -> None:
    """Drop the nodes and leases of earlier processes: we hold the file's lock, so they are dead."""
    connection.execute(_SQL["clear_nodes"])
    connection.execute(_SQL["clear_leases"])


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
    check_readable(name, _known(connection, name, newest), newest)


def _known(connection: sqlite3.Connection, name: str, newest: int) -> int:
    version = _number(connection, "PRAGMA user_version")
    check_version(name, version, newest)
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if tables and _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{name} is a database of another program; choose another --store", hint=_ANOTHER)
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
