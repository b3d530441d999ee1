"""The stores under test, and a clock that only a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests import postgres
from trunkline.store.base import Store
from trunkline.store.url import store_from_url

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class HandClock:
    """Milliseconds that move by hand."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


class Bench:
    """One implementation: makes stores over the same place, runs coroutines with a time limit."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self.clock = HandClock()
        self.url = url
        self.lasts = url != "memory:"
        self._runner = runner

    def make(self) -> Store:
        return store_from_url(self.url, now_ms=self.clock)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(limited())


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    match request.param:
        case "sqlite-memory":
            url = "memory:"
        case "sqlite-file":
            url = f"sqlite:///{tmp_path}/store.db"
        case _:
            database: postgres.Database = request.getfixturevalue("postgres_database")
            database.empty()
            url = database.url
    with asyncio.Runner() as runner:
        yield Bench(url, runner)


@pytest.fixture
def run(bench: Bench) -> Run[Any]:
    return bench.run


@pytest.fixture
def clock(bench: Bench) -> HandClock:
    return bench.clock


@pytest.fixture
def store(bench: Bench) -> Iterator[Store]:
    """An open store, closed afterwards."""
    made = bench.make()
    bench.run(made.open())
    yield made
    bench.run(made.close())
