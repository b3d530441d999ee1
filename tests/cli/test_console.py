"""What passes by on a terminal."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from trunkline.cli.console import show_progress


@pytest.mark.parametrize(("columns", "fits"), [(20, 19), (0, 79)])
def test_progress_stays_in_its_row(monkeypatch: pytest.MonkeyPatch, columns: int, fits: int) -> None:
    """A second row could not be wiped."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        show_progress("x" * 200)
        shown = os.read(master, 1024).decode()
    os.close(master)
    assert shown == "\r\x1b[K" + "x" * fits
