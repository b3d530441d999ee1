"""The agents under test, each a real process, and both versions to talk to them in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.agent.talk import VERSIONS, Talk
from tests.conftest import Shelf
from tests.harness import SECRET, Agent, ServerProcess
from tests.hub.test_hub import HubProcess

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KEY = "an-agent-key-of-the-tests"
_ENV = {"PYTHONPATH": str(ROOT), **SECRET}
_SUBJECT = "tests.conformance.agent.subject"
# What a hub answers otherwise, by the checks that show it.
_AT_A_HUB = {
    "test_AG_03_a_false_streaming_flag_is_honest": "a hub streams for agents that do not",
    "test_AG_10_parts_that_no_skill_reads": "a refusal is a task born rejected",
    "test_AG_21_a_bad_send_answers_400[hub-no such skill]": "a refusal is a task born rejected",
    "test_AG_24_a_hint_that_names_no_skill": "a refusal is a task born rejected",
    "test_AG_56_declared_skills_exist": "effects of skills are on the cards of their agents",
    "test_AG_59_what_a_skill_declares_is_what_its_runs_do": "effects of skills are on the cards of their agents",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what does not hold of a hub."""
    for item in items:
        if item.path.parent == HERE and "[hub-" in item.name:
            names = (item.name, item.name.partition("[")[0])
            if reason := next((_AT_A_HUB[name] for name in names if name in _AT_A_HUB), ""):
                item.add_marker(pytest.mark.skip(reason=reason))


class Place:
    """Where the agents under test are served: each alone, or as the one that answers for a hub."""

    def __init__(self, shelf: Shelf, directories: pytest.TempPathFactory, *, at_hub: bool) -> None:
        self._shelf = shelf
        self._directories = directories
        self._at_hub = at_hub

    def serve(
        self, target: str = "trunkline.demo:agent", *flags: str, store: str = "sqlite:///tasks.db"
    ) -> ServerProcess:
        directory = self._directories.mktemp("agent")
        if not self._at_hub:
            return ServerProcess(directory, target, *flags, store=self._shelf.store(store), env=_ENV)
        (directory / "agents.yaml").write_text(f"agents: [{{name: subject, import: '{target}'}}]\n")
        (directory / "hub.yaml").write_text("helm: subject\n")
        return HubProcess(directory, "--store", store, *flags, env=_ENV)


@pytest.fixture(scope="session", params=["sqlite", "postgres", "hub"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Every check of an agent is one of a hub too, and of both stores."""
    at_postgres = request.param == "postgres"
    shelf = Shelf(request.getfixturevalue("postgres_database") if at_postgres else None)
    return Place(shelf, tmp_path_factory, at_hub=request.param == "hub")


@pytest.fixture(scope="session")
def demo_server(place: Place) -> Iterator[ServerProcess]:
    """The demo agent."""
    with place.serve() as server:
        yield server


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
def subject_server(place: Place) -> Iterator[ServerProcess]:
    with place.serve(f"{_SUBJECT}:agent") as server:
        yield server


@pytest.fixture
def subject(subject_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The agent that can be counted and held."""
    with _talk(subject_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def mute_server(place: Place) -> Iterator[ServerProcess]:
    with place.serve(f"{_SUBJECT}:mute", "--set", "push=false", store="memory:") as server:
        yield server


@pytest.fixture
def mute(mute_server: ServerProcess, version: str) -> Iterator[Talk]:
    """An agent that neither streams nor pushes."""
    with _talk(mute_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def receipt_server(place: Place) -> Iterator[ServerProcess]:
    with place.serve("trunkline.demo:agent", "--set", "reply=receipt") as server:
        yield server


@pytest.fixture
def receipt(receipt_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The demo agent that answers at once unless asked to wait."""
    with _talk(receipt_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def lively_server(place: Place) -> Iterator[ServerProcess]:
    with place.serve(f"{_SUBJECT}:agent", "--set", "keep_alive=0.3") as server:
        yield server


@pytest.fixture
def lively(lively_server: ServerProcess, version: str) -> Iterator[Talk]:
    """The agent that can be held, with keep-alives after 0.3 s of silence."""
    with _talk(lively_server, version) as made:
        yield made


@pytest.fixture(scope="session")
def keyed_server(place: Place) -> Iterator[ServerProcess]:
    with place.serve("trunkline.demo:agent", "--key", KEY) as server:
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
