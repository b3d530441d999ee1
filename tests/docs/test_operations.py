"""The store commands of the operations page, run one after the other as they are printed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import blocks
from tests.harness import Agent, ServerProcess

COMMANDS = [
    line
    for block in blocks("docs/operations.md", "sh")
    for line in block.splitlines()
    if line.startswith("trunkline store ")
]


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", "from trunkline.cli.main import main; main()", *shlex.split(command)[1:]]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_store_commands(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        sent = agent.send("echo hello")["id"]
        agent.close()
        server.stop()
    said = {command.split()[2]: run(tmp_path, command) for command in COMMANDS}
    assert sorted(said) == ["check", "export", "import", "prune"]
    assert {name: (done.returncode, done.stderr) for name, done in said.items()} == dict.fromkeys(
        said, (0, "")
    )
    assert json.loads(said["check"].stdout)["tasks"] == {"completed": 1}
    assert said["prune"].stdout == "forgotten  0\ncompacted  0\n"
    assert said["import"].stdout.startswith("imported   1 tasks, ")
    header, *events = [json.loads(line) for line in said["export"].stdout.splitlines()]
    assert header["format"] == 1
    assert {event["task"] for event in events} == {sent}
    assert run(tmp_path, "trunkline store migrate --store sqlite:///tasks.db").stdout.endswith("up to date\n")
