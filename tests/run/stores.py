"""A store whose single calls a test overrides: the parts of a store are objects of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from trunkline.store.sqlite.store import SqliteStore

PARTS = {
    "log": ("append", "read", "hints"),
    "outbox": ("take", "settle", "expire"),
    "nodes": ("join", "beat", "leave", "alive", "orphans"),
    "maintenance": ("prune",),
}


class Intercepted(SqliteStore):
    """A store in memory; a subclass defines `append`, `read` and so on, and calls the real one by `super()`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(None, now_ms=now_ms)
        self.real: dict[str, Callable[..., Any]] = {}
        for part, names in PARTS.items():
            for name in names:
                self.real[name] = getattr(getattr(self, part), name)
                setattr(getattr(self, part), name, getattr(self, name))


def _through(name: str) -> Callable[..., Any]:
    def call(self: Intercepted, *args: Any, **kwargs: Any) -> Any:
        return self.real[name](*args, **kwargs)

    return call


for names in PARTS.values():
    for name in names:
        setattr(Intercepted, name, _through(name))


async def damage(store: SqliteStore, task_id: str) -> None:
    """Lose the first word of a log."""

    def cut(connection: sqlite3.Connection) -> None:
        first = "DELETE FROM events WHERE seq = 1 AND task = (SELECT num FROM tasks WHERE task_id = ?)"
        connection.execute(first, (task_id,))

    await store.database.change(cut)


async def set_back(store: SqliteStore, task_id: str, seq: int) -> None:
    """Lose what was appended to a log after a seq, as a failover to a standby that was behind may do."""

    def cut(connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM events WHERE seq > ? AND task = (SELECT num FROM tasks WHERE task_id = ?)",
            (seq, task_id),
        )

    await store.database.change(cut)
    store.database.plan.forget((task_id,))
    await store.heads.rebuild()
