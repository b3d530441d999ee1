"""Tests of a user, run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_tests(folder: Path) -> str:
    """What pytest says of the tests in a folder."""
    command = "-m pytest -q -W error -p no:cacheprovider -p no:xdist .".split()
    ran = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return ran.stdout + ran.stderr
