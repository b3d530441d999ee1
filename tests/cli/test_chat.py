"""`trunkline chat`: on a terminal, which a test has too, and in a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_send import documents

LIMIT_S = 60.0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, home: Path) -> None:
        self._master, slave = pty.openpty()
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trunkline.cli", *words], stdin=slave, stdout=slave, stderr=slave, env=env
        )
        os.close(slave)
        self.seen = ""

    def until(self, words: str) -> str:
        """Read until these words have come; what came since the last time."""
        begun, deadline = len(self.seen), time.monotonic() + LIMIT_S
        while words not in self.seen[begun:]:
            if time.monotonic() > deadline or not select.select([self._master], [], [], 1.0)[0]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{words!r} did not come: {self.seen[begun:]!r}")
                continue
            self.seen += os.read(self._master, 65536).decode()
        return self.seen[begun:]

    def rest(self) -> str:
        """All that comes until the command has ended."""
        begun = len(self.seen)
        with contextlib.suppress(OSError):
            self.until("\x00")
        return self.seen[begun:]

    def say(self, text: str) -> None:
        os.write(self._master, f"{text}\n".encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def close(self) -> int:
        code = self.process.wait(LIMIT_S)
        os.close(self._master)
        return code


@pytest.fixture
def talk(demo_url: str, tmp_path: Path) -> Iterator[Terminal]:
    """`trunkline chat` at its first prompt; it is ended whatever the test comes to."""
    terminal = Terminal("chat", demo_url, home=tmp_path)
    terminal.until("you> ")
    yield terminal
    terminal.process.kill()
    terminal.process.wait(LIMIT_S)


def test_a_conversation_on_a_terminal(talk: Terminal) -> None:
    talk.say("hello there")
    assert talk.until("you> ").endswith("\x1b[Khello there\r\nyou> ")
    talk.say("chunks 2")
    assert re.search(r"\x1b\[Kchunk-000000[^\x1b]*chunk-000001[^\x1b]*\r\nyou> $", talk.until("you> "))
    talk.say("ask which colour")
    assert talk.until("you> ").endswith("\x1b[Kwhich colour\r\nyou> ")
    talk.say("/ids")
    first = re.search(r"Context: (\S+)\s+Task: (\S+)", talk.until("you> ").replace("\x1b[K", ""))
    assert first is not None and first[2] != "none"
    talk.say("blue")
    assert "blue\r\nyou> " in talk.until("you> ").partition("\n")[2]
    talk.say("reject")
    assert "TASK_STATE_REJECTED" in talk.until("you> ")
    talk.say("/new")
    talk.until("you> ")
    talk.say("again")
    talk.until("you> ")
    talk.say("/quit")
    (after,) = re.findall(r"--context-id (\S+)", talk.rest())
    assert talk.close() == 0
    assert after != first[1]


def test_an_interrupted_prompt_ends_at_once(talk: Terminal) -> None:
    talk.interrupt()
    assert "no task was started" in talk.rest()
    assert talk.close() == 130


def test_an_interrupted_turn_says_its_task(talk: Terminal) -> None:
    talk.say("sleep 60")
    talk.until("has begun")
    talk.interrupt()
    assert re.search(r"task \S+ continues", talk.rest())
    assert talk.close() == 130


def test_a_pipe_is_a_turn_per_line(trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\nask which\nblue\n/new\nmore\n/quit\nnever\n"))
    code, out, _ = trunkline("chat", demo_url, "-o", "json")
    turns = [turn["task"] for turn in documents(out)]
    assert code == 0
    states = [turn["status"]["state"].removeprefix("TASK_STATE_") for turn in turns]
    assert states == ["COMPLETED", "INPUT_REQUIRED", "COMPLETED", "COMPLETED"]
    hello, asked, answered, more = turns
    assert asked["id"] == answered["id"] != hello["id"]
    assert hello["contextId"] == asked["contextId"] != more["contextId"]


def test_a_pipe_has_no_prompt_and_no_control_sequence(
    trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    code, out, err = trunkline("chat", demo_url)
    assert code == 0
    assert out.startswith("Task: ") and "you>" not in out
    assert "\x1b" not in out + err


def test_nobody_is_asked_where_the_output_is_no_terminal(
    trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code, out, _ = trunkline("chat", demo_url, "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "A2ACLI_ERR_USAGE")


def test_progress_passes_by_on_standard_error_only(demo_url: str, tmp_path: Path) -> None:
    """On a terminal too the result has no control sequence: what is wiped and coloured is beside it."""
    master, slave = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-m", "trunkline.cli", "send", demo_url, "fail"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, env=env, check=True, timeout=LIMIT_S)
    os.close(slave)
    beside = os.read(master, 65536).decode()
    os.close(master)
    assert b"\x1b" not in done.stdout and b"TASK_STATE_FAILED" in done.stdout
    assert "\r\x1b[K" in beside and "\x1b[33mWarning:\x1b[0m" in beside


def test_help_is_not_sent_to_the_agent(
    trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/help\n"))
    code, out, err = trunkline("chat", demo_url, "-o", "json")
    assert (code, out) == (0, "")
    assert "/quit ends" in err


def test_a_stream_on_a_terminal_flows(demo_url: str, tmp_path: Path) -> None:
    """The line of progress is wiped before the first field, and pieces of a text are one text."""
    terminal = Terminal("stream", demo_url, "chunks 3", home=tmp_path)
    said = terminal.rest()
    assert terminal.close() == 0
    assert re.search(r"\x1b\[KTask: ", said)
    assert re.search(r"chunk-000000[^\r\n]*chunk-000001[^\r\n]*chunk-000002", said), said
    assert "State: TASK_STATE_COMPLETED" in said
