"""Each error of the command line says what is wrong, where, and which command to run next."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Run

AGENT = """
from trunkline import Agent, Turn
agent = Agent("scribe")
@agent.skill
async def count(turn: Turn) -> str:
    return turn.text
"""


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("serve scrib:agent", "no module 'scrib' here", "trunkline serve scribe:agent"),
        ("serve scribe:agnt", "scribe has no Agent named 'agnt'", "trunkline serve scribe:agent"),
        ("serve scribe.py:agent", "names a file", "trunkline serve scribe:agent"),
        ("serve broken:agent", "broken does not import at broken.py:1", "pip install nosuchlib"),
        ("serve torn:agent", "torn does not import", "python -m torn"),
        (
            "serve scribe:agent --set retnetion=5",
            "did you mean 'retention'?",
            "trunkline config show --server",
        ),
        ("serve scribe:agent --retnetion 5", "did you mean --set retention=…?", "trunkline help serve"),
        ("serve scribe:agent --port x", "--port", "trunkline help serve"),
        ("sned x", "No such command 'sned'", "trunkline send x"),
        ("task lits", "No such command 'lits'", "trunkline task list"),
        ("task list", "no agent is named", "trunkline task list --agent-card URL"),
        ("send 127.0.0.1:1 hi", "is no whole URL", "trunkline card get -a 127.0.0.1:1"),
        ("send http://127.0.0.1:1 --data {bad", "--data: {bad holds no JSON", "trunkline help send"),
        (
            "send http://127.0.0.1:1 hi",
            "127.0.0.1:1: nobody answers",
            "is it running? trunkline serve MODULE:AGENT",
        ),
        (
            "dispatch hi --skill x",
            "trunkline.db cannot be opened",
            "trunkline dispatch hi --skill x --store DIR",
        ),
        ("store check", "trunkline.db cannot be opened", "trunkline store check --store DIR"),
        (
            "store check --store sqlite:///text.db",
            "file is not a database",
            "trunkline store check --store sqlite:///other.db",
        ),
    ],
)
def test_an_error_names_the_next_command(
    trunkline: Run, tmp_path: Path, words: str, error: str, hint: str
) -> None:
    (tmp_path / "scribe.py").write_text(AGENT)
    (tmp_path / "broken.py").write_text("import nosuchlib\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "text.db").write_text("hello, this is a text and no database of any kind\n" * 20)
    code, _, said = trunkline(*words.split())
    assert code in (2, 3)
    lines = [line for line in said.splitlines() if line.startswith(("Error: ", "Code: ", "Hint: "))]
    assert [line.partition(":")[0] for line in lines] == ["Error", "Code", "Hint"]
    assert error in lines[0]
    assert lines[2] == f"Hint: {hint}"


def test_a_port_in_use_suggests_any_free_one(trunkline: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, said = trunkline("serve", "trunkline.demo:agent", "--port", str(port), "--store", "memory:")
    assert code == 2 and f"cannot listen on 127.0.0.1:{port}" in said
    assert "Hint: trunkline serve trunkline.demo:agent --store memory: --port 0" in said


def test_a_hint_repeats_no_secret(trunkline: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = trunkline("serve", "trunkline.demo:agent", "--port", port, "--key", "planted-key-1")[2]
    assert "Hint: trunkline serve … --port 0" in said and "planted" not in said
