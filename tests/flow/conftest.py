"""Tests of workflows may be coroutines: each runs in a loop of its own, within a time; stores, and an agent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import ServerProcess

LONGEST_S = 120.0
KEY = "key-of-the-test"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**wanted), LONGEST_S))
    return True


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def flow_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(scope="session")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An agent to delegate to, in a process of its own, behind a key."""
    with ServerProcess(
        tmp_path_factory.mktemp("coder"),
        "tests.flow.coder:agent",
        store="memory:",
        env={"TRUNKLINE_KEYS": KEY, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as server:
        yield server
