"""A store whose single calls a test overrides: the parts of a store are objects of their own."""

from __future__ import annotations

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
