"""A server process, and its database, whose clock is set a day back or forth: waits end in their time.

The clock is that of Debian's package `faketime`; where its command is absent, the tests are skipped.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.harness import V1, Agent, ServerProcess, text_of

LIMIT_S, DAY_S = 60.0, 86_400
SLEEPER = '''
from trunkline import Agent, Turn

agent = Agent("sleeper", on_crash="resume")


@agent.skill
async def nap(turn: Turn) -> str:
    """Sleep for a while, which is long enough to be parked."""
    await turn.sleep(9)
    return "awake"
'''
pytestmark = pytest.mark.skipif(
    shutil.which("faketime") is None, reason="faketime is not installed (apt-get install faketime)"
)


class FakedClock:
    """A clock that processes read from a file, while their monotonic clock stays the real one."""

    def __init__(self, folder: Path) -> None:
        # Its readers may run as another user.
        folder.chmod(0o755)
        self._offset = folder / "clock"
        self.set(0)
        library = next(iter(glob("/usr/lib/*/faketime/libfaketimeMT.so.1")))
        self.env = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset_s: int) -> None:
        """Set the clock in one step: a reader of a file that is half written would see another time."""
        written = self._offset.with_suffix(".new")
        written.write_text(f"{offset_s:+d}\n")
        written.chmod(0o644)
        written.replace(self._offset)


@pytest.fixture
def clock() -> Iterator[FakedClock]:
    with tempfile.TemporaryDirectory(prefix="trunkline-clock-") as folder:
        yield FakedClock(Path(folder))


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _awake(asker: Agent, task: dict[str, Any]) -> bool:
    """Return whether a task has ended; a database whose clock jumps drops sessions, and requests get 503."""
    answer = asker.post({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}, V1)
    assert answer.status_code in (200, 503), answer.text
    found = answer.json().get("result", task)
    assert found["status"]["state"] != "TASK_STATE_FAILED", found
    return text_of(found) == "awake"


def _begin(asker: Agent, is_parked: Callable[[], bool]) -> dict[str, Any]:
    task: dict[str, Any] = asker.send("nap", wait=False)
    _until(is_parked)
    return task


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_waits_end_though_the_clock_of_the_process_is_set(
    tmp_path: Path, clock: FakedClock, step_s: int
) -> None:
    (tmp_path / "sleeper_agent.py").write_text(SLEEPER)

    def is_parked() -> bool:
        with sqlite3.connect(f"file:{tmp_path}/tasks.db?mode=ro", uri=True) as database:
            return bool(list(database.execute("SELECT 1 FROM tasks WHERE state = 2 AND node = ''")))

    with ServerProcess(tmp_path, "sleeper_agent:agent", env=clock.env) as server:
        asker = Agent(server.base)
        task = _begin(asker, is_parked)
        clock.set(step_s)
        _until(lambda: _awake(asker, task))
        # The next one begins under the other clock, and outlives a restart under the first one.
        later = _begin(asker, is_parked)
        server.kill()
        clock.set(0)
        server.start()
        _until(lambda: _awake(asker, later))
        asker.close()


@pytest.mark.skipif(bool(postgres.why_none() or postgres.GIVEN), reason="needs a PostgreSQL of its own")
@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_waits_end_though_the_clock_of_the_database_is_set(
    tmp_path: Path, clock: FakedClock, step_s: int
) -> None:
    (tmp_path / "sleeper_agent.py").write_text(SLEEPER)
    server = postgres.Server(env=clock.env)
    server.start()
    database = postgres.Database(server.url(), "clock")
    try:

        def is_parked() -> bool:
            (found,) = database.execute("SELECT 1 FROM trunkline.tasks WHERE state = 2 AND node = ''")
            return bool(found)

        # The replica has a clock of its own, a week behind: it does not count.
        with tempfile.TemporaryDirectory(prefix="trunkline-clock-") as folder:
            behind = FakedClock(Path(folder))
            behind.set(-7 * DAY_S)
            process = ServerProcess(tmp_path, "sleeper_agent:agent", store=database.url, env=behind.env)
            with process:
                asker = Agent(process.base)
                task = _begin(asker, is_parked)
                clock.set(step_s)
                _until(lambda: _awake(asker, task))
                asker.close()
    finally:
        database.drop()
        server.close()
