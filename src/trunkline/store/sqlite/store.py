"""`Store` on one SQLite file in WAL mode, or on the same code in memory."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.store.group_commit import Observer
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.sqlite.docs import SqliteDocs
from trunkline.store.sqlite.log import SqliteHeads, SqliteLog
from trunkline.store.sqlite.maintenance import SqliteMaintenance
from trunkline.store.sqlite.nodes import SqliteNodes
from trunkline.store.sqlite.outbox import SqliteOutbox
from trunkline.store.statements import statements

_SQL = statements("sqlite")


class SqliteClock:
    """`Clock` of this process: nobody else writes its file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def now(self) -> int:
        """See `Clock`."""
        return self._database.now_ms()

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """See `Clock`."""
        return await self._database.change(
            lambda connection: connection.execute(_SQL["fire"], (schedule, planned_at)).rowcount == 1
        )


class SqliteStore:
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open; all that
    it reads is as it stood at one moment.
    """

    # One process per file.
    shared = False

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        self.database = SqliteDatabase(path, now_ms=now_ms, read_only=read_only)
        self.log = SqliteLog(self.database)
        self.heads = SqliteHeads(self.database)
        self.docs = SqliteDocs(self.database)
        self.outbox = SqliteOutbox(self.database)
        self.nodes = SqliteNodes(self.database)
        self.clock = SqliteClock(self.database)
        self.maintenance = SqliteMaintenance(self.database)
        self.open = self.database.open
        self.close = self.database.close

    @property
    def migrated(self) -> tuple[int, int]:
        """See `Store`."""
        return self.database.migrated

    def observe(self, observer: Observer) -> None:
        """See `Store`."""
        self.database.group_commit.observer = observer
