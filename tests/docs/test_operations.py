"""The store commands of the operations page, run one after the other as they are printed."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from tests.harness import Agent, ServerProcess

__all__ = ["trunkline"]

COMMANDS = [
    line
    for block in blocks("docs/operations.md", "sh")
    for line in block.splitlines()
    if line.startswith("trunkline store ")
]


SCHEDULE = b'{"form":{"id":"standup","name":"Standup","schedule":"0 9 * * *","skill":"echo"},"since":1}'


def change_schedule(folder: Path, body: bytes) -> None:
    """Write the document of the schedule that the page repairs."""
    with closing(sqlite3.connect(folder / "tasks.db")) as database, database:
        database.execute("DELETE FROM docs WHERE kind = 'ceremony'")
        values = ("acme", "ceremony", "standup", body)
        database.execute(
            "INSERT INTO docs (tenant, kind, id, rev, body, changed) VALUES (?, ?, ?, 1, ?, 1)", values
        )


def test_the_store_commands(tmp_path: Path, trunkline: Run) -> None:
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        sent, asked = agent.send("echo hello")["id"], agent.send("ask which colour")["id"]
        agent.close()
        server.stop()
    printed = [shlex.split(command.replace("$TASK", asked))[1:] for command in COMMANDS]
    change_schedule(tmp_path, SCHEDULE)
    repairs = [words for words in printed if words[1] == "repair"]
    done = {words[1]: trunkline(*words) for words in printed if words not in repairs}
    assert sorted(done) == ["cancel", "check", "export", "import", "prune", "waiting"]
    assert {name: (code, err) for name, (code, _, err) in done.items()} == dict.fromkeys(done, (0, ""))
    said = {name: out for name, (_, out, _) in done.items()}
    assert json.loads(said["check"])["tasks"] == {"completed": 1, "input-required": 1}
    assert asked in said["waiting"]
    assert said["prune"] == "forgotten  0\ncompacted  0\n"
    assert said["import"].startswith("imported   2 tasks, ") and said["import"].count("1 documents")
    header, *events, _ = [json.loads(line) for line in said["export"].splitlines()]
    for words, repaired in zip(repairs, ("removed", "restored"), strict=True):
        change_schedule(tmp_path, b"{")
        assert trunkline(*words) == (0, f"ceremony standup (tenant acme): {repaired}\n", "")
    assert header["format"] == 3
    assert {event["task"] for event in events} == {sent, asked}
    assert trunkline("store", "migrate", "--store", "sqlite:///tasks.db")[1].endswith("up to date\n")
