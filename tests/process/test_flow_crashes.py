"""The crash matrix of workflows: killed behind any row, a run ends as it would have, and does nothing twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flow import vectors
from tests.flow.dying import CASES, faults
from tests.sample import THOROUGH

LIMIT_S = 300.0
ROOT = Path(__file__).parents[2]
# How many cuts of each case, by the store.
SAMPLE, MOST = {"sqlite": 5, "postgres": 1}, 60


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("store", SAMPLE)
def test_a_run_that_is_killed_behind_any_row_ends_as_it_would_have(
    store: str, case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    vectors.example(CASES[case][0])
    cuts = ["all"] if THOROUGH else [str(cut) for cut in random.sample(range(1, MOST), SAMPLE[store])]
    address = request.getfixturevalue("postgres_url") if store == "postgres" else store
    command = [sys.executable, "-m", "tests.flow.dying", str(tmp_path), address, case, *cuts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    whole, *killed = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["told"][0] == "completed"
    assert sum(not one["killed"] for one in killed) <= 2
    assert [fault for one in killed for fault in faults(whole, one)] == []
