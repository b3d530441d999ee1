"""`Store` on PostgreSQL, shared by as many processes as there are replicas; its time is the database's."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.errors import StoreError
from trunkline.store.base import Store
from trunkline.store.parts import Docs, Heads
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.liveness import PostgresNodes
from trunkline.store.postgres.log import PostgresLog
from trunkline.store.postgres.maintenance import PostgresMaintenance
from trunkline.store.records import START, Cursor, Doc, DocChange

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
        nodes = PostgresNodes(self.database, self.database.liveness, node_ttl_s)
        self.log = PostgresLog(self.database)
        self.heads = Heads(self.database)
        self.docs = PostgresDocs(self.database)
        self.nodes = nodes
        self.maintenance = PostgresMaintenance(self.database, nodes)


class PostgresDocs(Docs):
    """Documents; a cursor is the oldest transaction that was still writing when they were read."""

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
