"""Where lines go: batches, their order, what is lost and said to be, and an author's own logging."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import PIPE_BUF

import pytest

from trunkline.log.head import Head
from trunkline.telemetry import logs
from trunkline.telemetry.logs import FORMATS, Change
from trunkline.wire.types import TaskState

LIMIT_S = 60.0


@contextmanager
def alone() -> Iterator[logging.Logger]:
    """The root logger without pytest's handlers, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _change(seq: int) -> Change:
    return 0, "default", Head("t", "c", "me", TaskState.WORKING, 0, seq, "n"), "working", seq, "", ""


class Output:
    """Takes what is written, or refuses it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.broken = False
        self.told: Callable[[], None] = lambda: None

    def __call__(self, text: bytes) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.pieces.append(text)
        self.told()

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in b"".join(self.pieces).splitlines()]


def test_changes_are_written_soon_and_together() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)

    async def main() -> None:
        for seq in range(5):
            lines.note(_change(seq))
        assert output.pieces == []
        written = asyncio.Event()
        output.told = written.set
        await asyncio.wait_for(written.wait(), LIMIT_S)

    asyncio.run(main())
    assert len(output.pieces) == 1
    assert [line["seq"] for line in output.lines] == [0, 1, 2, 3, 4]


def test_a_full_batch_does_not_wait() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)

    async def main() -> None:
        for seq in range(2 * logs.BATCH + 1):
            lines.note(_change(seq))
        assert len(output.pieces) == 2

    asyncio.run(main())
    lines.flush()
    lines.flush()
    assert [line["seq"] for line in output.lines] == list(range(2 * logs.BATCH + 1))
    assert len(output.pieces) == 3


def test_any_other_line_comes_after_what_was_noted_before() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)

    async def main() -> None:
        lines.note(_change(1))
        lines.handle(logging.LogRecord("trunkline.x", 30, "", 0, "store.failed error=%s", ("x",), None))
        lines.note(_change(2))

    asyncio.run(main())
    lines.close()
    lines.flush()
    assert [line["event"] for line in output.lines] == ["task.state", "store.failed", "task.state"]


class NotedMeanwhile(deque[Change]):
    """While the first is taken, another loop notes one more: it finds that a batch is under way."""

    def popleft(self) -> Change:
        if self[0][4] == 0:
            self.append(_change(1))
        return super().popleft()


def test_what_is_noted_while_a_batch_is_taken_is_written_with_it() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)
    lines._noted = NotedMeanwhile([_change(0)])
    lines.flush()
    assert [line["seq"] for line in output.lines] == [0, 1]


def test_no_line_is_lost_or_doubled_when_threads_write_too() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)
    over = threading.Event()

    def talk() -> None:
        while not over.is_set():
            lines.handle(logging.LogRecord("trunkline.x", 30, "", 0, "other.thread", (), None))

    async def main() -> None:
        for seq in range(5000):
            lines.note(_change(seq))

    talker = threading.Thread(target=talk)
    talker.start()
    asyncio.run(main())
    over.set()
    talker.join(LIMIT_S)
    lines.flush()
    assert [line["seq"] for line in output.lines if "seq" in line] == list(range(5000))


def test_lines_that_could_not_be_written_are_counted_in_the_next() -> None:
    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)

    async def main() -> None:
        output.broken = True
        for seq in range(3):
            lines.note(_change(seq))
        lines.handle(logging.LogRecord("trunkline.x", 30, "", 0, "store.failed", (), None))
        output.broken = False
        lines.note(_change(3))

    asyncio.run(main())
    lines.flush()
    assert [(line["event"], line.get("lines"), line.get("seq")) for line in output.lines] == [
        ("log.lost", 4, None),
        ("task.state", None, 3),
    ]


def test_lines_are_written_whole_so_that_processes_can_share_a_pipe() -> None:
    short = [b"%d %b\n" % (number, b"x" * 300) for number in range(50)]
    lines = [*short, b"y" * (2 * PIPE_BUF) + b"\n", *short, b"no end"]
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours:
        logs.line_writer(ours.fileno())(b"".join(lines))
        ours.shutdown(socket.SHUT_WR)
        pieces = list(iter(lambda: theirs.recv(1 << 20), b""))
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) < len(lines) / 5
    assert [piece for piece in pieces[:-1] if not piece.endswith(b"\n")] == []
    assert [len(piece) for piece in pieces if len(piece) > PIPE_BUF] == [2 * PIPE_BUF + 1]


def test_a_record_that_cannot_be_written_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    logs.LogHandler(FORMATS["text"], output).handle(
        logging.LogRecord("x", 30, "", 0, "%d", ("no number",), None)
    )
    assert output.pieces == []
    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_terminal_handler_is_replaced_and_others_stay() -> None:
    own = logging.NullHandler()
    with alone() as root:
        root.addHandler(logging.StreamHandler())
        root.addHandler(own)
        logs.set_up_logs("warning", "json")
        assert root.level == logging.WARNING
        kept, added = root.handlers
    assert kept is own and isinstance(added, logs.LogHandler)


def test_changes_go_through_logging_where_others_listen() -> None:
    class Listener(logging.Handler):
        said: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.said.append(record.getMessage())

    output = Output()
    lines = logs.LogHandler(FORMATS["json"], output)
    with alone() as root:
        root.setLevel(logging.INFO)
        root.addHandler(lines)
        assert logs.change_log() == lines.note
        root.addHandler(Listener())
        logs.change_log()(_change(4))
    assert Listener.said == [
        "task.state task=t context='c' tenant='default' state=working seq=4 node=n trace= correlation=''"
    ]
    (line,) = output.lines
    assert (line["event"], line["context"], line["seq"]) == ("task.state", "c", 4)


def test_what_was_noted_is_written_at_the_end_of_the_process() -> None:
    code = """
import asyncio
from trunkline.log.head import Head
from trunkline.telemetry import logs
from trunkline.wire.types import TaskState
logs.set_up_logs("info", "json")
async def main():
    logs.change_log()((0, "default", Head("t", "c", "me", TaskState.WORKING, 0, 1, "n"), "working", 1, "", ""))
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert json.loads(ended.stderr)["event"] == "task.state"
