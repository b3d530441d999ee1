"""Row 90: workflows in processes that are killed behind every row of their histories."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row
from tests.flow import vectors
from tests.flow.dying import CASES, faults

ROOT = Path(__file__).parents[2]


@row(
    90,
    "kill -9 behind every row of the example workflows",
    "the same end and the same rows; nothing recorded is done again",
    SQLITE,
    POSTGRES,
    name="flow",
)
async def every_row(run: Run) -> Result:
    """Kill each example behind each row, and have another process go on."""
    if not (vectors.ROOT / "examples").is_dir():
        return Result(None, f"no examples at {vectors.ROOT}: set TRUNKLINE_VECTORS")
    found: list[str] = []
    kills = 0
    for case in CASES:
        whole, *killed = await _played(run, case)
        kills += sum(bool(one["killed"]) for one in killed)
        found += [f"{case}: {fault}" for one in killed for fault in faults(whole, one)]
        run.say(f"{case}: {kills} kills so far, {len(found)} faults")
    for fault in found[:20]:
        print(f"    {fault}", flush=True)
    return Result(not found and kills > 0, f"{kills} kills in {len(CASES)} workflows, {len(found)} faults")


async def _played(run: Run, case: str) -> list[dict[str, object]]:
    store = "sqlite" if run.kind == SQLITE else run.url
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.flow.dying", str(run.directory), store, case, "all",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, said = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the runs of {case} could not be played: {said.decode()[-2000:]}")
    return [json.loads(line) for line in printed.splitlines()]
