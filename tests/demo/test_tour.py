"""The tour ends well, and says so when something does not hold."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from tests.harness import free_port
from trunkline.client.result import Result
from trunkline.demo.tour import Tour
from trunkline.demo.tour_process import Acknowledged, DemoServer, StepFailed
from trunkline.wire.types import Task, TaskState, TaskStatus


def test_once_ends_with_0_and_shows_every_step(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trunkline.cli", "demo", "--once"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    for step in ("Send", "Stream", "question", "Cancel", "kill -9", "survived", "resumes", "webhook", "List"):
        assert step in words
    assert "the same stream is read on: its client reconnects with Last-Event-ID" in words
    assert re.search(r"[1-9]\d\d checks passed in .* nothing was found", words)
    assert re.search(
        r"approver ready approve publisher ready publisher reviewer ready review stepper ready .* writer ready draft",
        words,
    )
    assert re.search(
        r"killing the agent, .* the hub is back after .* no recorded step was taken again", words
    )
    assert re.search(r"input-required May this go out\? task \S+ completed Approved\.", words)
    assert re.search(r"run \S+ success planned for", words)
    assert re.search(
        r"killing the hub, .* completed A first version of what you asked for\. It reads well\.", words
    )
    assert "Everything held." in done.stdout
    await_end_of_all(tmp_path)


def await_end_of_all(directory: Path) -> None:
    """Wait until no process names a folder; the scripted agents of a hub that was killed end soon after it."""
    deadline = time.monotonic() + 30
    while left := _naming(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _naming(directory: Path) -> list[str]:
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if str(directory) in command]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text(encoding="ascii").split()] if found.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "more"), [(1, ["--once"]), (2, [])], ids=["once", "and after the tour"])
def test_the_server_may_be_killed_at_any_moment(tmp_path: Path, seed: int, more: list[str]) -> None:
    chance = random.Random(seed)
    # In these steps, and the first of them by a signal that lets it end in order.
    moments = chance.sample(range(1, 16), 5)
    tour = subprocess.Popen(
        [sys.executable, "-m", "trunkline.cli", "demo", "--port", "0", *more],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert tour.stdout is not None
    said, after = "", ""
    for line in tour.stdout:
        said += line
        step = re.match(r"(\d+)\. ", line)
        if step and int(step[1]) in moments:
            time.sleep(chance.uniform(0, 0.4))
            for child in _children(tour.pid)[:1]:
                # The tour kills it too, perhaps in the same moment.
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM if int(step[1]) == moments[0] else signal.SIGKILL)
        if after or "Ctrl-C ends it" in line:
            if not after:
                # It may have been killed in the last step, and not be up again.
                while not (children := _children(tour.pid)):
                    assert tour.poll() is None
                    time.sleep(0.02)
                os.kill(children[0], signal.SIGKILL)
            after += line
            if "nothing acknowledged was lost" in " ".join(after.split()):
                tour.send_signal(signal.SIGINT)
                break
    rest = tour.communicate(timeout=60)[0]
    said, after = said + rest, after + rest
    words = " ".join(said.split())
    assert tour.returncode == 0, f"seed {seed}: {said}"
    assert "Everything held." in words and "Traceback" not in words, f"seed {seed}: {said}"
    assert "and not by this tour" in words and "nothing acknowledged was lost" in words, (
        f"seed {seed}: {said}"
    )
    if not more:
        assert "was killed by SIGKILL, and not by this tour" in " ".join(after.split()), said
        assert "Stopped." in after


def test_a_task_that_is_not_as_it_was_told_is_noticed() -> None:
    ledger = Acknowledged()
    ledger.note(Result(Task("x", "", TaskStatus(TaskState.COMPLETED))))
    with pytest.raises(StepFailed, match="task x was completed '' and is failed ''"):
        ledger.compare(_Forgetful())  # type: ignore[arg-type]


class _Forgetful:
    """A server that lost the task."""

    def send(self, text: str) -> Result:
        return self.get(text)

    def get(self, task_id: str) -> Result:
        del task_id
        return Result(Task("x", "", TaskStatus(TaskState.FAILED)))


def test_a_step_that_does_not_hold_ends_the_tour(tmp_path: Path) -> None:
    demo = DemoServer(tmp_path, free_port())
    demo.client = _Forgetful()  # type: ignore[assignment]
    with pytest.raises(StepFailed, match="expected completed"):
        Tour(demo, Console(quiet=True)).run()


def test_who_is_not_there_fails_the_step(tmp_path: Path) -> None:
    demo = DemoServer(tmp_path, free_port())
    with pytest.raises(StepFailed, match=r"127\.0\.0\.1"):
        Tour(demo, Console(quiet=True)).run()
    demo.stop()
