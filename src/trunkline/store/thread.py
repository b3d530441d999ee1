"""The one thread that writes a SQLite file, and its queue.

Whatever waits in the queue is one batch. Answers go back to the loop with one call per batch.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from trunkline.store.batch import Batch, Job
from trunkline.store.transaction import SqliteTransactions
from trunkline.store.writer import Entry, Outcome

T = TypeVar("T")
_RETURN_SECONDS = 1.0


class WriterThread:
    """Runs groups, changes and looks, in that order, batch after batch."""

    def __init__(
        self,
        scribe: SqliteTransactions,
        done: Callable[[Sequence[Entry], Sequence[Outcome]], None],
    ) -> None:
        self._scribe = scribe
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

    def look(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads, after what was queued before has been committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = Job(call, future)
        self._queue.put(lambda batch: batch.looks.append(job))
        return future

    def _main(self) -> None:
        try:
            self._scribe.live()
        except Exception as error:  # noqa: BLE001 - goes to the caller of `open`
            self._tell(self._refuse_opening, error)
            return
        if not self._tell(_finish, self._opened):
            self._scribe.close()
            return
        last = False
        while not last:
            batch = self._next()
            self._scribe.serve(batch)
            last = not self._tell(self._deliver, batch) or batch.last
        self._scribe.close()
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


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
