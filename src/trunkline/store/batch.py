"""What waits to be written or read together: a group of appends, then changes, then looks."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from trunkline.errors import StoreError
from trunkline.store.writer import Entry, Outcome

T = TypeVar("T")


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


class Work(Protocol):
    """A job, whatever it gives."""

    def run(self, connection: sqlite3.Connection) -> None:
        """Do it."""
        ...

    def fail(self, error: StoreError) -> None:
        """Take it that it was not done."""
        ...

    def settle(self) -> None:
        """Answer."""
        ...


class Batch:
    """What came together at one moment."""

    __slots__ = ("changes", "group", "last", "looks", "outcomes")

    def __init__(self) -> None:
        self.group: list[Entry] = []
        self.outcomes: list[Outcome] = []
        self.changes: list[Work] = []
        self.looks: list[Work] = []
        self.last = False

    def end(self) -> None:
        """Nothing comes after it."""
        self.last = True

    def settle(self) -> None:
        """Answer whoever asked for a change or a look; on the loop."""
        for work in (*self.changes, *self.looks):
            work.settle()
