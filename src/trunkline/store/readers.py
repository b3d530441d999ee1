"""Read-only connections to a SQLite file, two of them, in two threads.

They never write and never checkpoint, so the writer's connection is alone in doing both;
SQLite's WAL-reset race (3.7.0 to 3.51.2) needs two that do.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from trunkline.errors import StoreError

T = TypeVar("T")
_READERS = 2
_logger = logging.getLogger("trunkline.store")


class Readers:
    """A small pool; a connection that failed is thrown away."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(_READERS, "trunkline-read")
        self._free: SimpleQueue[sqlite3.Connection] = SimpleQueue()

    def look(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a call that reads."""
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
