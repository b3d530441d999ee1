"""The writing connection of a SQLite file and its transactions.

A batch is one transaction: its group of appends first, then its changes. After an I/O error the
connection is closed and opened anew before anything else is written, as its cache may no longer
be true. Used by one thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from trunkline.errors import StoreError
from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.sqlite.append_plan import AppendPlan, Keys
from trunkline.store.statements import statements

T = TypeVar("T")
_logger = logging.getLogger("trunkline.store")

# Errors that lie in what was to be written; everything else lies in the file or the disk.
_DATA_ERRORS = (
    sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
    ValueError, OverflowError, TypeError,
)  # fmt: skip
_PUT_MARK = statements("sqlite")[0]["put_mark"]
_HANDLE_ERRORS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class Job(Generic[T]):
    """A call with the connection, and the future of whoever waits for its result."""

    __slots__ = ("_call", "_error", "_future", "_results")

    def __init__(self, call: Callable[[sqlite3.Connection], T], future: asyncio.Future[T]) -> None:
        self._call = call
        self._future = future
        self._results: list[T] = []
        self._error: StoreError | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the call. Invariant: one that raises StoreError has written nothing."""
        self._error = None
        try:
            self._results = [self._call(connection)]
        except StoreError as error:
            self._error = error

    def fail(self, error: StoreError) -> None:
        """Note that it was not run, or was rolled back."""
        self._error = error

    def settle(self) -> None:
        """Answer whoever waits; on the loop."""
        if self._future.done():
            return
        if self._error is None:
            self._future.set_result(self._results[0])
        else:
            self._future.set_exception(self._error)


class AnyJob(Protocol):
    """A job, whatever its result is."""

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the call."""
        ...

    def fail(self, error: StoreError) -> None:
        """Note that it was not run."""
        ...

    def settle(self) -> None:
        """Answer whoever waits."""
        ...


class Batch:
    """What waits to be written or read together: a group of appends, then changes, then reads."""

    __slots__ = ("changes", "group", "last", "outcomes", "reads")

    def __init__(self) -> None:
        self.group: list[Entry] = []
        self.outcomes: list[Outcome] = []
        self.changes: list[AnyJob] = []
        self.reads: list[AnyJob] = []
        self.last = False

    def end(self) -> None:
        """Nothing comes after it."""
        self.last = True

    def settle(self) -> None:
        """Answer whoever asked for a change or a read; on the loop."""
        for job in (*self.changes, *self.reads):
            job.settle()


class SqliteTransactions:
    """Runs batches as transactions; what goes wrong reaches whoever asked."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], plan: AppendPlan) -> None:
        self._connect = connect
        self._plan = plan
        self._connection: sqlite3.Connection | None = None

    def serve(self, batch: Batch) -> None:
        """Write what is to be written, in one transaction; then read. Raises nothing."""
        try:
            if batch.group or batch.changes:
                batch.outcomes = self._write(batch.group, batch.changes)
        except _DATA_ERRORS:
            self._write_apart(batch)
        except Exception as error:  # noqa: BLE001 - logged, and every caller is told
            _log(error)
            batch.outcomes = [_failure(error) for _ in batch.group]
            for job in batch.changes:
                job.fail(_failure(error))
        for job in batch.reads:
            self._read(job)

    def _write_apart(self, batch: Batch) -> None:
        # One of them cannot be written at all; alone it fails without its neighbours.
        batch.outcomes = []
        for entry in batch.group:
            try:
                batch.outcomes += self._write([entry], [])
            except Exception as error:  # noqa: BLE001 - logged, and the caller is told
                _log(error)
                batch.outcomes.append(_failure(error))
        for job in batch.changes:
            try:
                self._write([], [job])
            except Exception as error:  # noqa: BLE001 - logged, and the caller is told
                _log(error)
                job.fail(_failure(error))

    def _read(self, job: AnyJob) -> None:
        try:
            job.run(self.live())
        except Exception as error:  # noqa: BLE001 - logged, and the caller is told
            _log(error)
            job.fail(_failure(error))

    def _write(self, group: Sequence[Entry], changes: Sequence[AnyJob]) -> list[Outcome]:
        try:
            return self._commit(group, changes, None)
        except sqlite3.IntegrityError:
            # Something was not as new as it seemed: now look before writing.
            return self._commit(group, changes, self._plan.known(self.live(), group))

    def _commit(self, group: Sequence[Entry], changes: Sequence[AnyJob], known: Keys | None) -> list[Outcome]:
        connection = self.live()
        try:
            outcomes, steps = self._plan.plan(connection, group, known)
            if len(steps) > 1 or changes:
                connection.execute("BEGIN IMMEDIATE")
                for step in steps:
                    connection.execute(*step)
                for job in changes:
                    job.run(connection)
                connection.execute("COMMIT")
            else:
                # A lone statement is a transaction by itself.
                for step in steps:
                    connection.execute(*step)
            return outcomes
        except BaseException as error:
            self._undo(connection, error)
            self._plan.forget(entry.task_id for entry in group)
            raise

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            code = sqlite3.SQLITE_IOERR
        if code in _HANDLE_ERRORS:
            self._overwrite(connection)
            self.close()

    def _overwrite(self, connection: sqlite3.Connection) -> None:
        """Write over what a failed commit left in the WAL, or a crash would bring back what was refused."""
        try:
            connection.execute(_PUT_MARK, ("blot", 0))
        except sqlite3.Error as error:
            # Its own words may be as unsure as those before; they mean nothing.
            _log(error)

    def live(self) -> sqlite3.Connection:
        """The connection, opened if there is none."""
        if self._connection is None:
            connection = self._connect()
            try:
                self._plan.load(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Let the file go, until something is served again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _log(error: Exception) -> None:
    _logger.error("store.failed reason=%s: %s", type(error).__name__, error)


def _failure(error: Exception) -> StoreError:
    return StoreError(f"the store failed, nothing was written: {error}")
