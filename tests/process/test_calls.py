"""An agent that calls an agent, each in a process of its own; either dies with kill -9 in the middle."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Agent, ServerProcess, text_of
from tests.hub.remote_agents import COMPLETED, RemoteAgent, RemoteAgents, until
from trunkline.mock.serve import BackgroundServer

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


@pytest.mark.parametrize("on_crash", ["fail", "resume"])
def test_a_stop_waits_for_work_elsewhere_only_where_a_skill_here_needs_it(
    tmp_path: Path, on_crash: str
) -> None:
    for name, source in (("writer", WRITER), ("desk", DESK.replace('"resume"', f'"{on_crash}"'))):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_agent.py").write_text(source)
    flags, runs = ("--set", "drain_limit=25"), tmp_path / "writer" / "runs"
    with ServerProcess(tmp_path / "writer", "writer_agent:agent") as writer:
        with ServerProcess(
            tmp_path / "desk", "desk_agent:agent", *flags, env={"WRITER": writer.base}
        ) as desk:
            assert desk.process is not None
            asker = Agent(desk.base)
            task = asker.send("tea", wait=False)
            until(lambda: runs.exists() and runs.read_text())
            before = time.monotonic()
            desk.process.terminate()
            if on_crash == "fail":
                until(lambda: "server.draining" in desk.text())
                (tmp_path / "writer" / "go").touch()
            assert desk.process.wait(60) == 0
            assert time.monotonic() - before < 12
            desk.start()
            (tmp_path / "writer" / "go").touch()
            done = asker.until(task["id"], "completed", "failed", limit_s=60)
            assert text_of(done) == "a note on tea, as asked", done["status"]
            asker.close()
    assert len(runs.read_text().split()) == 1


class SlowAnswer(RemoteAgents):
    """Takes messages, and answers them when it is let; it knows none that comes twice."""

    def __init__(self) -> None:
        super().__init__(RemoteAgent("writer"))
        self.let = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def held(event: Any) -> None:
            if scope["type"] == "http" and scope["method"] == "POST":
                await asyncio.to_thread(self.let.wait, 30)
            await send(event)

        await super().__call__(scope, receive, held)


def test_a_stop_lets_a_message_that_is_being_sent_be_answered(tmp_path: Path, store: str) -> None:
    (tmp_path / "desk_agent.py").write_text(DESK)
    remote = SlowAnswer()
    with BackgroundServer(remote) as url:
        environment = {"WRITER": f"{url}/writer"}
        with ServerProcess(tmp_path, "desk_agent:agent", store=store, env=environment) as desk:
            assert desk.process is not None
            asker = Agent(desk.base)
            task = asker.send("tea", wait=False)
            work = remote.agents["writer"].find("tea")
            desk.process.terminate()
            until(lambda: "server.draining" in desk.text())
            remote.let.set()
            assert desk.process.wait(60) == 0
            desk.start()
            remote.say(
                work, state=COMPLETED, artifacts=[{"artifactId": "a", "parts": [{"text": "a note on tea"}]}]
            )
            done = asker.until(task["id"], "completed", "failed", limit_s=60)
            # Not `uncertain`: the task of the agent was known when the process ended.
            assert text_of(done) == "a note on tea, as asked", done["status"]
            asker.close()
    assert remote.agents["writer"].executed["tea"] == 1
