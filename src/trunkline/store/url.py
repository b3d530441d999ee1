"""Which store a URL means."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.store.base import Store
from trunkline.store.sqlite import SqliteStore

_SQLITE = "sqlite:///"


def store_from_url(url: str, *, now_ms: Callable[[], int] = now_ms) -> Store:
    """The store, not yet open.

    Raises:
        Misuse: the URL names none.
    """
    if url == "memory:":
        return SqliteStore(None, now_ms=now_ms)
    path = url.removeprefix(_SQLITE)
    if path and path != url and "?" not in path and "\0" not in path:
        return SqliteStore(path, now_ms=now_ms)
    raise Misuse(f"no store at {shown(url)!r}: use sqlite:///relative.db, sqlite:////absolute.db or memory:")


def shown(url: str) -> str:
    """The URL for logs and errors: without its login."""
    scheme, slashes, place = url.partition("://")
    return f"{scheme}{slashes}***@{place.rpartition('@')[2]}" if "@" in place and scheme != "sqlite" else url
