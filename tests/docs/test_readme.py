"""The README's agent is served and called exactly as it is printed there."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.harness import Agent, ServerProcess, plain_state, text_of

CODE = blocks("README.md", "python")[0]
COMMANDS = "\n".join(blocks("README.md", "sh"))


@pytest.fixture(scope="module")
def scribe(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("readme")
    (folder / "scribe.py").write_text(CODE)
    with ServerProcess(folder, "scribe:agent") as server:
        yield server


def _curls() -> list[str]:
    return [line for line in COMMANDS.splitlines() if line.startswith("curl ")]


def test_the_agent_is_ten_lines() -> None:
    assert len([line for line in CODE.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("command", _curls())
def test_curl_lines(scribe: ServerProcess, command: str) -> None:
    words = [word.replace("http://127.0.0.1:8000", scribe.base) for word in shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    answer = json.loads(done.stdout)
    assert answer.get("name") == "scribe" or text_of(answer["task"]) == "4 words"


def _calls() -> list[str]:
    ours = [line for line in COMMANDS.splitlines() if line.startswith("trunkline ")]
    return [line for line in ours if "127.0.0.1" in line]


@pytest.mark.parametrize("command", _calls())
def test_command_lines(scribe: ServerProcess, tmp_path: Path, command: str) -> None:
    words = shlex.split(command.replace("http://127.0.0.1:8000", scribe.base))[1:]
    ours = [sys.executable, "-m", "trunkline.cli", *words]
    done = subprocess.run(ours, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    shown = {"card": "Name: scribe", "send": "4 words", "doctor": " 0 failed"}[words[0]]
    assert shown in done.stdout


def test_the_client(scribe: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks("README.md", "python")[1].replace("http://127.0.0.1:8000", scribe.base)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "4 words",
        "That is short. Which text do you mean?",
        "2 words",
    ]


def test_its_question_is_answered_on_the_same_task(scribe: ServerProcess) -> None:
    agent = Agent(scribe.base)
    task = agent.send("hi")
    assert plain_state(task) == "input-required"
    answered = agent.send("one two", taskId=task["id"])
    assert (answered["id"], text_of(answered)) == (task["id"], "2 words")
    agent.close()


def test_first_screen_shows_both_commands() -> None:
    first = Path(__file__).parents[2].joinpath("README.md").read_text(encoding="utf-8").splitlines()[:20]
    assert any("make demo" in line for line in first)
    assert any("make test" in line for line in first)
