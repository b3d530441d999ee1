"""A run of a workflow outlives its process: killed in an activity, it goes on in the next, doing nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.harness import free_port

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


WAITING = """
import asyncio, os, sys
from pathlib import Path
from trunkline.flow import LocalFlows
from trunkline.flow.activities.base import Outcome
from trunkline.log.events import Status
from trunkline.run.executor import OnCrash
from trunkline.run.node import HostedAgent
from trunkline.wire.types import TaskState

store, go, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
AGENT = {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "x"}}
NODES = {
    "agent": {"type": "agent_delegate", "config": AGENT},
    "timer": {"type": "wait", "config": {"kind": "duration", "duration": "1h"}},
    "tool": {"type": "tool_call", "config": {"server": "s", "tool": "t", "arguments": {}}},
}
WAY = ["__start__", "start", "work", "end"]
DOCUMENT = {
    "document": {"schema": "s", "name": "killed", "version": "1"},
    "state_schema": {"type": "object"},
    "nodes": [{"id": "start", "type": "start"}, {"id": "work", **NODES[kind]}, {"id": "end", "type": "end"}],
    "edges": [{"source": source, "target": target} for source, target in zip(WAY, WAY[1:])],
}


class Coder:
    \"\"\"An agent in another process: its work is done when the file exists.\"\"\"

    works_elsewhere = True

    def agent(self, tenant, agent_id):
        return agent_id

    def admit(self, request):
        return "code"

    def on_crash(self, skill):
        return OnCrash.RESUME

    async def close(self):
        pass

    async def run(self, work):
        while not go.exists():
            await asyncio.sleep(0.02)
        return Status(TaskState.COMPLETED)


class Deadly:
    async def execute(self, activity):
        if not go.exists():
            # By then the run has recorded whether it only waits.
            await asyncio.sleep(0.05)
            os._exit(9)
        return Outcome(ok=True)


async def main():
    coder = Coder()
    carried = [HostedAgent("coder", coder)]
    async with LocalFlows(store, carried=carried, agents=coder, activities=Deadly()) as flows:
        if sys.argv[4] == "start":
            await flows.start(DOCUMENT, {}, execution_id="e")
        print("up", flush=True)
        result = await flows.handle("e").wait()
        print(result.status, result.error, flush=True)


asyncio.run(main())
"""


def _run_until_killed(command: list[str], delay_s: float) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None and dying.stdout.readline() == "up\n"
        with suppress(subprocess.TimeoutExpired):
            dying.wait(delay_s)
        assert dying.poll() is None, dying.stdout.read()
        dying.kill()


@pytest.mark.parametrize("kind", ["agent", "timer"])
def test_a_run_that_only_waits_survives_kills_within_seconds(store: str, kind: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = [sys.executable, "-c", WAITING, store, str(go), kind]
    # Killed in the first moments after its takeover, and later.
    for word, delay_s in [("start", 0.3), *[("go", 0.02 * turn**2) for turn in range(6)]]:
        _run_until_killed([*command, word], delay_s)
    if kind == "timer":
        _run_until_killed([*command, "go"], 0.5)
        return
    go.touch()
    ended = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert ended.stdout.splitlines()[-1].split() == ["completed"]


def test_a_run_whose_activity_ends_the_process_fails_at_the_limit(store: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, store, str(tmp_path / "go"), "tool"]
    codes = [
        subprocess.run([*command, "start"], check=False, timeout=LIMIT_S, capture_output=True).returncode
    ]
    while codes[-1] and len(codes) < 8:
        ended = subprocess.run([*command, "go"], check=False, timeout=LIMIT_S, capture_output=True, text=True)
        codes.append(ended.returncode)
    assert codes == [9] * 4 + [0]
    assert "also after it was begun again 3 times" in ended.stdout


DELEGATING = """
import asyncio, sys
from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow import LocalFlows
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

store, url, word = sys.argv[1:4]
CODER = {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "x"}}
WAY = ["__start__", "start", "implement", "end"]
DOCUMENT = {
    "document": {"schema": "s", "name": "killed", "version": "1"},
    "state_schema": {"type": "object", "properties": {"patch": {"type": "string"}}},
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "implement", "type": "agent_delegate", "config": CODER, "retry": {"max_attempts": 2}},
        {"id": "end", "type": "end"},
    ],
    "edges": [{"source": source, "target": target} for source, target in zip(WAY, WAY[1:])],
}


