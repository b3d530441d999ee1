"""A server that tests may crash, and stores over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests import postgres
from trunkline.store.postgres.store import PostgresStore

Opened = Callable[..., AbstractAsyncContextManager[PostgresStore]]


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """A server of this file's own, running at the start of each test."""
    if reason := "" if postgres.binaries() else "no PostgreSQL binaries to start and crash":
        pytest.skip(reason)
    made = postgres.Server()
    made.start()
    yield made
    made.close()


@pytest.fixture
def url(server: postgres.Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database on it."""
    database = postgres.Database(server.url(), "own")
    yield database.url
    database.drop()


@pytest.fixture
def opened() -> Opened:
    """A store for the length of a block."""

    @asynccontextmanager
    async def opening(url: str, **more: float) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(url, **more)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return opening


async def until(condition: Callable[[], object], seconds: float = 30.0) -> float:
    """Wait for something that is asked again and again; gives the seconds it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return loop.time() - started
            await asyncio.sleep(0.01)
