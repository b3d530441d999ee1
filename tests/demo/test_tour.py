"""The tour ends well, and says so when something does not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from trunkline.demo.remote import StepFailed
from trunkline.demo.tour import Tour


def test_once_ends_with_0_and_shows_every_step(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trunkline.cli", "demo", "--once"],
        cwd=tmp_path, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for step in ("Send", "Stream", "question", "Cancel", "kill -9", "survived", "List"):
        assert step in done.stdout
    assert "Everything held." in done.stdout


class _Forgetful:
    """A server that lost the task."""

    def send(self, text: str, **message: str) -> dict[str, object]:
        del text, message
        return {"id": "x", "status": {"state": "TASK_STATE_FAILED"}}


def test_a_step_that_does_not_hold_ends_the_tour() -> None:
    with pytest.raises(StepFailed, match="expected completed"):
        Tour(_Forgetful(), Console(quiet=True)).run()  # type: ignore[arg-type]
