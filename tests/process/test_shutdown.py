"""The end of a server and of its connections: clean, in time, and without harm to the work."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.harness import Agent, ServerProcess, params, plain_state, text_of

QUICK = ("--set", "drain_limit=0.5", "--set", "cancel_limit=0.5")
STUBBORN = '''
import asyncio
from trunkline import Agent, Turn

agent = Agent("stubborn")

@agent.skill
async def stay(turn: Turn) -> str:
    """Ignores every cancel."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
'''


def descriptors(server: ServerProcess) -> int:
    """How many sockets the server has open."""
    assert server.process is not None
    count = 0
    for entry in os.scandir(f"/proc/{server.process.pid}/fd"):
        try:
            count += os.readlink(entry.path).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def down_to(server: ServerProcess, most: int) -> int:
    """Poll until so many sockets are left, or time is up."""
    deadline = time.monotonic() + 10
    while (count := descriptors(server)) > most and time.monotonic() < deadline:
        time.sleep(0.02)
    return count


@pytest.mark.slow
def test_sigterm_ends_streams_cleanly_and_exits_0(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "trunkline.demo:agent", *QUICK) as server:
        agent = Agent(server.base)
        asked = agent.send("ask what?")["id"]
        ids: list[list[int | None]] = []
        opened = threading.Barrier(9)

        def read(text: str) -> None:
            reader = Agent(server.base)
            with reader.stream("SendStreamingMessage", params(text)) as frames:
                seen: list[int | None] = []
                ids.append(seen)
                for frame in frames:
                    if not seen:
                        opened.wait(20)
                    seen.append(frame.id)
            reader.close()

        readers = [threading.Thread(target=read, args=("count 1000 20",)) for _ in range(8)]
        for reader in readers:
            reader.start()
        opened.wait(20)
        started = time.monotonic()
        assert server.stop(timeout=15) == 0
        assert time.monotonic() - started < 8
        for reader in readers:
            reader.join(10)
            assert not reader.is_alive()
        assert all(seen == sorted(seen) and len(seen) >= 1 for seen in ids)
        agent.close()
        assert "Traceback" not in server.text()
    with ServerProcess(tmp_path) as second:
        agent = Agent(second.base)
        assert plain_state(agent.get(asked)) == "input-required"
        page = agent.result("ListTasks", {"pageSize": 100})
        states = sorted(plain_state(task) for task in page["tasks"])
        assert states == ["failed"] * 8 + ["input-required"]
        reasons = {
            task["status"]["message"]["parts"][0]["text"]
            for task in page["tasks"]
            if plain_state(task) == "failed"
        }
        assert reasons == {"The server was stopped before the task ended."}
        agent.close()


@pytest.mark.slow
def test_sigterm_ends_a_server_whose_skill_cannot_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN, encoding="utf-8")
    with ServerProcess(tmp_path, "stubborn:agent", *QUICK) as server:
        agent = Agent(server.base)
        task_id = agent.send("stay", wait=False)["id"]
        agent.until(task_id, "working")
        agent.close()
        assert server.stop(timeout=15) == 0
    with ServerProcess(tmp_path, "stubborn:agent", *QUICK) as second:
        agent = Agent(second.base)
        assert plain_state(agent.get(task_id)) == "failed"
        agent.close()


@pytest.mark.slow
def test_a_disconnect_in_mid_stream_does_not_end_the_work(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        with agent.stream("SendStreamingMessage", params("count 30 10")) as frames:
            first = next(iter(frames))
            task_id = first.result["task"]["id"]
        task = agent.until(task_id, "completed")
        assert text_of(task).split() == [str(n) for n in range(1, 31)]
        agent.close()


@pytest.mark.slow
def test_many_connects_and_disconnects_leave_nothing_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        task_id = agent.send("hold 1", wait=False)["id"]
        agent.until(task_id, "working")
        before = descriptors(server)
        body = b'{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"%s"}}' % task_id.encode()
        head = (
            b"POST /a2a HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        for round_ in range(150):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
                raw.sendall((head + body)[: len(head + body) if round_ % 3 else round_])
                if round_ % 3 == 1:
                    assert raw.recv(1)
        assert down_to(server, before) <= before
        agent.send("release")
        assert plain_state(agent.until(task_id, "completed")) == "completed"
        agent.close()
        started = time.monotonic()
        assert server.stop(timeout=15) == 0
        assert time.monotonic() - started < 5
        assert "Traceback" not in server.text()
