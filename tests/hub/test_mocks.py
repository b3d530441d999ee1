"""The scripted agents of a workspace: what they were given outlives them, and the hub that runs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.harness import Agent
from tests.hub.test_hub import HubProcess, until
from trunkline.hub import mocks
from trunkline.hub.mocks import MockProcess
from trunkline.hub.template import write_workspace
from trunkline.mock import kept
from trunkline.mock.kept import KeptTasks
from trunkline.mock.playback import Playback
from trunkline.mock.scenario import Reply

ONE = """
agent: {name: One}
otherwise: {ask: "Which?", then: {echo: true}}
"""


def test_the_work_of_a_new_workspace_outlives_a_killed_hub(tmp_path: Path) -> None:
    workspace = tmp_path / "demo"
    write_workspace(workspace)
    hub = HubProcess(workspace)
    with hub:
        agent = Agent(hub.base)
        (asked,) = dispatched(agent, "approver", "go", wait=30)
        assert asked["state"] == "input-required"
        (begun,) = dispatched(agent, "reviewer", "slow")
        until(lambda: '"reviewer"' in (workspace / "mocks.jsonl").read_text())
        hub.kill()
        hub.start()
        answer = {"decision": "respond", "text": "yes"}
        agent.http.post(f"{hub.base}/api/inbox/{asked['taskId']}", json=answer).raise_for_status()
        for task, text in ((asked, "Approved."), (begun, "It took me a while, and it reads well.")):
            url = f"{hub.base}/api/tasks/{task['taskId']}"
            ended = until(lambda url=url: _ended(agent.http.get(url).json()))
            assert (ended["state"], ended.get("text")) == ("completed", text)
        agent.close()


def test_log_lines_of_scripted_agents_have_the_format_of_the_hub(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "mocks.yaml"
    script.write_text(ONE)
    with MockProcess(script, 0, logs=("info", "json")) as url:
        agent = Agent(url)
        agent.send("hello")
        agent.close()
    rows = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(row["event"], row["rule"]) for row in rows if "rule" in row] == [("mock.hit", "otherwise")]
    # The reply of `otherwise` is no reason for a warning.
    assert {row["level"] for row in rows} == {"info"}


def dispatched(hub: Agent, agent: str, message: str, **said: object) -> list[dict[str, str]]:
    order = {"agent": agent, "message": message, **said}
    return hub.http.post(f"{hub.base}/api/dispatch", json=order).json()["tasks"]


def _ended(task: dict[str, str]) -> dict[str, str] | None:
    return task if task["state"] in ("completed", "failed") else None


def test_mocks_that_die_are_started_again_and_know_their_tasks(tmp_path: Path) -> None:
    script = tmp_path / "mocks.yaml"
    script.write_text(ONE)
    process = MockProcess(script, 0, keeps=True)
    with process as url:
        agent = Agent(url)
        task = agent.send("hello")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        os.kill(process.pid, signal.SIGKILL)
        again = until(lambda: _send(url, task["id"]))
        assert again["artifacts"][0]["parts"][0]["text"] == "the red one"
        agent.close()


def test_mocks_that_cannot_begin_again_are_tried_ever_more_rarely_and_say_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mocks, "_PAUSE_S", 0.05)
    monkeypatch.setattr(mocks, "_LONGEST_S", 0.1)
    script = tmp_path / "mocks.yaml"
    script.write_text(ONE)
    process = MockProcess(script, 0)
    with process as url:
        until(lambda: _is_served(url))
        script.write_text("agent: {name: One}\nnothing: known\n")
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: len(caplog.messages) >= 3)
        script.write_text(ONE)
        until(lambda: _is_served(url))
    assert [one.rpartition(" ")[2] for one in caplog.messages[:3]] == [
        "again_s=0.05",
        "again_s=0.1",
        "again_s=0.1",
    ]
    told = capfd.readouterr().err
    assert "nothing" in told and "Traceback" not in told


def _is_served(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/.well-known/agent-card.json", timeout=1.0).status_code == 200
    except httpx2.TransportError:
        return False


def test_mocks_that_are_started_again_while_the_hub_ends_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "mocks.yaml"
    script.write_text(ONE)
    process = MockProcess(script, 0)
    begin, begins, goes_on = MockProcess._begin, threading.Event(), threading.Event()  # pyright: ignore[reportPrivateUsage]
    began: list[subprocess.Popen[bytes]] = []

    def late(self: MockProcess) -> subprocess.Popen[bytes]:
        begins.set()
        assert goes_on.wait(30)
        began.append(begin(self))
        return began[0]

    with ThreadPoolExecutor() as pool:
        process.__enter__()
        monkeypatch.setattr(MockProcess, "_begin", late)
        os.kill(process.pid, signal.SIGKILL)
        assert begins.wait(30)
        ending = pool.submit(process.__exit__, None, None, None)
        with contextlib.suppress(TimeoutError):
            # It waits for the one that begins.
            ending.result(0.5)
        goes_on.set()
        ending.result(30)
    assert [one.poll() for one in began] == [0]


def _send(url: str, task_id: str) -> dict[str, object] | None:
    agent = Agent(url)
    try:
        return agent.send("the red one", taskId=task_id)
    except httpx2.TransportError:
        return None
    finally:
        agent.close()


def test_a_file_of_tasks_is_bounded_and_a_torn_line_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LIMIT", 3)
    file = tmp_path / "mocks.jsonl"
    tasks = KeptTasks(file)
    for number in range(40):
        playback = Playback(f"task-{number}", "context", print)
        playback.then = Reply(text="done")
        tasks.write("one", playback)
    assert len(file.read_bytes().splitlines()) <= 12
    with file.open("ab") as opened:
        opened.write(b'{"mock":"one","task":{"id":')
    tasks = KeptTasks(file)
    found = tasks.playbacks("one", print)
    assert [(one.id, one.then) for one in found] == [
        (f"task-{at}", Reply(text="done")) for at in (37, 38, 39)
    ]
    tasks.write("one", Playback("later", "context", print))
    assert [one.id for one in KeptTasks(file).playbacks("one", print)] == ["task-38", "task-39", "later"]
    assert KeptTasks(file).playbacks("another", print) == []


def test_where_nothing_can_be_written_mocks_serve_all_the_same(tmp_path: Path) -> None:
    tasks = KeptTasks(tmp_path / "nowhere" / "mocks.jsonl")
    tasks.write("one", Playback("task", "context", print))
    assert KeptTasks(tmp_path).playbacks("one", print) == []
