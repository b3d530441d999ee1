"""Several processes on one port: who dies is replaced, who ends them ends them all, and nobody is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.harness import NO_TLS, Agent, ServerProcess, plain_state

DEMO = "trunkline.demo:agent"
# Never asked: what fails here fails before.
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
# In the parent, which only looks at it, this is an agent like any other.
DIES = '''
import os, sys
from trunkline import Agent

if sys.argv[0].endswith("serve.py"):
    os._exit(7)

agent = Agent("dies")

@agent.skill
def echo(text: str) -> str:
    """Never gets there."""
    return text
'''


def until(reached: Callable[[], bool], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ready(server: ServerProcess) -> list[int]:
    """The workers that have served, in order."""
    return [int(pid) for pid in re.findall(r"worker\.ready pid=(\d+)", server.text())]


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


@pytest.fixture
def two(tmp_path: Path, postgres_url: str) -> ServerProcess:
    """A server of two workers, not yet started."""
    return ServerProcess(tmp_path, DEMO, "--workers", "2", "--set", "drain_limit=0.5", store=postgres_url)


def test_a_worker_that_is_killed_is_replaced_while_the_other_serves(two: ServerProcess) -> None:
    with two as server:
        until(lambda: len(ready(server)) == 2)
        tasks: list[str] = []
        # Twice in the same place: the second time it stays empty for a moment, and nobody waits there.
        for so_far, victim in ((2, 0), (3, 2)):
            os.kill(ready(server)[victim], signal.SIGKILL)
            while len(ready(server)) == so_far:
                # A new connection each time: whoever is there takes it. One may have been with the dead.
                agent = Agent(server.base)
                with suppress(httpx2.TransportError):
                    tasks.append(agent.send("echo on")["id"])
                agent.close()
            assert f"worker.died pid={ready(server)[victim]} exit=SIGKILL" in server.text()
        agent = Agent(server.base)
        assert len(tasks) > 2
        assert {plain_state(agent.get(task_id)) for task_id in tasks} == {"completed"}
        agent.close()
        assert server.stop() == 0
        assert not any(alive(pid) for pid in ready(server))
        assert server.text().count("server.ready url=http://") == 1
        assert "Traceback" not in server.text()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_drains_all_of_them(two: ServerProcess, how: signal.Signals) -> None:
    with two as server:
        until(lambda: len(ready(server)) == 2)
        agents = [Agent(server.base) for _ in range(6)]
        tasks = [agent.send("sleep 600", wait=False)["id"] for agent in agents]
        assert server.stop(how) == 0
        assert not any(alive(pid) for pid in ready(server))
        assert "worker.died" not in server.text() and "worker.killed" not in server.text()
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server.base}/tasks")
        with two as again:
            agent = Agent(again.base)
            assert {plain_state(agent.get(task_id)) for task_id in tasks} == {"failed"}
            agent.close()
        for agent in agents:
            agent.close()


def test_they_share_one_socket_where_the_system_cannot_share_a_port(two: ServerProcess) -> None:
    two._command[2] = f"import trunkline.http.workers as it; it.SHARES = False; {two._command[2]}"
    with two as server:
        until(lambda: len(ready(server)) == 2)
        for victim in (0, 2):
            os.kill(ready(server)[victim], signal.SIGKILL)
            agent = Agent(server.base)
            assert plain_state(agent.send("echo on")) == "completed"
            agent.close()
            until(lambda seen=victim: len(ready(server)) >= 3 + seen // 2)
        assert server.stop() == 0
        assert not any(alive(pid) for pid in ready(server))


def test_workers_end_with_their_parent(two: ServerProcess) -> None:
    with two as server:
        until(lambda: len(ready(server)) == 2)
        server.kill()
        until(lambda: not any(alive(pid) for pid in ready(server)))
        assert server.text().count("worker.orphaned") == 2


def test_any_free_port_will_do(tmp_path: Path, postgres_url: str) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "trunkline.cli", "serve", DEMO, "--store", postgres_url]
    with log.open("wb") as out:
        parent = subprocess.Popen([*command, "--port", "0", "--workers", "2"], cwd=tmp_path, stderr=out)
    try:
        until(lambda: log.read_text(encoding="utf-8").count("worker.ready") == 2)
        (base,) = re.findall(
            r"server.ready url=(http://127\.0\.0\.1:[1-9]\d*)/a2a", log.read_text(encoding="utf-8")
        )
        assert [httpx2.get(f"{base}/readyz", verify=NO_TLS).status_code for _ in range(8)] == [200] * 8
        parent.terminate()
        assert parent.wait(60) == 0
    finally:
        if parent.poll() is None:
            parent.kill()
            parent.wait()


def _serve(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trunkline.cli", "serve", *args, "--port", "0", "--workers", "2"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def test_workers_that_cannot_start_are_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES, encoding="utf-8")
    ended = _serve(tmp_path, "dies:agent", "--store", NOWHERE)
    assert ended.returncode == 3
    assert "exit=7" in ended.stderr and "workers.hopeless" in ended.stderr
    assert "serving" not in ended.stderr


def test_a_database_that_is_not_there_is_said(tmp_path: Path) -> None:
    ended = _serve(tmp_path, DEMO, "--store", NOWHERE)
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    assert "exit=3" in ended.stderr and "workers.hopeless" in ended.stderr


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        command = [sys.executable, "-m", "trunkline.cli", "serve", DEMO, "--store", NOWHERE, "--workers", "2"]
        ended = subprocess.run(
            [*command, "--port", str(server.port)],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ended.returncode == 3
    assert "Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
