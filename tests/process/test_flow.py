"""A run of a workflow outlives its process: killed in an activity, it goes on in the next, doing nothing twice."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT_S = 60.0
PROGRAM = """
import asyncio, sys
from pathlib import Path
from trunkline.flow import LocalFlows
from trunkline.flow.activities.base import Outcome

store, notes, word = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
TOOL = {"server": "s", "tool": "t", "arguments": {}}
DOCUMENT = {
    "document": {"schema": "s", "name": "killed", "version": "1"},
    "state_schema": {"type": "object", "properties": {"done": {"type": "array", "reducer": "append"}}},
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "first", "type": "tool_call", "config": TOOL},
        {"id": "pause", "type": "wait", "config": {"kind": "duration", "duration": "10ms"}},
        {"id": "second", "type": "tool_call", "config": TOOL},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"source": source, "target": target}
        for source, target in [
            ("__start__", "start"), ("start", "first"), ("first", "pause"), ("pause", "second"), ("second", "end")
        ]
    ],
}


class Noting:
    async def execute(self, activity):
        with notes.open("a") as file:
            file.write(activity.node.id + "\\n")
        if activity.node.id == "second" and word == "hang":
            await asyncio.Event().wait()
        return Outcome(ok=True, output={"done": activity.node.id})


async def main():
    async with LocalFlows(store, activities=Noting()) as flows:
        if word == "hang":
            await flows.start(DOCUMENT, {}, execution_id="e")
        result = await flows.handle("e").wait()
        print(result.status, result.final_state["done"])


asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that outlives a process."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    return request.getfixturevalue("postgres_url")


def test_a_run_goes_on_after_its_process_was_killed(store: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    command = [sys.executable, "-c", PROGRAM, store, str(notes)]
    with subprocess.Popen([*command, "hang"]) as dying:
        deadline = time.monotonic() + LIMIT_S
        while "second" not in notes.read_text():
            assert dying.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        dying.kill()
    ended = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert ended.stdout.strip() == "completed ['first', 'second']"
    # What was recorded was not done again; what was under way was.
    assert notes.read_text().split() == ["first", "second", "second"]
