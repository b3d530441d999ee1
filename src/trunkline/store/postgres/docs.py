"""`Docs` in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from trunkline.errors import Conflict, StoreError
from trunkline.store.postgres.address import EVERY_TENANT
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.sessions import fetch
from trunkline.store.records import START, AddedDoc, Cursor, Doc, DocChange, DocHint, Poll, TenantDoc

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection


class PostgresDocs:
    """Documents; a cursor is the oldest transaction that was still writing when they were read."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(
        self,
        tenant: str,
        kind: str,
        doc_id: str,
        body: bytes,
        expected_rev: int,
        *,
        beside: AddedDoc | None = None,
    ) -> int:
        """See `Docs`."""
        key = {"tenant": tenant, "kind": kind, "id": doc_id}

        async def put(connection: Connection) -> int:
            other = None if beside is None else {"tenant": tenant, "kind": beside.kind, "id": beside.id}
            # Before anything is written: a conflict undoes nothing.
            if other is not None and (there := await fetch(connection, "get_doc", **other)):
                raise Conflict(there[0]["rev"])
            if expected_rev == 0:
                rows = await fetch(connection, "add_doc", **key, body=body)
            else:
                rows = await fetch(connection, "put_doc", **key, body=body, rev=expected_rev)
            if rows:
                if other is not None and beside is not None:
                    await fetch(connection, "add_doc", **other, body=beside.body)
                return rows[0][0]
            found = await fetch(connection, "get_doc", **key)
            raise Conflict(found[0]["rev"] if found else 0)

        rev = await self._database.change(put, tenant)
        for one in (kind, *([beside.kind] if beside else [])):
            self._database.tell_docs(one)
        return rev

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """See `Docs`."""
        call = partial(fetch, name="get_doc", tenant=tenant, kind=kind, id=doc_id)
        rows = await self._database.read(tenant, call)
        return Doc(*rows[0]) if rows else None

    async def list(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[Doc]:
        """See `Docs`."""
        call = partial(fetch, name="list_docs", tenant=tenant, kind=kind, after=after, limit=limit)
        return [Doc(*row) for row in await self._database.read(tenant, call)]

    async def kinds(self, tenant: str) -> list[str]:
        """See `Docs`."""
        call = partial(fetch, name="doc_kinds", tenant=tenant)
        return [kind for (kind,) in await self._database.read(tenant, call)]

    async def list_all(
        self, kind: str, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> list[TenantDoc]:
        """See `Docs`."""
        call = partial(fetch, name="every_doc", kind=kind, after=after[0], after_id=after[1], limit=limit)
        return [TenantDoc(*row) for row in await self._database.read(EVERY_TENANT, call)]

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """See `Docs`."""
        now = self._database.now_ms()
        call = partial(fetch, name="delete_doc", tenant=tenant, kind=kind, id=doc_id, now=now)
        gone = bool(await self._database.change(call, tenant))
        self._database.tell_docs(kind)
        return gone

    def hints(self) -> AsyncIterator[DocHint | Poll]:
        """See `Docs`."""
        return self._database.doc_hints.listen()

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
        call = partial(
            fetch, name="doc_changes", kind=kind, xid=xid or begin, tenant=after, id=after_id, limit=limit
        )
        rows = await self._database.read(EVERY_TENANT, call)
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
