"""The small writes of the SQLite store; each runs inside the writer thread's transaction.

Invariant: one that raises a StoreError has written nothing before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from trunkline.errors import Conflict
from trunkline.store.rows import json_text
from trunkline.store.statements import statements

_SQL, _ = statements("sqlite")


def clear_nodes(connection: sqlite3.Connection) -> None:
    """Forget the nodes of earlier processes: we hold the file's lock, so they are dead."""
    connection.execute(_SQL["clear_nodes"])
    connection.execute(_SQL["clear_leases"])


def join(connection: sqlite3.Connection, node: str, agents: Sequence[str], now: int) -> None:
    """Note a node and its agents."""
    connection.execute(_SQL["join"], (node, now, json_text(agents)))


def beat(connection: sqlite3.Connection, node: str, now: int) -> None:
    """Note that a node lives."""
    connection.execute(_SQL["beat"], (now, node))


def leave(connection: sqlite3.Connection, node: str) -> None:
    """Strike a node out."""
    connection.execute(_SQL["leave"], (node,))


def fire(connection: sqlite3.Connection, schedule: str, planned_at: int) -> bool:
    """Claim an instant."""
    return connection.execute(_SQL["fire"], (schedule, planned_at)).rowcount == 1


def put_doc(
    connection: sqlite3.Connection, tenant: str, kind: str, doc_id: str, *, body: bytes, expected_rev: int
) -> int:
    """Write a document over the revision its writer has seen."""
    row = connection.execute(_SQL["get_doc"], (tenant, kind, doc_id)).fetchone()
    rev = 0 if row is None else row[1]
    if rev != expected_rev:
        raise Conflict(rev)
    connection.execute(_SQL["put_doc"], (tenant, kind, doc_id, rev + 1, body))
    return rev + 1


def delete_doc(connection: sqlite3.Connection, tenant: str, kind: str, doc_id: str) -> bool:
    """Remove a document."""
    return connection.execute(_SQL["delete_doc"], (tenant, kind, doc_id)).rowcount == 1
