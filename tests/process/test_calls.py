"""An agent that calls an agent, each in a process of its own; either dies with kill -9 in the middle."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import Agent, ServerProcess, text_of

WRITER = '''
import asyncio
from pathlib import Path
from trunkline import Agent, Turn

agent = Agent("writer", on_crash="resume")


@agent.skill
async def write(turn: Turn) -> str:
    """Write when the file `go` is there."""
    with Path("runs").open("a") as runs:
        runs.write(f"{turn.task_id}\\n")
    await turn.status("thinking")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"a note on {turn.text}"
'''
DESK = '''
import os
from trunkline import Agent, Turn

agent = Agent("desk", on_crash="resume", peers={"writer": os.environ["WRITER"]})


@agent.skill
async def note(turn: Turn) -> str:
    """Have a note written."""
    result = await turn.call("writer", turn.text)
    return f"{result.text}, as asked"
'''


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return "sqlite:///tasks.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.mark.parametrize("victim", ["desk", "writer"])
def test_a_call_goes_on_with_the_same_remote_task(tmp_path: Path, store: str, victim: str) -> None:
    for name, source in (("writer", WRITER), ("desk", DESK)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_agent.py").write_text(source)
    with ServerProcess(tmp_path / "writer", "writer_agent:agent") as writer:
        environment = {"WRITER": writer.base}
        with ServerProcess(tmp_path / "desk", "desk_agent:agent", store=store, env=environment) as desk:
            asker = Agent(desk.base)
            task = asker.send("tea", wait=False)
            runs = tmp_path / "writer" / "runs"
            deadline = time.monotonic() + 30
            while not runs.exists() or not runs.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            dying = desk if victim == "desk" else writer
            dying.kill()
            dying.start()
            (tmp_path / "writer" / "go").touch()
            done = asker.until(task["id"], "completed", "failed", limit_s=60)
            assert text_of(done) == "a note on tea, as asked", done["status"]["message"]["parts"]
            asker.close()
    begun = runs.read_text().split()
    # One task there, however often a process of ours had to begin again.
    assert len(set(begun)) == 1
    assert len(begun) == (1 if victim == "desk" else 2)
