"""The crash matrix of workflows: killed behind any row, a run ends as it would have, and does nothing twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.flow import vectors
from tests.flow.dying import CASES
from tests.sample import THOROUGH

LIMIT_S = 300.0
ROOT = Path(__file__).parents[2]
SAMPLE, MOST = 5, 60


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_behind_any_row_ends_as_it_would_have(case: str, tmp_path: Path) -> None:
    vectors.example(CASES[case][0])
    cuts = ["all"] if THOROUGH else [str(cut) for cut in random.sample(range(1, MOST), SAMPLE)]
    command = [sys.executable, "-m", "tests.flow.dying", str(tmp_path), case, *cuts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    whole, *killed = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["told"][0] == "completed"
    for one in killed:
        assert one["told"] == whole["told"], one["cut"]
        assert one["rows"] == whole["rows"], one["cut"]
        assert one["calls"] == _left(whole, one), one["cut"]


def _left(whole: dict[str, Any], killed: dict[str, Any]) -> dict[str, int]:
    """What is to be called after a kill: all that was not recorded before, and nothing that was."""
    left = Counter[str](whole["recorded"])
    left.subtract(killed["recorded"])
    return {name: count for name, count in left.items() if count and name in whole["calls"]}
