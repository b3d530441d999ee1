"""`Docs` in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator

from trunkline.errors import Conflict
from trunkline.store.records import START, AddedDoc, Cursor, Doc, DocChange, DocHint, Poll, TenantDoc
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.statements import statements

_SQL = statements("sqlite")


class SqliteDocs:
    """Documents; each write takes the next number of its kind, which is what a cursor counts."""

    def __init__(self, database: SqliteDatabase) -> None:
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

        def put(connection: sqlite3.Connection) -> int:
            row = connection.execute(_SQL["get_doc"], (tenant, kind, doc_id)).fetchone()
            rev = 0 if row is None else row[1]
            if rev != expected_rev:
                raise Conflict(rev)
            # Before anything is written: a conflict undoes nothing.
            if beside is not None:
                _add(connection, tenant, beside)
            values = {"tenant": tenant, "kind": kind, "id": doc_id, "rev": rev + 1, "body": body}
            connection.execute(_SQL["put_doc"], values)
            return rev + 1

        rev = await self._database.change(put)
        self._database.doc_hints.tell([DocHint(kind), *([DocHint(beside.kind)] if beside else [])])
        return rev

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """See `Docs`."""
        row = await self._database.read(
            lambda connection: connection.execute(_SQL["get_doc"], (tenant, kind, doc_id)).fetchone()
        )
        return None if row is None else Doc(*row)

    async def list(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[Doc]:
        """See `Docs`."""
        values = (tenant, kind, after, limit)
        rows = await self._database.read(
            lambda connection: connection.execute(_SQL["list_docs"], values).fetchall()
        )
        return [Doc(*row) for row in rows]

    async def kinds(self, tenant: str) -> list[str]:
        """See `Docs`."""
        rows = await self._database.read(
            lambda connection: connection.execute(_SQL["doc_kinds"], (tenant,)).fetchall()
        )
        return [kind for (kind,) in rows]

    async def list_all(
        self, kind: str, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> list[TenantDoc]:
        """See `Docs`."""
        rows = await self._database.read(
            lambda connection: connection.execute(_SQL["every_doc"], (kind, *after, limit)).fetchall()
        )
        return [TenantDoc(*row) for row in rows]

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """See `Docs`."""
        values = {"tenant": tenant, "kind": kind, "id": doc_id, "now": self._database.now_ms()}
        gone = await self._database.change(
            lambda connection: connection.execute(_SQL["delete_doc"], values).rowcount == 1
        )
        self._database.doc_hints.tell([DocHint(kind)])
        return gone

    def hints(self) -> AsyncIterator[DocHint | Poll]:
        """See `Docs`."""
        return self._database.doc_hints.listen()

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        values = (kind, int(cursor or "0"), limit)
        rows = await self._database.read(
            lambda connection: connection.execute(_SQL["doc_changes"], values).fetchall()
        )
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for tenant, doc_id, rev, body, gone, _ in rows
        ]
        return found, str(rows[-1][-1]) if rows else cursor


def _add(connection: sqlite3.Connection, tenant: str, new: AddedDoc) -> None:
    row = connection.execute(_SQL["get_doc"], (tenant, new.kind, new.id)).fetchone()
    if row is not None:
        raise Conflict(row[1])
    values = {"tenant": tenant, "kind": new.kind, "id": new.id, "rev": 1, "body": new.body}
    connection.execute(_SQL["put_doc"], values)
