"""Settings that a client can feel: receipts, signs of life, slow readers, the end of a wait."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.conformance.wire.bindings import Binding, Proto03, Rest, Rpc, Rpc03
from tests.conformance.wire.conftest import Serve
from tests.conformance.wire.tasks import held, read_until, release, state_of, update_of
from tests.harness import Frames, ServerProcess


def test_reply_receipt_answers_at_once(serve: Serve, speak: Callable[..., Binding]) -> None:
    spoken = speak(serve("trunkline.demo:agent", "--set", "reply=receipt").base)
    answer = spoken.send_message(spoken.message("hold 1"))
    task = answer.result.get("task", answer.result)
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "submitted")
    # Who asks to wait still waits.
    done = spoken.send_message(spoken.message("echo"), wait=True).result
    assert done.get("task", done)["status"]["state"] in ("TASK_STATE_COMPLETED", "completed")


def test_a_wait_ends_with_the_task_as_it_is(serve: Serve, http: httpx2.Client) -> None:
    server = serve("trunkline.demo:agent", "--set", "wait_limit=0.3")

    def wait(speaker: type[Binding]) -> str:
        spoken = speaker(server.base, http)
        answer = spoken.send_message(spoken.message("hold 1"), wait=True)
        return answer.result.get("task", answer.result)["status"]["state"]

    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(wait, (Rpc, Rest, Rpc03)))
    assert states == ["TASK_STATE_WORKING", "TASK_STATE_WORKING", "working"]


def _comments(frames: Frames, count: int) -> None:
    """Read comments until so many came; the stream stays open."""
    for line in frames.response.iter_lines():
        count -= line.startswith(":")
        if not count:
            return
    raise AssertionError("the stream ended before its comments came")


def test_keep_alive_comments_come_while_nothing_happens(serve: Serve, speak: Callable[..., Binding]) -> None:
    spoken = speak(serve("trunkline.demo:agent", "--set", "keep_alive=0.1").base)
    task = held(spoken)
    before = time.monotonic()
    with spoken.subscribe(task["id"]) as frames:
        _comments(frames, 3)
    assert time.monotonic() - before > 0.2
    # Also while a question waits.
    asked = Rpc(spoken.base, spoken.http).send("ask")
    with spoken.subscribe(asked["id"]) as frames:
        _comments(frames, 2)


def test_comments_are_between_events_never_inside(serve: Serve, http: httpx2.Client) -> None:
    spoken = Rpc(serve("trunkline.demo:agent", "--set", "keep_alive=0.1").base, http)
    task = held(spoken, 3)
    with spoken.subscribe(task["id"]) as frames:
        lines = frames.response.iter_lines()
        text: list[str] = []
        for line in lines:
            text.append(line)
            if line.startswith(":"):
                release(spoken)
                break
        text += list(lines)
    blocks = "\n".join(text).strip().split("\n\n")
    assert {block.split(":")[0] for block in blocks} == {"retry", "id", ""}
    assert all("\n" not in block for block in blocks if block.startswith(":"))


# As many as a task may hold, and more than a socket buffers.
CHUNKS = 19_900
# What a store may open when it first reads.
READERS = 4


def _stuck_reader(port: int, task_id: str, *headers: str) -> socket.socket:
    """A subscriber with a tiny buffer that never reads."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}})
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    lines = [
        "POST /a2a HTTP/1.1", f"Host: 127.0.0.1:{port}", "A2A-Version: 1.0", "Content-Type: application/json",
        f"Content-Length: {len(body)}", *headers, "", body,
    ]  # fmt: skip
    reader.sendall("\r\n".join(lines).encode())
    return reader


