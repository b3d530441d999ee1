"""`Store` on PostgreSQL, shared by as many processes as there are replicas; its time is the database's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trunkline.errors import Conflict, StoreError
from trunkline.store.base import Store
from trunkline.store.parts import Docs
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.log import PostgresHeads, PostgresLog
from trunkline.store.postgres.maintenance import PostgresMaintenance
from trunkline.store.postgres.nodes import PostgresNodes
from trunkline.store.postgres.outbox import PostgresOutbox
from trunkline.store.postgres.sessions import fetch
from trunkline.store.records import START, AddedDoc, Cursor, Doc, DocChange

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

NODE_TTL_SECONDS = 3.0


class PostgresStore(Store):
    """`Store` on a database. Opened once, on the loop that uses it."""

    # As many processes as you like.
    shared = True

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.database = PostgresDatabase(url, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        nodes = PostgresNodes(self.database, node_ttl_s)
        self.log = PostgresLog(self.database)
        self.heads = PostgresHeads(self.database)
        self.docs = PostgresDocs(self.database)
        self.outbox = PostgresOutbox(self.database)
        self.nodes = nodes
        self.maintenance = PostgresMaintenance(self.database, nodes)


class PostgresDocs(Docs):
    """Documents; a cursor is the oldest transaction that was still writing when they were read."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def _put(self, tenant: str, doc: AddedDoc, expected_rev: int, beside: AddedDoc | None) -> int:
        key = {"tenant": tenant, "kind": doc.kind, "id": doc.id}

        async def put(connection: Connection) -> int:
            other = None if beside is None else {"tenant": tenant, "kind": beside.kind, "id": beside.id}
            # Before anything is written: a conflict undoes nothing.
            if other is not None and (there := await fetch(connection, "get_doc", **other)):
                raise Conflict(there[0]["rev"])
            if expected_rev == 0:
                rows = await fetch(connection, "add_doc", **key, body=doc.body)
            else:
                rows = await fetch(connection, "put_doc", **key, body=doc.body, rev=expected_rev)
            if rows:
                if other is not None and beside is not None:
                    await fetch(connection, "add_doc", **other, body=beside.body)
                return rows[0][0]
            found = await fetch(connection, "get_doc", **key)
            raise Conflict(found[0]["rev"] if found else 0)

        return await self._database.change(put, tenant)

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        # Where the next look begins, and behind what this one goes on if it is in the middle of its pages.
        begin, _, behind = (cursor or "0").partition(" ")
        xid, _, place = behind.partition(" ")
        after, _, after_id = place.partition(" ")
        if not (begin + xid).isdecimal():
            raise StoreError(f"cursor {cursor[:200]!r} is not from this store; start again without it")
        rows = await self._database.rows(
            "doc_changes", kind=kind, xid=xid or begin, after=after, after_id=after_id, limit=limit
        )
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for _, _, tenant, doc_id, rev, body, gone in rows
            # The one row that is always there carries the cursor.
            if tenant is not None
        ]
        # What was still being written at the first page of a look is behind all of its pages.
        horizon = begin if behind else rows[0][0]
        if len(found) < limit:
            return found, horizon
        return found, f"{horizon} {rows[-1][1]} {found[-1].tenant} {found[-1].id}"
