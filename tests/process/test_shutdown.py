"""The end of a server and of its connections: clean, in time, and without harm to the work."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.harness import Agent, ServerProcess, params, plain_state, text_of
from tests.process.raw import Stream, rpc

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


# What may stand in the way of an end, each an agent whose skill or store hangs for ever.
HANGS = {
    "thread": '''
import time
from trunkline import Agent

agent = Agent("hangs")

@agent.skill
def stay(text: str) -> str:
    """Sits in a thread that nobody can end."""
    time.sleep(3600)
    return text
''',
    "loop": '''
import asyncio
import time
from trunkline import Agent

agent = Agent("hangs")

@agent.skill
async def stay(text: str) -> str:
    """Holds the loop, and so everything else, once its receipt is out."""
    await asyncio.sleep(0.2)
    time.sleep(3600)
    return text
''',
    "store": '''
import asyncio
from trunkline import Agent
from trunkline.store.sqlite import store as sqlite

agent = Agent("hangs")

async def never(nodes: object, node: str) -> None:
    await asyncio.sleep(3600)

sqlite.SqliteNodes.leave = never

@agent.skill
async def stay(text: str) -> str:
    """Ends by itself; its store does not."""
    return text
''',
}

WAITS = '''
import asyncio, os
from trunkline import Agent

agent = Agent("waits")

@agent.skill
async def wait(text: str) -> str:
    """Ends once there is a file `go`."""
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return "waited"
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
    deadline = time.monotonic() + 60
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
                        opened.wait(60)
                    seen.append(frame.id)
            reader.close()

        readers = [threading.Thread(target=read, args=("count 1000 600",)) for _ in range(8)]
        for reader in readers:
            reader.start()
        opened.wait(60)
        assert server.stop() == 0
        for reader in readers:
            reader.join(60)
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
        assert server.stop() == 0
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
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
                raw.sendall((head + body)[: len(head + body) if round_ % 3 else round_])
                if round_ % 3 == 1:
                    assert raw.recv(1)
        assert down_to(server, before) <= before
        agent.send("release")
        assert plain_state(agent.until(task_id, "completed")) == "completed"
        agent.close()
        assert server.stop() == 0
        assert "Traceback" not in server.text()


@pytest.mark.slow
def test_nothing_that_hangs_holds_up_the_end(tmp_path: Path) -> None:
    servers: dict[str, ServerProcess] = {}
    try:
        for name, text in HANGS.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "hangs.py").write_text(text, encoding="utf-8")
            servers[name] = ServerProcess(
                tmp_path / name, "hangs:agent", "--set", "drain_limit=0.2", "--set", "cancel_limit=0.2"
            )
            servers[name].start()
        for server in servers.values():
            agent = Agent(server.base)
            agent.send("stay", wait=False)
            agent.close()
        for server in servers.values():
            assert server.process is not None
            server.process.terminate()
        codes = {name: server.process.wait(60) for name, server in servers.items() if server.process}
        # The thread's task has its verdict, so that end was clean; the others had to be cut, and say where.
        assert codes == {"thread": 0, "loop": 1, "store": 1}
        assert "time.sleep" not in servers["thread"].text()
        assert "hangs.py" in servers["loop"].text() and "Timeout" in servers["loop"].text()
        assert "Timeout" in servers["store"].text()
    finally:
        for server in servers.values():
            if server.process is not None and server.process.poll() is None:
                server.kill()


def unread(server: ServerProcess, client: socket.socket) -> int:
    """How many bytes the server has written to a client that the kernel could not hand over."""
    local, remote = f":{server.port:04X}", f":{client.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(local) and fields[2].endswith(remote):
            return int(fields[4].split(":")[0], 16)
    return 0


@pytest.mark.slow
def test_a_client_that_never_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "trunkline.demo:agent", *QUICK, "--set", "write_limit=2") as server:
        agent = Agent(server.base)
        task_id = agent.send("chunks 15000")["id"]
        agent.close()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(rpc("SubscribeToTask", {"id": task_id}, Last_Event_ID="0"))
            deadline = time.monotonic() + 60
            before = 0
            # Until the server cannot write on: the kernel holds a lot, and no longer more.
            while (waiting := unread(server, deaf)) != before or not waiting:
                assert time.monotonic() < deadline
                before = waiting
                time.sleep(0.1)
            assert server.stop() == 0
        assert "stream.cut" in server.text()


def test_what_was_asked_before_the_end_is_answered_and_what_comes_then_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS, encoding="utf-8")
    with ServerProcess(tmp_path, "waits:agent", "--set", "drain_limit=25") as server:
        assert server.process is not None
        agent, late = Agent(server.base), Agent(server.base)
        # A connection each that is open already.
        agent.result("ListTasks")
        late.result("ListTasks")
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(agent.send("wait")))
        asking.start()
        watcher = Agent(server.base)
        while not watcher.result("ListTasks", {"status": "TASK_STATE_WORKING"})["tasks"]:
            time.sleep(0.02)
        server.process.terminate()
        deadline = time.monotonic() + 60
        while "server.draining" not in server.text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        refused = late.post(
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params("echo late")},
            {"A2A-Version": "1.0"},
        )
        assert refused.status_code == 503
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert "going down" in refused.json()["error"]["message"]
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server.base}/tasks")
        (tmp_path / "go").touch()
        asking.join(60)
        assert plain_state(answers[0]) == "completed"
        assert text_of(answers[0]) == "waited"
        assert server.process.wait(60) == 0
        for one in (agent, late, watcher):
            one.close()


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert server.process is not None
        agent = Agent(server.base)
        agent.until(agent.send("sleep 600", wait=False)["id"], "working")
        agent.close()
        server.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while "server.draining" not in server.text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "tasks=1" in server.text()
        assert server.stop(signal.SIGINT) == 130


TASKS = 100


@pytest.mark.slow
def test_sigterm_under_load_loses_nothing_and_every_stream_can_resume(tmp_path: Path) -> None:
    flags = ("--set", "drain_limit=1", "--set", "log_level=warning")
    with ServerProcess(tmp_path, "trunkline.demo:agent", *flags) as server:

        async def load() -> tuple[list[Stream], int]:
            sent = [
                Stream(server.port, "SendStreamingMessage", params("count 1000 200")) for _ in range(TASKS)
            ]
            reading = [asyncio.ensure_future(one.read()) for one in sent]
            for one in sent:
                await one.first()
            also = [Stream(server.port, "SubscribeToTask", {"id": one.task_id}) for one in sent]
            reading += [asyncio.ensure_future(one.read()) for one in also]
            for one in also:
                await one.first()
            code = await asyncio.to_thread(server.stop)
            await asyncio.gather(*reading)
            return sent + also, code

        streams, code = asyncio.run(asyncio.wait_for(load(), 120))
        assert code == 0
        assert all(one.clean for one in streams), "each ended with the last chunk, not with a cut"
    with ServerProcess(tmp_path) as second:

        async def resume() -> list[Stream]:
            again = [
                Stream(second.port, "SubscribeToTask", {"id": one.task_id}, after=one.last) for one in streams
            ]
            await asyncio.wait_for(asyncio.gather(*(one.read() for one in again)), 20)
            return again

        agent = Agent(second.base)
        for before, after in zip(streams, asyncio.run(resume()), strict=True):
            assert before.ids == sorted(set(before.ids))
            assert all(seq > before.last for seq in after.ids)
            task = agent.get(before.task_id)
            assert plain_state(task) == "failed"
            written = text_of(task).split()
            assert written == [str(number) for number in range(1, len(written) + 1)]
            # Whoever began with the task as it stood has the first words from there.
            assert before.text + after.text == text_of(task)
            assert after.ids and after.state == "failed"
        agent.close()