def _memory(server: ServerProcess, line: str) -> int:
    """Megabytes of the server's process."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition(f"{line}:")[2].split()[0]) // 1024


def _descriptors(server: ServerProcess) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def _cuts(server: ServerProcess, spoken: Rpc, task_id: str, count: int) -> None:
    """Until so many readers of the task were cut."""
    deadline = time.monotonic() + 60
    while server.text().count(f"stream.cut task={task_id}") < count:
        assert time.monotonic() < deadline, "the slow readers were not cut"
        spoken.get(task_id, historyLength=0)


def _drained(reader: socket.socket) -> bytes:
    """What the server had sent before it cut the reader off."""
    reader.settimeout(20)
    pieces: list[bytes] = []
    while piece := reader.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.slow
def test_a_slow_reader_is_cut_and_hurts_nobody(serve: Serve, http: httpx2.Client) -> None:
    # The reader beside it is this process, which a busy machine may keep waiting for a second.
    server = serve("trunkline.demo:agent", "--set", "write_limit=4")
    spoken = Rpc(server.base, http)
    task = held(spoken, CHUNKS)
    with _stuck_reader(server.port, task["id"]) as stuck, spoken.subscribe(task["id"]) as frames:
        read_until(frames, "TASK_STATE_WORKING")
        release(spoken)
        seen = frames.all()
        assert state_of(seen[-1]) == "TASK_STATE_COMPLETED"
        assert len(seen) == CHUNKS + 1
        _cuts(server, spoken, task["id"], 1)
        got = _drained(stuck)
    assert not got.endswith(b"0\r\n\r\n"), "a cut stream must not look like a finished one"
    ids = [
        int(line[4:]) for line in got.split(b"\n") if line.startswith(b"id: ") and line[4:].strip().isdigit()
    ]
    # The last id may be of a frame that was torn in two; the one before is whole.
    last = ids[-2]
    assert last < (seen[-1].id or 0)
    with spoken.subscribe(task["id"], last=str(last)) as frames:
        rest = [frame.id for frame in frames]
    assert rest == [frame.id for frame in seen if frame.id is not None and frame.id > last]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_readers_that_stand_still_cost_no_memory(serve: Serve, http: httpx2.Client) -> None:
    server = serve("trunkline.demo:agent", "--set", "write_limit=1")
    spoken = Rpc(server.base, http)
    # About 6 MB of frames.
    task = spoken.send(f"chunks {CHUNKS}")
    before, idle = _memory(server, "VmHWM"), _descriptors(server)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(_stuck_reader(server.port, task["id"], "Last-Event-ID: 0"))
        _cuts(server, spoken, task["id"], 10)
        assert _memory(server, "VmHWM") - before < 80
        # They still do not read: only a server that lets go of them gets its descriptors back.
        deadline = time.monotonic() + 60
        while (left := _descriptors(server)) > idle + READERS:
            assert time.monotonic() < deadline, f"{left} descriptors are still open"
            spoken.get(task["id"], historyLength=0)


def test_streams_end_when_the_server_goes_down(
    tmp_path_factory: pytest.TempPathFactory, http: httpx2.Client
) -> None:
    server = ServerProcess(
        tmp_path_factory.mktemp("down"),
        "trunkline.demo:agent",
        "--set",
        "drain_limit=0.2",
        "--set",
        "cancel_limit=0.2",
    )
    with server:
        spoken = Rpc(server.base, http)
        asked = spoken.send("ask")
        with spoken.subscribe(asked["id"]) as frames:
            each = iter(frames)
            first = next(each)
            assert server.process is not None
            server.process.terminate()
            assert list(each) == []
        server.stop()
        server.start()
        with spoken.subscribe(asked["id"], last=str(first.id)) as frames:
            spoken.send("after the restart", taskId=asked["id"], wait=False)
            seen = frames.all()
    assert update_of(seen[-1])["status"]["state"] == "TASK_STATE_COMPLETED"


def test_both_forms_of_the_rest_base(serve: Serve, http: httpx2.Client) -> None:
    """HTTP+JSON of 0.3 lives under /v1 of the same interface url as 1.0."""
    base = serve("trunkline.demo:agent", "--set", "reply=receipt").base
    assert Rest(base, http).send_message(Rest(base, http).message("echo"), wait=True).http == 200
    assert Proto03(base, http).send_message(Proto03(base, http).message("echo"), wait=True).http == 200
