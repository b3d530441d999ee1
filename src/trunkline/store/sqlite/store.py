"""`Store` on one SQLite file in WAL mode, or on the same code in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trunkline.store.base import Store
from trunkline.store.columns import STATES, orphan
from trunkline.store.database import Rows
from trunkline.store.parts import Docs, Nodes
from trunkline.store.records import START, Cursor, Doc, DocChange, NodeRecord, Orphan, Waiting
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.sqlite.log import SqliteHeads, SqliteLog
from trunkline.store.sqlite.maintenance import SqliteMaintenance


class SqliteStore(Store):
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open; all that
    it reads is as it stood at one moment.
    """

    # One process per file.
    shared = False

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        self.database = SqliteDatabase(path, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        self.log = SqliteLog(self.database)
        self.heads = SqliteHeads(self.database)
        self.docs = SqliteDocs(self.database)
        self.nodes = SqliteNodes(self.database)
        self.maintenance = SqliteMaintenance(self.database)


class SqliteNodes(Nodes):
    """Who joined and has not left. A node of an earlier process is forgotten when the file is opened."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._check_files = database.check_files

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        await self._database.write("join", node=node, beat=self._database.now_ms(), agents=agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""

        async def beat(rows: Rows) -> None:
            self._check_files()
            await rows("beat", node=node, beat=self._database.now_ms())

        await self._database.transaction(beat)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        await self._database.write("leave", node=node)

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return bool(await self._database.rows("alive", node=node))

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        rows = await self._database.rows("nodes")
        return [
            NodeRecord(node, msgspec.json.decode(agents, type=tuple[str, ...]), True, beat)
            for node, agents, beat in rows
        ]

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        now = self._database.now_ms()
        found = await self._database.rows("orphans", agents=agents, now=now, limit=limit)
        return [orphan(*row) for row in found]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        rows = await self._database.rows("waiting", tenant, limit=limit, after=after)
        return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]


class SqliteDocs(Docs):
    """Documents; each write takes the next number of its kind, which is what a cursor counts."""

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        rows = await self._database.rows("doc_changes", kind=kind, after=int(cursor or "0"), limit=limit)
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for tenant, doc_id, rev, body, gone, _ in rows
        ]
        return found, str(rows[-1][-1]) if rows else cursor
