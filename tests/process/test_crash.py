"""Real servers, killed and restarted: what was acknowledged is there, and every task ends."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.conftest import Shelf
from tests.harness import Agent, ServerProcess, plain_state, text_of

AFTER_CRASH = "The process that ran this task ended before the task did."


def words(task: dict[str, object]) -> str:
    status = task["status"]
    assert isinstance(status, dict)
    return "".join(part["text"] for part in status["message"]["parts"])


@pytest.mark.slow
def test_every_acknowledged_task_survives_kill_9_under_load(tmp_path: Path, shelf: Shelf) -> None:
    acknowledged: list[tuple[str, str]] = []
    enough = threading.Event()
    store = shelf.store()
    server = ServerProcess(tmp_path, store=store).start()

    def load(name: int) -> None:
        agent = Agent(server.base)
        try:
            for number in range(100_000):
                text = f"echo {name}-{number}"
                task = agent.send(text)
                acknowledged.append((task["id"], text))
                if len(acknowledged) >= 200:
                    enough.set()
        except Exception:  # noqa: BLE001 - the server was killed under us; what counts was noted before
            return
        finally:
            agent.close()

    callers = [threading.Thread(target=load, args=(name,)) for name in range(6)]
    for caller in callers:
        caller.start()
    assert enough.wait(30)
    server.kill()
    for caller in callers:
        caller.join(60)
    with ServerProcess(tmp_path, store=store) as second:
        agent = Agent(second.base)
        assert plain_state(agent.send("echo first")) == "completed"
        for task_id, text in acknowledged:
            task = agent.get(task_id)
            assert (plain_state(task), text_of(task)) == ("completed", text)
        page = agent.result("ListTasks", {"pageSize": 100})
        for task in page["tasks"]:
            agent.until(task["id"], "completed", "failed")
        agent.close()


@pytest.mark.slow
def test_what_was_running_fails_and_what_was_asked_goes_on_after_kill_9(tmp_path: Path, shelf: Shelf) -> None:
    store = shelf.store()
    with ServerProcess(tmp_path, store=store) as server:
        agent = Agent(server.base)
        running = agent.send("count 1000 50", wait=False)["id"]
        agent.until(running, "working")
        asked = agent.send("ask which one?")
        assert plain_state(asked) == "input-required"
        done = agent.send("echo before")["id"]
        agent.close()
        server.kill()
    with ServerProcess(tmp_path, store=store) as second:
        agent = Agent(second.base)
        failed = agent.until(running, "failed")
        assert words(failed) == AFTER_CRASH
        waiting = agent.get(asked["id"])
        assert plain_state(waiting) == "input-required"
        assert words(waiting) == "which one?"
        assert text_of(agent.get(done)) == "echo before"
        finished = agent.send("that one", taskId=asked["id"], contextId=asked["contextId"])
        assert (plain_state(finished), text_of(finished)) == ("completed", "that one")
        agent.close()
        second.kill()
    with ServerProcess(tmp_path, store=store) as third:
        agent = Agent(third.base)
        assert text_of(agent.get(asked["id"])) == "that one"
        assert plain_state(agent.get(running)) == "failed"
        agent.close()


# Each step leaves a line in a file, so that it can be seen how often it was done.
STEPPING = '''
import asyncio
from pathlib import Path
from trunkline import Agent, Turn

agent = Agent("stepping")

def done(name: str) -> str:
    with Path("done.txt").open("a") as lines:
        lines.write(name + "\\n")
    return name.upper()

async def work(turn: Turn) -> str:
    """Two steps and a question, with a pause that a kill falls into."""
    await turn.write("begun, ")
    await turn.write(await turn.step("one", done, f"{turn.skill} one"))
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    await turn.write(", " + await turn.step("two", done, f"{turn.skill} two"))
    await turn.write(", " + await turn.ask("And then?"))
    return turn.written

for mode in ("fail", "restart", "resume"):
    agent.skill(id=mode, on_crash=mode)(work)
'''


@pytest.mark.slow
def test_a_crash_does_to_a_skill_what_its_author_said(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "stepping.py").write_text(STEPPING)
    store = shelf.store()
    modes = ("fail", "restart", "resume")
    with ServerProcess(tmp_path, "stepping:agent", store=store) as server:
        agent = Agent(server.base)
        tasks = {mode: agent.send("go", wait=False, metadata={"skill": mode})["id"] for mode in modes}
        for task_id in tasks.values():
            while "ONE" not in text_of(agent.get(task_id)):
                time.sleep(0.01)
        agent.close()
        server.kill()
    (tmp_path / "go").touch()
    with ServerProcess(tmp_path, "stepping:agent", store=store) as second:
        agent = Agent(second.base)
        assert words(agent.until(tasks["fail"], "failed")) == AFTER_CRASH
        for mode in ("restart", "resume"):
            agent.until(tasks[mode], "input-required")
        agent.close()
        second.kill()
    with ServerProcess(tmp_path, "stepping:agent", store=store) as third:
        agent = Agent(third.base)
        for mode in ("restart", "resume"):
            finished = agent.send("the end", taskId=tasks[mode])
            expected = f"begun, {mode.upper()} ONE, {mode.upper()} TWO, the end"
            assert (plain_state(finished), text_of(finished)) == ("completed", expected)
        agent.close()
    # A restarted run does its steps again, a resumed one does not; an answer resumes both.
    assert sorted((tmp_path / "done.txt").read_text().splitlines()) == [
        "fail one", "restart one", "restart one", "restart two", "resume one", "resume two",
    ]  # fmt: skip


def test_a_second_server_on_the_same_file_names_the_way_out(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        second = ServerProcess(tmp_path)
        with pytest.raises(RuntimeError):
            second.start()
        assert second.process is not None
        assert second.process.returncode not in (0, None)
        assert "tasks.db" in second.text()
        assert "one process per SQLite file: stop it or choose another --store" in second.text()
        agent = Agent(server.base)
        assert plain_state(agent.send("echo still here")) == "completed"
        agent.close()


# Says in a file when its function is dropped, which nobody can see from outside.
WAITING = '''
import asyncio
from pathlib import Path
from trunkline import Agent, Turn

agent = Agent("waiting", on_crash="resume")

@agent.skill
async def wait(turn: Turn) -> str:
    """Sleeps, or asks."""
    try:
        if turn.text == "sleep":
            await turn.sleep(6)
            return "awake"
        return await turn.ask("Well?")
    except asyncio.CancelledError:
        Path("dropped-" + turn.text).touch()
        raise
'''


@pytest.mark.slow
def test_parked_tasks_survive_kill_9_and_wake(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    store = shelf.store()
    with ServerProcess(tmp_path, "waiting:agent", store=store) as server:
        agent = Agent(server.base)
        asleep = agent.send("sleep", wait=False)["id"]
        asked = agent.send("ask")
        for text in ("sleep", "ask"):
            while not (tmp_path / f"dropped-{text}").exists():
                time.sleep(0.02)
        agent.close()
        server.kill()
    with ServerProcess(tmp_path, "waiting:agent", store=store) as second:
        agent = Agent(second.base)
        assert text_of(agent.until(asleep, "completed")) == "awake"
        answered = agent.send("yes", taskId=asked["id"], contextId=asked["contextId"])
        assert (plain_state(answered), text_of(answered)) == ("completed", "yes")
        agent.close()


# Takes its process down each time, whatever it has said before.
DEADLY = '''
import asyncio, os
from trunkline import Agent, Turn

agent = Agent("deadly")

async def die(turn: Turn) -> str:
    """Say something that is new in each run, then end the process."""
    await turn.write(f"begun by {os.getpid()}, ")
    await asyncio.sleep(0.15)
    await turn.write("and went on")
    await asyncio.sleep(0.15)
    os._exit(9)

for mode in ("restart", "resume"):
    agent.skill(id=mode, on_crash=mode)(die)

@agent.skill(default=True)
def echo(text: str) -> str:
    """Shows that somebody is there."""
    return text
'''


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["restart", "resume"])
def test_a_task_that_ends_every_process_fails_after_a_few(
    tmp_path: Path, postgres_url: str, mode: str
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    flags = ("--workers", "2", "--set", "drain_limit=0.5", "--set", "takeover_limit=2")
    with ServerProcess(tmp_path, "deadly:agent", *flags, store=postgres_url) as server:
        agent = Agent(server.base)
        task_id = agent.send("go", wait=False, metadata={"skill": mode})["id"]
        agent.close()
        deadline = time.monotonic() + 60
        task: dict[str, object] = {}
        while not task or plain_state(task) != "failed":
            assert time.monotonic() < deadline, (task, server.text())
            # A new connection each time: the one before may have been with the dead.
            agent = Agent(server.base)
            with suppress(httpx2.TransportError):
                task = agent.get(task_id)
            agent.close()
            time.sleep(0.05)
        assert "2 times" in words(task)
        assert server.text().count("worker.died") == 3
