"""One server per suite, which must be the same afterwards: alive, right, no bigger, nothing broken in its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import Agent, ServerProcess, plain_state, text_of

ROOT = Path(__file__).parents[2]
GROWTH_KIB = 32 * 1024
BROKEN = re.compile(
    r"Traceback|request\.broke|Internal|Exception|store\.failed|background\.failed|never awaited"
)


def resident_kib(server: ServerProcess, what: str = "VmRSS") -> int:
    """The resident memory of the server process; `VmHWM` is the most it ever had."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    assert found, status
    return int(found[1])


@contextmanager
def survivor(directory: Path, target: str = "trunkline.demo:agent", *flags: str) -> Iterator[ServerProcess]:
    """A server that is looked at before and after."""
    with ServerProcess(directory, target, *flags, env={"PYTHONPATH": str(ROOT)}) as server:
        # What a first request of each kind loads is not growth.
        _check_right(server)
        before = resident_kib(server)
        yield server
        assert server.process is not None and server.process.poll() is None, server.text()[-4000:]
        _check_right(server)
        growth = resident_kib(server) - before
        print(f"server memory grew by {growth} KiB from {before} KiB")
        assert growth <= GROWTH_KIB
        assert not (broken := BROKEN.search(server.text())), server.text()[max(0, broken.start() - 500) :][
            :3000
        ]


def _check_right(server: ServerProcess) -> None:
    agent = Agent(server.base)
    try:
        for version in ("1.0", "0.3"):
            task = agent.send("echo all is well", version=version)
            assert plain_state(task) == "completed"
            assert "all is well" in text_of(task)
            assert agent.get(task["id"], version=version) == task
        assert agent.http.get(f"{server.base}/.well-known/agent-card.json").status_code == 200
        assert agent.http.get(f"{server.base}/tasks", params={"pageSize": 2}).status_code == 200
    finally:
        agent.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The demo agent on SQLite."""
    with survivor(
        tmp_path_factory.mktemp("hostile"), "trunkline.demo:agent", "--log-level", "warning"
    ) as server:
        yield server


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The agent that repeats its input in every field."""
    with survivor(
        tmp_path_factory.mktemp("mirror"), "tests.hostile.mirror:agent", "--log-level", "warning"
    ) as server:
        yield server


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ServerProcess]:
    """A server with flags of one's own; start it with `with`."""

    def start(*flags: str, target: str = "trunkline.demo:agent", **env: str) -> ServerProcess:
        return ServerProcess(tmp_path, target, *flags, env={"PYTHONPATH": str(ROOT), **env})

    return start
