"""The one thread that writes a SQLite file: its connection, its queue, its transactions.

Whatever waits in the queue shares one transaction: a group of appends first, then changes.
Answers go back to the loop with one call per batch. After an I/O error the connection is
closed and opened anew before anything else is written, as its cache may no longer be true.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from trunkline.errors import StoreError
from trunkline.store.ledger import Ledger
from trunkline.store.writer import Entry, Outcome

T = TypeVar("T")
_RETURN_SECONDS = 1.0
_logger = logging.getLogger("trunkline.store")

# Errors that lie in what was to be written; everything else lies in the file or the disk.
_DATA_ERRORS = (
    sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
    ValueError, OverflowError, TypeError,
)  # fmt: skip
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
        """Do it. Invariant: a call that raises StoreError has written nothing."""
        self._error = None
        try:
            self._results = [self._call(connection)]
        except StoreError as error:
            self._error = error

    def fail(self, error: StoreError) -> None:
        """It was not done, or was rolled back."""
        self._error = error

    def settle(self) -> None:
        """Answer; on the loop."""
        if self._future.done():
            return
        if self._error is None:
            self._future.set_result(self._results[0])
        else:
            self._future.set_exception(self._error)


class _Work(Protocol):
    def run(self, connection: sqlite3.Connection) -> None: ...
    def fail(self, error: StoreError) -> None: ...
    def settle(self) -> None: ...


class _Batch:
    """What was in the queue at one moment."""

    __slots__ = ("changes", "group", "last", "looks", "outcomes")

    def __init__(self) -> None:
        self.group: list[Entry] = []
        self.outcomes: list[Outcome] = []
        self.changes: list[_Work] = []
        self.looks: list[_Work] = []
        self.last = False

    def end(self) -> None:
        self.last = True


class WriterThread:
    """Runs groups, changes and looks, in that order, batch after batch."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        ledger: Ledger,
        done: Callable[[Sequence[Entry], Sequence[Outcome]], None],
    ) -> None:
        self._connect = connect
        self._ledger = ledger
        self._done = done
        # An item puts itself into its place in the batch.
        self._queue: SimpleQueue[Callable[[_Batch], None]] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._main, name="trunkline-store", daemon=True)

    def start(self) -> asyncio.Future[None]:
        """Open the file; the future ends when it is ready, or says why it is not."""
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        return self._opened

    def stop(self) -> asyncio.Future[None]:
        """Finish what is queued, close the file and end."""
        self._queue.put(_Batch.end)
        return self._ended

    def join(self) -> None:
        """Wait for the thread, which has said that it ended and has only to return."""
        self._thread.join(_RETURN_SECONDS)

    def submit(self, group: list[Entry]) -> None:
        """Write a group; `done` is called with the outcomes."""
        self._queue.put(lambda batch: batch.group.extend(group))

    def change(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call inside a transaction."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = Job(call, future)
        self._queue.put(lambda batch: batch.changes.append(job))
        return future

    def look(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads, after what was queued before has been committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = Job(call, future)
        self._queue.put(lambda batch: batch.looks.append(job))
        return future

    def _main(self) -> None:
        try:
            self._live()
        except Exception as error:  # noqa: BLE001 - goes to the caller of `open`
            self._tell(self._refuse_opening, error)
            return
        if not self._tell(_finish, self._opened):
            self._close()
            return
        last = False
        while not last:
            batch = self._next()
            self._serve(batch)
            last = not self._tell(self._deliver, batch) or batch.last
        self._close()
        self._tell(_finish, self._ended)

    def _refuse_opening(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    def _tell(self, call: Callable[..., None], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            # The loop is gone without `close`: nobody is left to answer, so the thread ends too.
            return False
        return True

    def _next(self) -> _Batch:
        batch = _Batch()
        self._queue.get()(batch)
        while not self._queue.empty():
            self._queue.get()(batch)
        return batch

    def _deliver(self, batch: _Batch) -> None:
        if batch.group:
            self._done(batch.group, batch.outcomes)
        for work in (*batch.changes, *batch.looks):
            work.settle()

    def _serve(self, batch: _Batch) -> None:
        try:
            if batch.group or batch.changes:
                batch.outcomes = self._write(batch.group, batch.changes)
        except _DATA_ERRORS:
            self._write_apart(batch)
        except Exception as error:  # noqa: BLE001 - logged, and every caller is told
            _log(error)
            batch.outcomes = [_failure(error) for _ in batch.group]
            for work in batch.changes:
                work.fail(_failure(error))
        for work in batch.looks:
            self._look(work)

    def _write_apart(self, batch: _Batch) -> None:
        # One of them cannot be written at all; alone it fails without its neighbours.
        batch.outcomes = []
        for entry in batch.group:
            try:
                batch.outcomes += self._write([entry], [])
            except Exception as error:  # noqa: BLE001 - logged, and the caller is told
                _log(error)
                batch.outcomes.append(_failure(error))
        for work in batch.changes:
            try:
                self._write([], [work])
            except Exception as error:  # noqa: BLE001 - logged, and the caller is told
                _log(error)
                work.fail(_failure(error))

    def _look(self, work: _Work) -> None:
        try:
            work.run(self._live())
        except Exception as error:  # noqa: BLE001 - logged, and the caller is told
            _log(error)
            work.fail(_failure(error))

    def _write(self, group: Sequence[Entry], changes: Sequence[_Work]) -> list[Outcome]:
        connection = self._live()
        try:
            outcomes, steps = self._ledger.plan(connection, group)
            if len(steps) > 1 or changes:
                connection.execute("BEGIN IMMEDIATE")
                for step in steps:
                    connection.execute(*step)
                for work in changes:
                    work.run(connection)
                connection.execute("COMMIT")
            else:
                # A lone statement is a transaction by itself.
                for step in steps:
                    connection.execute(*step)
            return outcomes
        except BaseException as error:
            self._undo(connection, error)
            self._ledger.forget(entry.task_id for entry in group)
            raise

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            code = sqlite3.SQLITE_IOERR
        if code in _HANDLE_ERRORS:
            self._close()

    def _live(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connect()
            try:
                self._ledger.load(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _log(error: Exception) -> None:
    _logger.error("store.failed reason=%s: %s", type(error).__name__, error)


def _failure(error: Exception) -> StoreError:
    return StoreError(f"the store failed, nothing was written: {error}")
