"""A runner with a time limit, and stores over one file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from trunkline.store.sqlite.store import SqliteStore

AT = 1_800_000_000_000


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine; all of a test share one loop."""

    async def limited(work: Coroutine[Any, Any, Any]) -> Any:
        async with asyncio.timeout(60):
            return await work

    with asyncio.Runner() as runner:
        yield lambda work: runner.run(limited(work))


async def look(store: SqliteStore, call: Callable[[sqlite3.Connection], Any]) -> Any:
    """A call with one of the store's reading connections."""
    return await store.database.read(call)


async def change(store: SqliteStore, call: Callable[[sqlite3.Connection], Any]) -> Any:
    """A call with the store's writing connection."""
    return await store.database.change(call)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def make(path: Path) -> Callable[[], SqliteStore]:
    return lambda: SqliteStore(str(path), now_ms=lambda: AT)


@pytest.fixture
def store(run: Any, make: Callable[[], SqliteStore]) -> Iterator[SqliteStore]:
    made = make()
    run(made.open())
    yield made
    run(made.close())
