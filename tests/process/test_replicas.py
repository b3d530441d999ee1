"""Three servers on one PostgreSQL: whichever is asked, and whichever dies, it is one agent."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import postgres
from tests.harness import NO_TLS, Agent, ServerProcess, message, params, plain_state, text_of
from tests.process.raw import Stream

# Each step says in which process it was done, so that the text tells what was recorded and what done anew.
REPLICA = '''
import asyncio, os
from trunkline import Agent, Turn
from trunkline.demo.agent import act

agent = Agent("replica")
agent.skill(id="demo", default=True)(act)

def mark(number: int) -> str:
    return f"{os.getpid()}.{number}"

@agent.skill(on_crash="resume")
async def walk(turn: Turn) -> None:
    """Take so many steps, so many milliseconds apart; the second half once there is a file `on`."""
    count, pause = turn.text.split()
    for number in range(int(count)):
        while number * 2 >= int(count) and not os.path.exists("on"):
            await asyncio.sleep(0.01)
        await turn.write(await turn.step("mark", mark, number) + " ")
        await asyncio.sleep(int(pause) / 1000)
'''
WALK = {"skill": "walk"}
pytestmark = pytest.mark.slow


class Replicas:
    """The servers, and somebody who talks to each."""

    def __init__(self, directory: Path, database: postgres.Database) -> None:
        self.database = database
        flags = ("--set", "drain_limit=0.5", "--set", "log_level=warning")
        self.servers = [ServerProcess(directory, "replica:agent", *flags, store=database.url) for _ in "abc"]
        self.agents = [Agent(server.base) for server in self.servers]
        # However slow the machine is, no walk is over before something has happened to its owner.
        self.on = directory / "on"

    def revive(self) -> None:
        """Start those that are down."""
        for server in self.servers:
            if server.process is None or server.process.poll() is not None:
                server.start()

    def pid(self, place: int) -> int:
        process = self.servers[place].process
        assert process is not None
        return process.pid

    def close(self) -> None:
        for agent, server in zip(self.agents, self.servers, strict=True):
            agent.close()
            if server.process is not None and server.process.poll() is None:
                server.kill()


@pytest.fixture(scope="module")
def _replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    if reason := postgres.why_none():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("replicas")
    (directory / "replica.py").write_text(REPLICA, encoding="utf-8")
    database = postgres.database(f"replicas_{os.getpid()}")
    replicas = Replicas(directory, database)
    yield replicas
    replicas.close()
    database.drop()


@pytest.fixture
def replicas(_replicas: Replicas) -> Replicas:
    """All three of them, up."""
    _replicas.revive()
    _replicas.on.touch()
    return _replicas


class Reader:
    """Follows a task at one replica, in a thread of its own."""

    def __init__(self, server: ServerProcess, task_id: str) -> None:
        self.stream = Stream(server.port, "SubscribeToTask", {"id": task_id})
        self._thread = threading.Thread(target=lambda: asyncio.run(self.stream.read()))
        self._thread.start()

    def until(self, reached: Callable[[Stream], bool], limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while not reached(self.stream):
            assert time.monotonic() < deadline, self.stream.frames
            time.sleep(0.01)

    def end(self, limit_s: float = 60.0) -> Stream:
        self._thread.join(limit_s)
        assert not self._thread.is_alive(), self.stream.frames
        assert self.stream.clean
        assert self.stream.ids == sorted(set(self.stream.ids))
        return self.stream


def steps(text: str) -> list[int]:
    """Which process did each step of a walk; all are there, once and in order."""
    pairs = [word.split(".") for word in text.split()]
    assert [int(number) for _, number in pairs] == list(range(len(pairs)))
    return [int(pid) for pid, _ in pairs]


def test_send_to_one_stream_from_another_cancel_at_a_third(replicas: Replicas) -> None:
    a, b, c = replicas.agents
    task_id = a.send("count 1000 600", wait=False)["id"]
    reader = Reader(replicas.servers[1], task_id)
    reader.until(lambda stream: len(stream.text.split()) > 5)
    assert plain_state(c.result("CancelTask", {"id": task_id})) == "canceled"
    stream = reader.end()
    assert stream.state == "canceled"
    for agent in (a, b, c):
        task = agent.get(task_id)
        assert (plain_state(task), text_of(task)) == ("canceled", stream.text)


def test_a_question_is_answered_at_another(replicas: Replicas) -> None:
    a, b, c = replicas.agents
    asked = a.send("ask which one?")
    assert plain_state(asked) == "input-required"
    reader = Reader(replicas.servers[2], asked["id"])
    answered = b.send("that one", taskId=asked["id"])
    assert (plain_state(answered), text_of(answered)) == ("completed", "that one")
    assert reader.end().state == "completed"
    assert text_of(a.get(asked["id"])) == text_of(c.get(asked["id"])) == "that one"


def test_a_stream_is_resumed_anywhere(replicas: Replicas) -> None:
    words: list[str] = []
    last = ""
    task_id = ""
    for place in (0, 1, 2, 1):
        agent = replicas.agents[place]
        opened = (
            agent.stream("SubscribeToTask", {"id": task_id}, Last_Event_ID=last)
            if task_id
            else agent.stream("SendStreamingMessage", params("count 40 20"))
        )
        with opened as frames:
            for seen, frame in enumerate(frames):
                task_id = task_id or frame.result["task"]["id"]
                last = str(frame.id)
                if "artifactUpdate" in frame.result:
                    if not frame.result["artifactUpdate"].get("append"):
                        # The artifact whole, at its beginning or at its end.
                        words.clear()
                    words.append(frame.result["artifactUpdate"]["artifact"]["parts"][0]["text"])
                if seen == 6 and place != 1:
                    break
    assert "".join(words).split() == [str(number) for number in range(1, 41)]


def test_the_same_message_100_times_at_two_replicas_is_one_task(replicas: Replicas) -> None:
    context = f"context-{uuid.uuid4()}"
    send = {"message": message("3 1", contextId=context, metadata=WALK)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send}

    async def all_at_once() -> list[Any]:
        limits = httpx2.Limits(max_connections=100)
        async with httpx2.AsyncClient(
            timeout=30, headers={"A2A-Version": "1.0"}, limits=limits, verify=NO_TLS
        ) as client:
            urls = [replicas.servers[place % 2].url for place in range(100)]
            return await asyncio.gather(*(client.post(url, json=body) for url in urls))

    answers = [response.json()["result"]["task"] for response in asyncio.run(all_at_once())]
    assert len({task["id"] for task in answers}) == 1
    page = replicas.agents[2].result("ListTasks", {"contextId": context})
    assert page["totalSize"] == 1
    assert len(set(steps(text_of(replicas.agents[2].get(answers[0]["id"]))))) == 1


def test_streams_elsewhere_see_what_becomes_of_a_dead_owners_tasks(replicas: Replicas) -> None:
    a, b, _ = replicas.agents
    fails = Reader(replicas.servers[1], a.send("count 1000 600", wait=False)["id"])
    replicas.on.unlink()
    walk_id = a.send("25 20", wait=False, metadata=WALK)["id"]
    walks = Reader(replicas.servers[2], walk_id)
    for reader in (fails, walks):
        reader.until(lambda stream: len(stream.text.split()) > 3)
    dead = replicas.pid(0)
    replicas.servers[0].kill()
    replicas.on.touch()
    failed = fails.end()
    assert failed.state == "failed"
    reason = failed.frames[-1]["statusUpdate"]["status"]["message"]["parts"][0]["text"]
    assert reason == "The process that ran this task ended before the task did."
    walked = walks.end()
    assert walked.state == "completed"
    doers = steps(walked.text)
    assert len(doers) == 25
    assert doers[0] == dead and doers[-1] in (replicas.pid(1), replicas.pid(2))
    # Once it had moved it stayed: nothing of the dead one comes after the first step of the other.
    assert len([1 for one, other in pairwise(doers) if one != other]) == 1
    assert text_of(b.get(walk_id)) == walked.text


def test_an_owner_that_was_frozen_writes_nothing_after_it_was_replaced(replicas: Replicas) -> None:
    a, b, c = replicas.agents
    replicas.on.unlink()
    task_ids = [a.send("60 20", wait=False, metadata=WALK)["id"] for _ in range(10)]
    readers = [Reader(replicas.servers[1], task_id) for task_id in task_ids]
    for reader in readers:
        reader.until(lambda stream: len(stream.text.split()) > 2)
    frozen = replicas.pid(0)
    os.kill(frozen, signal.SIGSTOP)
    replicas.on.touch()
    try:
        for reader in readers:
            reader.until(lambda stream: steps(stream.text)[-1] != frozen)
    finally:
        os.kill(frozen, signal.SIGCONT)
    for reader, task_id in zip(readers, task_ids, strict=True):
        stream = reader.end()
        doers = steps(stream.text)
        assert (stream.state, len(doers)) == ("completed", 60)
        assert len([1 for one, other in pairwise(doers) if one != other]) == 1
        assert text_of(a.get(task_id)) == text_of(c.get(task_id)) == stream.text


def test_sigterm_hands_a_walk_over(replicas: Replicas) -> None:
    a, b, _ = replicas.agents
    replicas.on.unlink()
    task_id = a.send("40 25", wait=False, metadata=WALK)["id"]
    waiting: list[Any] = []
    # A caller that waits here is answered with the task as it stands, and can go on elsewhere.
    asking = threading.Thread(target=lambda: waiting.append(a.send("100 20", metadata=WALK)))
    asking.start()
    reader = Reader(replicas.servers[1], task_id)
    reader.until(lambda stream: len(stream.text.split()) > 3)
    old = replicas.pid(0)
    assert replicas.servers[0].stop() == 0
    replicas.on.touch()
    asking.join(60)
    assert plain_state(waiting[0]) == "working"
    stream = reader.end()
    doers = steps(stream.text)
    assert (stream.state, len(doers), doers[0]) == ("completed", 40, old)
    assert doers[-1] != old
    assert plain_state(b.until(waiting[0]["id"], "completed")) == "completed"


@contextmanager
def again_and_again(database: postgres.Database, statement: str) -> Iterator[None]:
    """Run a statement every 30 ms meanwhile."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.03):
            database.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def test_streams_go_on_without_a_doorbell(replicas: Replicas) -> None:
    a, _, _ = replicas.agents
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'trunkline hints %'"
    with again_and_again(replicas.database, cut):
        reader = Reader(replicas.servers[1], a.send("count 60 40", wait=False)["id"])
        stream = reader.end()
    assert stream.text.split() == [str(number) for number in range(1, 61)]


