"""The agents under test, each a real process, and both versions to talk to them in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.agent.talk import VERSIONS, Talk
from tests.conftest import Shelf
from tests.harness import Agent, ServerProcess

ROOT = Path(__file__).parents[3]
KEY = "an-agent-key-of-the-tests"
_ENV = {"PYTHONPATH": str(ROOT)}
_SUBJECT = "tests.conformance.agent.subject"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@contextmanager
def _talk(server: ServerProcess, version: str) -> Iterator[Talk]:
    agent = Agent(server.base)
    yield Talk(agent, version)
    agent.close()


@pytest.fixture
def talk(demo_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The demo agent."""
    with _talk(demo_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def subject_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    with ServerProcess(
        tmp_path_factory.mktemp("subject"), f"{_SUBJECT}:agent", store=shelf.store(), env=_ENV
    ) as server:
        yield server


@pytest.fixture
def subject(subject_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The agent that can be counted and held."""
    with _talk(subject_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def mute_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    directory, flags = tmp_path_factory.mktemp("mute"), ("--set", "push=false")
    with ServerProcess(
        directory, f"{_SUBJECT}:mute", *flags, store=shelf.store("memory:"), env=_ENV
    ) as server:
        yield server


@pytest.fixture
def mute(mute_server: ServerProcess, version: str) -> Iterator[Talk]:
    """An agent that neither streams nor pushes."""
    with _talk(mute_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def receipt_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    directory, store = tmp_path_factory.mktemp("receipt"), shelf.store()
    with ServerProcess(directory, "trunkline.demo:agent", "--set", "reply=receipt", store=store) as server:
        yield server


@pytest.fixture
def receipt(receipt_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The demo agent that answers at once unless asked to wait."""
    with _talk(receipt_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def lively_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    directory, flags = tmp_path_factory.mktemp("lively"), ("--set", "keep_alive=0.3")
    with ServerProcess(directory, f"{_SUBJECT}:agent", *flags, store=shelf.store(), env=_ENV) as server:
        yield server


@pytest.fixture
def lively(lively_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The agent that can be held, with keep-alives after 0.3 s of silence."""
    with _talk(lively_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    directory, store = tmp_path_factory.mktemp("keyed"), shelf.store()
    with ServerProcess(directory, "trunkline.demo:agent", "--key", KEY, store=store) as server:
        yield server


@pytest.fixture
def stranger(keyed_server: ServerProcess) -> Iterator[Agent]:
    """The agent with a key, spoken to without it."""
    agent = Agent(keyed_server.base)
    yield agent
    agent.close()


@pytest.fixture
def keyed(keyed_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The agent with a key, spoken to with it."""
    agent = Agent(keyed_server.base, headers={"X-API-Key": KEY})
    yield Talk(agent, version)
    agent.close()
