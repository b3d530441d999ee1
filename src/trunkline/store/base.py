"""The seams of storage: what every store must do, told once.

Two rules hold for all of them. An acknowledged append has been fsynced (the in-memory store aside). Every
method that touches a task carries its tenant. Nothing here is SQL; nothing outside `store/` is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from trunkline.log.events import AnyEvent, Recorded
from trunkline.log.head import Head
from trunkline.store.database import Database
from trunkline.store.group_commit import Ack, Observer
from trunkline.store.outbox import Outbox
from trunkline.store.parts import Clock, Docs, Heads, Maintenance, Nodes
from trunkline.store.records import AppendPage, Cursor, Dedup, Hint, OutboxEntry, Poll, TailRecord


class Log(Protocol):
    """The events of every task, which are the only truth about it."""

    def append(
        self,
        tenant: str,
        task_id: str,
        expected: int,
        events: Sequence[AnyEvent],
        *,
        at: int,
        head: Head | None = None,
        deliveries: Sequence[OutboxEntry] = (),
        dedup: Dedup | None = None,
        claim: Dedup | None = None,
    ) -> Ack:
        """Add events after seq `expected`, all or none; gives the new last seq.

        The keys `dedup` and `claim` are recorded in the same transaction.

        Raises:
            Conflict: the log does not stand at `expected`.
            Duplicate: one of the keys was recorded before and has not expired; `dedup` is judged first.
            StoreError: not written; nothing was acknowledged.
            TaskFull: it is larger than a whole task may be.
        """
        ...

    async def read(self, tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """Events after seq `after`, dense and in order: `limit` of them, fewer only where the log ends.

        Raises:
            StoreError: the store failed, or one of them cannot be read back.
        """
        ...

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """Which logs have grown, here or elsewhere; some hints may be lost, none is false."""
        ...

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """What the named logs hold beyond the named seqs: per task dense and in order.

        Fewer than `limit` events in all mean that this is everything; else ask again from where they end.

        Raises:
            StoreError: the store failed, or the log of `damaged_task` is damaged or too short: leave it out.
        """
        ...

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """The whole log in commit order from a cursor (`START` first): at least once, never skips."""
        ...

    async def tail_appends(self, cursor: Cursor, limit: int = 1000) -> AppendPage:
        """The same by whole appends; only the first may lack its beginning, if the cursor lies inside it."""
        ...

    async def end(self) -> Cursor:
        """The cursor behind everything that `tail` gives now; `START` if that is nothing."""
        ...


class Store:
    """One store by its parts, and its life: opened once, on the loop that uses it, then closed."""

    log: Log
    heads: Heads
    docs: Docs
    nodes: Nodes
    maintenance: Maintenance
    shared: bool  # Whether other processes may write to it too.

    def __init__(self, database: Database) -> None:
        self._database = database
        self.clock = Clock(database)
        self.outbox = Outbox(database)

    @property
    def migrated(self) -> tuple[int, int]:
        """The version of the schema before it was opened, and after."""
        return self._database.migrated

    def observe(self, observer: Observer) -> None:
        """Have every group of appends told when it has ended."""
        self._database.group_commit.observer = observer

    async def open(self) -> None:
        """Migrate the database and start the store.

        Raises:
            StoreInUse: another process has it; the message names the way out.
            StoreError: it cannot be opened, or was written by a newer version.
        """
        await self._database.open()

    async def close(self) -> None:
        """Write what was accepted, then let go."""
        await self._database.close()
