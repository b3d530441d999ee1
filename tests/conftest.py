"""What every suite shares: hypothesis settings, and a visible skip where the JavaScript SDKs are missing."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres
from tests.harness import SECRET, Agent, ServerProcess
from tests.node import why_no_js
from tests.sample import THOROUGH

# Every worker reads all tests and hundreds of servers start: what was compiled once is kept for the next.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell lets what it runs in the background ignore interrupts, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Failures print the blob that repeats them. No deadline: a busy machine is not a bug.
settings.register_profile(
    "sample", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile("quick", parent=settings.get_profile("sample"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("sample"), max_examples=1_000)
settings.load_profile("thorough" if THOROUGH else "sample")

# Suites of real processes, or of every pair of many things: `make quick` leaves them to `make test`.
LONG = {"chaos", "conformance", "demo", "docs", "hostile", "interop", "model", "process"}
# What starts a process: by the name of a fixture, and by what is written in a test module, for reading it takes less
# time than to import it.
HEAVY_FIXTURES = {"demo_hub", "demo_server", "postgres_database", "pytester"}
HEAVY_TEXT = re.compile(
    r"^import subprocess$|^from tests import postgres$|\b(?:\w+Process|fronting|front_of_two)\(", re.MULTILINE
)
# What Python tells when a process is started.
PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More than there are cores, for many tests wait; those that start servers share what is left with these."""
    cores = os.cpu_count() or 1
    return cores * 2 if config.getoption("quick") else cores * 3 // 2 or 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking through it for garbage takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick` is what `make quick` asks for."""
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no process and no database server"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A quick run draws few cases and refuses to start a process, so that no test which does stays in it."""
    if config.getoption("quick"):
        settings.load_profile("quick")
        sys.addaudithook(refuse_processes)


def refuse_processes(event: str, given: tuple[object, ...], refused: frozenset[str] = PROCESS_EVENTS) -> None:
    """Raise where a test is about to start a process."""
    # Libraries of model providers ask `uname` once what machine they are on.
    if event in refused and given[:1] != ("uname",) and "PYTEST_CURRENT_TEST" in os.environ:
        raise RuntimeError("a quick test starts no process: mark it as slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing what would not run takes time too, so a quick run does not."""
    return True if config.getoption("quick") and _is_heavy_file(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A quick run keeps what is light; tests marked `js` are skipped where they cannot run."""
    if config.getoption("quick"):
        heavy = {item for item in items if _is_heavy(item)}
        config.hook.pytest_deselected(items=list(heavy))
        items[:] = [item for item in items if item not in heavy]
    marked = [item for item in items if item.get_closest_marker("js")]
    if marked and (reason := why_no_js()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def _suite(path: Path) -> str:
    """The folder below `tests` that a path is in."""
    tests = Path(__file__).parent
    return path.relative_to(tests).parts[0] if path.is_relative_to(tests) and path != tests else ""


def _is_heavy_file(path: Path) -> bool:
    return (
        _suite(path) in LONG
        or path.name == "postgres"
        or (path.suffix == ".py" and HEAVY_TEXT.search(path.read_text("utf-8")) is not None)
    )


def _is_heavy(item: pytest.Item) -> bool:
    drawn = getattr(item, "callspec", None)
    return (
        item.get_closest_marker("slow") is not None
        or not HEAVY_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        # A fixture that has a store of each kind asks for the database only then.
        or any(isinstance(one, str) and one == "postgres" for one in (drawn.params.values() if drawn else ()))
    )


class Shelf:
    """Where the servers of a test keep their tasks: each its own place on the same kind of store."""

    def __init__(self, database: postgres.Database | None = None) -> None:
        self._database = database

    def store(self, otherwise: str = "sqlite:///tasks.db") -> str:
        """The URL of a fresh store; `otherwise` is the one that is not PostgreSQL."""
        if self._database is None:
            return otherwise
        return self._database.fresh_schema()


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
