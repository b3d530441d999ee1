"""The walk of one message through the package stays short, as `scripts/walk.py` measures it."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.architecture.source import ROOT

FILES_LIMIT = 38


def test_one_send_enters_few_files() -> None:
    """A reader who follows a message opens each of these files; a new one on the way takes another one's place."""
    command = [sys.executable, ROOT / "scripts" / "walk.py", "send"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    count = re.search(r"^files +(\d+)$", done.stdout, re.M)
    assert count is not None, done.stderr[-2000:]
    assert int(count[1]) <= FILES_LIMIT, done.stdout
