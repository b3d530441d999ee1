"""What both callers share: call for so long, and say on standard output what that took of this process."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable

# The characters of a chunk of the demo agent: whoever reads a stream reads all of them.
TEXT = len("chunk-000000 lorem ipsum dolor sit amet")
# Gives how much came of one call, or -1 if it was not what was asked for.
Once = Callable[[], Awaitable[int]]


def cpu() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(once: Once, *, warm: float, seconds: float, parallel: int) -> None:
    """Call again and again from `parallel` tasks; the first `warm` seconds do not count."""
    await _load(once, warm, parallel)
    began, used = time.perf_counter(), cpu()
    counts = await _load(once, seconds, parallel)
    told = {
        "count": sum(count for count in counts if count > 0),
        "bad": sum(count < 0 for count in counts),
        "cpu_s": cpu() - used,
        "wall_s": time.perf_counter() - began,
    }
    print(json.dumps(told), flush=True)


async def _load(once: Once, seconds: float, parallel: int) -> list[int]:
    end = time.perf_counter() + seconds
    counts: list[int] = []

    async def work() -> None:
        while time.perf_counter() < end:
            counts.append(await once())

    await asyncio.gather(*(work() for _ in range(parallel)))
    return counts
