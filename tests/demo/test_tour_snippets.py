"""The snippets that the tour prints work as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ServerProcess
from tests.node import NODE, PACKAGES
from trunkline.demo.tour import SNIPPETS

COMMANDS, CLIENT, CURL, SDK, JAVASCRIPT = [text for _, text in SNIPPETS]
# What can be pasted is about clients: where the server keeps its tasks makes no difference to it.
pytestmark = pytest.mark.parametrize("shelf", ["sqlite"], indirect=True, scope="session")


def _run(command: list[str], **more: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_our_own_command_line(demo_server: ServerProcess, tmp_path: Path) -> None:
    command = f"{sys.executable} -m trunkline.cli"
    lines = COMMANDS.replace("{base}", demo_server.base).replace("{trunkline}", command)
    sent, streamed, listed = (_run(["bash", "-c", line], cwd=tmp_path) for line in lines.splitlines())
    assert "echo hello" in sent and "TASK_STATE_COMPLETED" in sent
    assert re.findall(r"^  (\d+) $", streamed, re.MULTILINE) == [str(number) for number in range(1, 11)]
    assert re.findall(r"[0-9a-f-]{36}", sent)[0] in listed


def test_our_own_client(demo_server: ServerProcess) -> None:
    said = _run([sys.executable, "-c", CLIENT.replace("{base}", demo_server.base)])
    assert said.split() == ["echo", "hello", "1", "2", "3", "4", "5"]


def test_curl(demo_server: ServerProcess) -> None:
    said = _run(["bash", "-e", "-c", CURL.replace("{base}", demo_server.base)])
    assert "echo hello" in said
    assert said.count("data: ") >= 10
    assert '"nextPageToken"' in said


@pytest.mark.sdk
def test_the_official_client(demo_server: ServerProcess) -> None:
    said = _run([sys.executable, "-c", SDK.replace("{base}", demo_server.base)])
    assert said.split() == ["1", "2", "3", "4", "5"]


@pytest.mark.js
def test_javascript(demo_server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "@a2a-js").mkdir()
    (tmp_path / "node_modules" / "@a2a-js" / "sdk").symlink_to(PACKAGES / "a2a-js-1")
    (tmp_path / "try.mjs").write_text(JAVASCRIPT.replace("{base}", demo_server.base))
    said = _run([NODE, "try.mjs"], cwd=tmp_path)
    assert '"artifactUpdate"' in said
