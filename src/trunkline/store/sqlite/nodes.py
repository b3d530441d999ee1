"""`Nodes` in a SQLite file: one process writes it, so its nodes are those of this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from trunkline.store.columns import STATES, orphan
from trunkline.store.records import NodeRecord, Orphan, TaskRef, Waiting
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.statements import Value, json_text, statements

_SQL = statements("sqlite")


class SqliteNodes:
    """Who joined and has not left. A node of an earlier process is forgotten when the file is opened."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        await self._change("join", (node, self._database.now_ms(), json_text(agents)))

    async def beat(self, node: str) -> None:
        """See `Nodes`."""

        def change(connection: sqlite3.Connection) -> None:
            self._database.check_files()
            connection.execute(_SQL["beat"], (self._database.now_ms(), node))

        await self._database.change(change)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        await self._change("leave", (node,))

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return bool(await self._rows("alive", {"node": node}))

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        rows = await self._rows("nodes", {})
        return [NodeRecord(node, _agents(text), True, beat) for node, text, beat in rows]

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        values = {"agents": json_text(agents), "now": self._database.now_ms(), "limit": limit}
        return [orphan(*row) for row in await self._rows("orphans", values)]

    async def claimed(
        self, node: str, agents: Sequence[str], limit: int = 100, after: str = ""
    ) -> list[Orphan]:
        """See `Nodes`."""
        values = {"node": node, "agents": json_text(agents), "limit": limit, "after": after}
        return [Orphan(*row) for row in await self._rows("claimed", values)]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        rows = await self._rows("waiting", {"tenant": tenant, "limit": limit, "after": after})
        return [
            Waiting(of_tenant, task_id, agent, STATES[state]) for of_tenant, task_id, agent, state in rows
        ]

    async def rested_children(self, limit: int = 100) -> list[TaskRef]:
        """See `Nodes`."""
        rows = await self._rows("rested_children", {"now": self._database.now_ms(), "limit": limit})
        return [TaskRef(*row) for row in rows]

    async def open_children_of_ended(self, limit: int = 100) -> list[TaskRef]:
        """See `Nodes`."""
        rows = await self._rows("open_children_of_ended", {"limit": limit})
        return [TaskRef(tenant, task_id) for tenant, task_id in rows]

    async def _change(self, name: str, values: Sequence[Value]) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(_SQL[name], values)

        await self._database.change(change)

    async def _rows(self, name: str, values: Mapping[str, Value]) -> list[sqlite3.Row]:
        return await self._database.read(lambda connection: connection.execute(_SQL[name], values).fetchall())


def _agents(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])
