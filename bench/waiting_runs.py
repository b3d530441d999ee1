"""Runs of workflows that wait, in a process of their own: the memory that they take, and what they cost.

A program too: `python -m bench.waiting_runs COUNT` prints the MiB and the CPU seconds of ten seconds.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
from time import process_time
from typing import Any

from bench.flow import DOCUMENT
from bench.scenario import Sample, Scale
from bench.servers import Contender
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.run.node import Limits

WATCH_S = 10.0
# How many are begun at a time, and how many before memory is measured: caches and pools are full then.
TOGETHER, WARM = 64, 500
WAITS: list[dict[str, Any]] = [
    {"type": "wait", "config": {"kind": "signal", "signal": "go"}},
    {"type": "wait", "config": {"kind": "duration", "duration": "24h"}},
    {"type": "interrupt", "config": {"prompt": "Good?", "resume_schema": {"type": "object"}}},
]
RESTS = {"awaiting_signal", "interrupted", "running"}


def waiting(contender: Contender, scale: Scale) -> Sample:
    """MiB of all waiting runs together, above what the process has without them."""
    del contender
    command = [sys.executable, "-m", "bench.waiting_runs", str(scale.idle)]
    mib, cpu_s = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return Sample(float(mib), extra={"cpu_s": float(cpu_s)})


def _document(wait: dict[str, Any]) -> dict[str, Any]:
    start, work, end = DOCUMENT["nodes"]
    return {**DOCUMENT, "nodes": [start, {**wait, "id": work["id"]}, end]}


async def _measure(count: int) -> tuple[float, float]:
    documents = [_document(wait) for wait in WAITS]
    with tempfile.TemporaryDirectory() as scratch:
        limits = Limits(park_after_s=0.0)
        async with LocalFlows(f"sqlite:///{scratch}/tasks.db", limits=limits) as flows:

            async def begin(number: int) -> None:
                document = documents[number % len(documents)]
                given = {"task": f"wait {number}"}
                result = await flows.port.start(FlowCaller(), document, given, wait_s=0.0)
                if result.status not in RESTS:
                    raise AssertionError(f"a run that waits is {result.status}: {result.error}")

            async def begin_all(first: int, behind: int) -> None:
                for some in range(first, behind, TOGETHER):
                    await asyncio.gather(*map(begin, range(some, min(some + TOGETHER, behind))))

            await begin_all(0, WARM)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await begin_all(WARM, WARM + count)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            await asyncio.sleep(1.0)
            began = process_time()
            await asyncio.sleep(WATCH_S)
            return grown / 1024, process_time() - began


if __name__ == "__main__":
    print(*asyncio.run(_measure(int(sys.argv[1]))))
