"""Who uses the connections of a SQLite file: one thread that writes, two that read.

Whatever waits for the writer is one batch, and answers go back to the loop with one call per batch. A
store in memory needs no thread: nothing there waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from trunkline.errors import StoreError
from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.sqlite.transaction import Batch, Job, SqliteTransactions

T = TypeVar("T")
Done = Callable[[Sequence[Entry], Sequence[Outcome]], None]

_RETURN_SECONDS = 1.0
_READERS = 2
_logger = logging.getLogger("trunkline.store")


class WriterThread:
    """The one thread that writes a file: groups, changes and reads, in that order, batch after batch."""

    def __init__(self, transactions: SqliteTransactions, done: Done) -> None:
        self._transactions = transactions
        self._done = done
        # An item puts itself into its place in the batch.
        self._queue: SimpleQueue[Callable[[Batch], None]] = SimpleQueue()
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
        self._queue.put(Batch.end)
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

    def read(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads, after what was queued before has been committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = Job(call, future)
        self._queue.put(lambda batch: batch.reads.append(job))
        return future

    def _main(self) -> None:
        try:
            self._transactions.live()
        except Exception as error:  # noqa: BLE001 - goes to the caller of `open`
            self._tell(self._refuse_opening, error)
            return
        if not self._tell(_finish, self._opened):
            self._transactions.close()
            return
        last = False
        while not last:
            batch = self._next()
            self._transactions.serve(batch)
            last = not self._tell(self._deliver, batch) or batch.last
        self._transactions.close()
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

    def _next(self) -> Batch:
        batch = Batch()
        self._queue.get()(batch)
        while not self._queue.empty():
            self._queue.get()(batch)
        return batch

    def _deliver(self, batch: Batch) -> None:
        if batch.group:
            self._done(batch.group, batch.outcomes)
        batch.settle()


class MemoryWriter:
    """Does on the loop what a `WriterThread` does beside it.

    A hand-over to a thread and back costs more than the group it carries when groups are small
    (measured: 28 µs of 139 µs of CPU per request with 4 callers, 11 of 95 with 16, 2 of 79 with 64).
    """

    def __init__(self, transactions: SqliteTransactions, done: Done) -> None:
        self._transactions = transactions
        self._done = done

    def start(self) -> asyncio.Future[None]:
        """Open the database."""
        self._loop = asyncio.get_running_loop()
        self._transactions.live()
        return self._ended()

    def stop(self) -> asyncio.Future[None]:
        """Drop the database."""
        self._transactions.close()
        return self._ended()

    def join(self) -> None:
        """There is nobody to wait for."""

    def submit(self, group: list[Entry]) -> None:
        """Write a group; `done` is called with the outcomes."""
        batch = Batch()
        batch.group = group
        self._transactions.serve(batch)
        # Later, because `done` submits the next group before it settles this one.
        self._loop.call_soon(self._done, group, batch.outcomes)

    def change(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call inside a transaction."""
        batch, future = Batch(), self._loop.create_future()
        batch.changes.append(Job(call, future))
        return self._served(batch, future)

    def read(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads."""
        batch, future = Batch(), self._loop.create_future()
        batch.reads.append(Job(call, future))
        return self._served(batch, future)

    def _served(self, batch: Batch, future: asyncio.Future[T]) -> asyncio.Future[T]:
        self._transactions.serve(batch)
        # Later, because to await what is done already gives nobody else a turn: a caller that reads
        # until something appears would wait for ever.
        self._loop.call_soon(batch.settle)
        return future

    def _ended(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        future.set_result(None)
        return future


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


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