def test_without_connections_callers_hear_so_and_it_recovers_alone(replicas: Replicas) -> None:
    a, b, _ = replicas.agents
    (((name,),),) = replicas.database.execute("SELECT current_database()")
    kept = a.send("echo before")["id"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("echo now")}}

    async def many() -> list[int]:
        async with httpx2.AsyncClient(
            timeout=60, headers={"A2A-Version": "1.0"}, limits=httpx2.Limits(max_connections=50)
        ) as client:

            async def one(place: int) -> int:
                fresh = {**body, "params": {"message": message(f"echo {place}")}}
                return (await client.post(replicas.servers[place % 2].url, json=fresh)).status_code

            found: list[int] = []
            for first in range(0, 100, 50):
                found += await asyncio.gather(*(one(place) for place in range(first, first + 50)))
            return found

    replicas.database.execute(
        f'ALTER DATABASE "{name}" CONNECTION LIMIT 0',
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = '{name}' AND pid <> pg_backend_pid()",
    )
    try:
        answers = asyncio.run(many())
    finally:
        replicas.database.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')
    assert set(answers) == {503}
    deadline = time.monotonic() + 60
    for agent in (a, b):
        while (
            agent.post(
                {**body, "params": {"message": message("echo on")}}, {"A2A-Version": "1.0"}
            ).status_code
            != 200
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert text_of(agent.get(kept)) == "echo before"
