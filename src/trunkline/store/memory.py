"""Writing without a thread, for a store in memory: nothing there waits for a disk.

A hand-over to a thread and back costs more than the group it carries when groups are small
(measured: 28 µs of 139 µs of CPU per request with 4 callers, 11 of 95 with 16, 2 of 79 with 64).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from trunkline.store.batch import Batch, Job
from trunkline.store.transaction import SqliteTransactions
from trunkline.store.writer import Entry, Outcome

T = TypeVar("T")


class MemoryWriter:
    """Does on the loop what a `WriterThread` does beside it."""

    def __init__(
        self, scribe: SqliteTransactions, done: Callable[[Sequence[Entry], Sequence[Outcome]], None]
    ) -> None:
        self._scribe = scribe
        self._done = done

    def start(self) -> asyncio.Future[None]:
        """Open the database."""
        self._loop = asyncio.get_running_loop()
        self._scribe.live()
        return self._ended()

    def stop(self) -> asyncio.Future[None]:
        """Drop the database."""
        self._scribe.close()
        return self._ended()

    def join(self) -> None:
        """There is nobody to wait for."""

    def submit(self, group: list[Entry]) -> None:
        """Write a group; `done` is called with the outcomes."""
        batch = Batch()
        batch.group = group
        self._scribe.serve(batch)
        # Later, because `done` submits the next group before it settles this one.
        self._loop.call_soon(self._done, group, batch.outcomes)

    def change(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call inside a transaction."""
        batch, future = Batch(), self._loop.create_future()
        batch.changes.append(Job(call, future))
        return self._served(batch, future)

    def look(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that only reads."""
        batch, future = Batch(), self._loop.create_future()
        batch.looks.append(Job(call, future))
        return self._served(batch, future)

    def _served(self, batch: Batch, future: asyncio.Future[T]) -> asyncio.Future[T]:
        self._scribe.serve(batch)
        # Later, because to await what is done already gives nobody else a turn: a caller that reads
        # until something appears would wait for ever.
        self._loop.call_soon(batch.settle)
        return future

    def _ended(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        future.set_result(None)
        return future
