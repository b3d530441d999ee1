"""What every suite shares: hypothesis settings, and a visible skip where Node is missing."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres
from tests.harness import SECRET, Agent, ServerProcess

JS = Path(__file__).parent / "interop" / "js"

# Every worker reads all tests and hundreds of servers start: what was compiled once is kept for the next.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Failures print the blob that repeats them. No deadline: a busy machine is not a bug.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile("default")


def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: many tests wait for a server, a limit or a database."""
    return (os.cpu_count() or 1) * 3 // 2 or 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking through it for garbage takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `js` are skipped, with the reason, where they cannot run."""
    marked = [item for item in items if item.get_closest_marker("js")]
    if marked and (reason := _why_no_js()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@cache
def _why_no_js() -> str:
    node = shutil.which("node")
    if node is None:
        return "Node is not installed"
    version = subprocess.run(
        [node, "--version"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    if int(version.strip().lstrip("v").split(".")[0]) < 20:
        return f"Node 20 or newer is needed, found {version.strip()}"
    if not all((JS / "node_modules" / name).is_dir() for name in ("a2a-js-1", "express")):
        return "the JavaScript SDKs are not installed: run `make js`"
    return ""


class Shelf:
    """Where the servers of a test keep their tasks: each its own place on the same kind of store."""

    def __init__(self, database: postgres.Database | None = None) -> None:
        self._database = database
        self._count = 0

    def store(self, otherwise: str = "sqlite:///tasks.db") -> str:
        """The URL of a fresh store; `otherwise` is the one that is not PostgreSQL."""
        if self._database is None:
            return otherwise
        self._count += 1
        return f"{self._database.url}?schema=shelf_{self._count}"


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    """Every server test that touches tasks runs on both."""
    if request.param == "sqlite":
        return Shelf()
    return Shelf(request.getfixturevalue("postgres_database"))


@pytest.fixture(scope="session")
def demo_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    """One demo agent for every test that does not need its own."""
    with ServerProcess(tmp_path_factory.mktemp("demo"), store=shelf.store(), env=SECRET) as server:
        yield server


@pytest.fixture
def demo(demo_server: ServerProcess) -> Iterator[Agent]:
    """The demo agent, spoken to by hand."""
    agent = Agent(demo_server.base)
    yield agent
    agent.close()


@pytest.fixture(scope="session")
def postgres_database(worker_id: str) -> Iterator[postgres.Database]:
    """A database of this worker on a real server, which is started for it."""
    if reason := postgres.why_none():
        pytest.skip(reason)
    database = postgres.database(f"trunkline_{worker_id}")
    yield database
    database.drop()


@pytest.fixture
def postgres_url(postgres_database: postgres.Database) -> str:
    """The URL of an empty store on PostgreSQL, by a login that is no superuser."""
    postgres_database.empty()
    return postgres_database.url
