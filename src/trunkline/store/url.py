"""Which store a URL means."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

from trunkline.clock import now_ms as wall_clock
from trunkline.errors import Misuse
from trunkline.store.base import Store
from trunkline.store.sqlite.store import SqliteStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def store_from_url(url: str, *, now_ms: Callable[[], int] | None = None, read_only: bool = False) -> Store:
    """The store, not yet open. Its time is `now_ms`, or the store's own: the wall clock or the database's.

    `read_only` is for a look at a store that a server may have open: its schema is left as it is, and all
    that is read of it is as it stood at one moment, that of `open`.

    Raises:
        Misuse: the URL names none, or what it needs is not installed.
    """
    if url.startswith(_POSTGRES) and "\0" not in url:
        return _postgres(url, now_ms, read_only=read_only)
    if url == "memory:":
        return SqliteStore(None, now_ms=now_ms or wall_clock)
    path = url.removeprefix(_SQLITE)
    if path and path != url and "?" not in path and "\0" not in path:
        return SqliteStore(path, now_ms=now_ms or wall_clock, read_only=read_only)
    is_file = ":" not in url and url.endswith((".db", ".sqlite", ".sqlite3"))
    raise Misuse(
        f"no store at {shown(url)!r}: use sqlite:///relative.db, sqlite:////absolute.db, memory: "
        "or postgresql://user@host/database",
        hint=f"--store {_SQLITE}{shlex.quote(url) if is_file else 'trunkline.db'}",
    )


def database_file(url: str) -> str | None:
    """The file that a URL of a SQLite store means; None for the others."""
    path = url.removeprefix(_SQLITE)
    # The real one, as for its lock: what lies beside it must not depend on the name it is called by.
    return os.path.realpath(path) if path and path != url else None


def shown(url: str) -> str:
    """The URL for logs and errors: without its login and whatever its query holds."""
    scheme, slashes, place = url.partition("://")
    if scheme == "sqlite" or not slashes:
        return url
    login, at, rest = place.rpartition("@")
    return f"{scheme}{slashes}{'***' if login else ''}{at}{rest.partition('?')[0]}"


def _postgres(url: str, now_ms: Callable[[], int] | None, *, read_only: bool) -> Store:
    try:
        # The driver is an extra, and takes a third of the time that the rest of us takes to load.
        from trunkline.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Misuse(
            f"{shown(url)!r} needs the PostgreSQL driver: pip install 'trunkline[postgres]'"
        ) from None
    return PostgresStore(url, now_ms=now_ms, read_only=read_only)