async def main():
    client = SocketHttpClient(Egress(loopback=True))
    config = TasksConfig(url, KeyReference(env="KEY"), poll_ms=10)
    delegates = TasksDelegate(config, HttpTasks(url, client), Secrets({"KEY": "k"}))
    async with LocalFlows(store, delegates=delegates) as flows:
        if word == "hang":
            await flows.start(DOCUMENT, {}, execution_id="e")
        print("up", flush=True)
        result = await flows.handle("e").wait()
        external = [row.payload.get("externalTaskId") async for row in flows.handle("e").events()]
        print(result.status, result.final_state, [one for one in external if one])
    await client.close()


asyncio.run(main())
"""


class TaskApi(ThreadingHTTPServer):
    """A task API that forgets correlation IDs: its first task fails, and the second works until it is released."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tasks)
        self.submitted: list[str] = []
        self.polled: list[str] = []
        self.is_released = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Tasks(BaseHTTPRequestHandler):
    server: TaskApi

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.submitted.append(body["correlation_id"])
        self._answer(201, {"id": f"t{len(self.server.submitted)}", "status": "submitted"})

    def do_GET(self) -> None:
        task_id = self.path.rpartition("/")[2]
        self.server.polled.append(task_id)
        told = {"id": task_id, "status": "working"}
        if task_id == "t1":
            told |= {"status": "failed", "error": "it broke"}
        elif self.server.is_released:
            told |= {"status": "completed", "output": {"patch": task_id}}
        self._answer(200, told)

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def task_api() -> Iterator[TaskApi]:
    """A task API on loopback."""
    with TaskApi() as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()


def test_a_delegated_task_is_polled_and_not_submitted_again_after_a_kill(store: str) -> None:
    with task_api() as api:
        command = [sys.executable, "-c", DELEGATING, store, api.url]
        with subprocess.Popen([*command, "hang"]) as dying:
            deadline = time.monotonic() + LIMIT_S
            while "t2" not in api.polled:
                assert dying.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            dying.kill()
        api.is_released = True
        ended = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
        # Recorded when each was submitted, and again with the result.
        assert ended.stdout.split("\n")[1] == "completed {'patch': 't2'} ['t1', 't2', 't2']"
        assert api.submitted == ["e:delegate:implement", "e:delegate:implement:1.2"]


def test_a_delegation_whose_task_api_is_away_survives_kills_within_seconds(store: str) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    for word in ["hang", *["go"] * 5]:
        _run_until_killed([sys.executable, "-c", DELEGATING, store, away, word], 0.3)
    with task_api() as api:
        api.submitted.append("the first task fails")
        api.is_released = True
        command = [sys.executable, "-c", DELEGATING, store, api.url, "go"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert ended.stdout.split("\n")[1] == "completed {'patch': 't2'} ['t2', 't2']"


BRANCHES = """
import asyncio, sys
from pathlib import Path
from trunkline.flow import LocalFlows
from trunkline.flow.activities.base import Outcome

store, notes, kind, word = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
BESIDE = {
    "tool": {"type": "tool_call", "config": {"server": "s", "tool": "t", "arguments": {}}},
    "timer": {"type": "wait", "config": {"kind": "duration", "duration": "2s"}},
}
BRANCHES = [{"name": "signal", "entry": "signal"}, {"name": "beside", "entry": "beside"}]
EDGES = "__start__ start, start fork, fork end, signal end, beside end"
DOCUMENT = {
    "document": {"schema": "s", "name": "killed", "version": "1"},
    "state_schema": {"type": "object"},
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fork", "type": "parallel", "config": {"join": "any", "branches": BRANCHES}},
        {"id": "signal", "type": "wait", "config": {"kind": "signal", "signal": "go"}},
        {"id": "beside", **BESIDE[kind]},
        {"id": "end", "type": "end"},
    ],
    "edges": [dict(zip(("source", "target"), edge.split())) for edge in EDGES.split(", ")],
}


class Tool:
    async def execute(self, activity):
        with notes.open("a") as file:
            file.write("begun\\n")
        if word == "hang":
            await asyncio.Event().wait()
        return Outcome(ok=True)


async def main():
    async with LocalFlows(store, activities=Tool()) as flows:
        run = flows.handle("e")
        if word == "hang":
            run = await flows.start(DOCUMENT, {}, execution_id="e")
            await run.wait()
        print("up", flush=True)
        while (status := (await run.wait(0)).status) == "awaiting_signal":
            await asyncio.sleep(0.02)
        print(status, flush=True)


asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["tool", "timer"])
def test_branches_beside_a_signal_go_on_after_a_kill(store: str, kind: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    command = [sys.executable, "-c", BRANCHES, store, str(notes), kind]
    _run_until_killed([*command, "hang"], 0.1)
    # Nobody ever sends the signal.
    ended = subprocess.run([*command, "go"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert ended.stdout.split()[-1] == "completed"
    assert notes.read_text().split() == (["begun"] * 2 if kind == "tool" else [])
