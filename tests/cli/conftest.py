"""The command line as a test runs it: in this process, in an empty folder, without a setting of the machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.peers import Scripted, served
from trunkline.cli.main import main
from trunkline.config import Settings
from trunkline.demo.agent import agent

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def trunkline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `trunkline` with these words: exit code, output, complaint."""
    for field in Settings.__struct_fields__:
        monkeypatch.delenv(f"TRUNKLINE_{field.upper()}", raising=False)
    for name in [name for name in os.environ if name.startswith("A2ACLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trunkline", *args])
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            # A command's log goes to a standard error that is closed when its test is over.
            root.handlers[:] = handlers
            root.setLevel(level)
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int | None)
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.fixture(scope="session")
def demo_url() -> Iterator[str]:
    """Our demo agent, served by a thread of this process."""
    with served(agent.asgi(store="memory:", dev=True, log_level="error")) as url:
        yield url


class Stage:
    """A server that outlives the agents it shows: starting one for every test would take longer than the test."""

    def __init__(self) -> None:
        self.peer = Scripted()
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.peer(scope, receive, send)


@pytest.fixture(scope="session")
def stages() -> Iterator[list[Stage]]:
    """Room for two agents at a time."""
    with ExitStack() as stack:
        found = [Stage(), Stage()]
        for stage in found:
            stage.url = stack.enter_context(served(stage))
        yield found


@pytest.fixture
def scripted(stages: list[Stage]) -> Callable[..., Scripted]:
    """Make an agent that answers as the test says."""
    free = iter(stages)

    def make(**card: Any) -> Scripted:
        stage = next(free)
        stage.peer = Scripted(**card)
        stage.peer.url = stage.url
        return stage.peer

    return make
