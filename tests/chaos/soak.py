"""Row 72: everything at once for a long time, at a part of the load; one server is spared, to see whether it grows."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.client import now_ms
from tests.chaos.crowd import Crowd
from tests.chaos.fleet import Fleet, Server
from tests.chaos.history import EVERYBODY, Death
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, verdict

# The first minutes fill caches and pools.
WARM = 0.25
# Over twenty minutes the noise of an allocator is larger than a slope of 1 MB an hour.
NOISE_MB = 8.0


@row(
    72, "soak with all faults; --minutes says how long, a quarter of it on SQLite",
    "H1 to H8 clean, RSS and descriptors of the spared server flat", SQLITE, POSTGRES,
)  # fmt: skip
async def row_72(run: Run) -> Result:
    share = 0.25 if run.kind == SQLITE else 0.75
    seconds = run.options["minutes"] * 60 * share * run.scale
    fleet = run.fleet(1 if run.kind == SQLITE else 3)
    await fleet.start()
    crowd = Crowd(fleet.servers, run.history, run.seed, 30, pause_s=0.5)
    crowd.start()
    began = time.monotonic()
    spared = fleet.servers[0]
    samples: list[tuple[float, float, int]] = []
    faults: dict[str, int] = {}
    while (passed := time.monotonic() - began) < seconds:
        await asyncio.sleep(run.random.uniform(1, 5))
        if passed > seconds * WARM:
            samples.append((passed, spared.memory_kb() / 1024, spared.descriptors()))
        if run.kind == POSTGRES:
            name = await _fault(run, fleet)
            faults[name] = faults.get(name, 0) + 1
        run.say(
            f"{passed / 60:.1f} of {seconds / 60:.0f} min, {crowd.acks} acknowledged, {faults or 'no faults'}"
        )
    if run.kind == SQLITE:
        # A single server cannot be spared and killed: it is killed at the end.
        await spared.kill()
        await spared.start()
        faults["kill"] = 1
    await crowd.settle()
    slope, level = _slope(samples)
    descriptors = [count for _, _, count in samples]
    violations = await fleet.judge()
    grown = slope * (samples[-1][0] - samples[0][0]) / 3600 if samples else 0.0
    return verdict(
        violations,
        f"{seconds / 60:.0f} min, {crowd.acks} acknowledged writes, {len(run.history.readings)} streams, "
        f"faults {faults}; spared server {level:.0f} MB, {slope:+.1f} MB/h, "
        f"descriptors {min(descriptors)} to {max(descriptors)}",
        grown <= NOISE_MB, max(descriptors[-5:]) <= max(descriptors[:5]) + 30,
    )  # fmt: skip


async def _fault(run: Run, fleet: Fleet) -> str:
    """One of them, seeded."""
    victim = run.random.choice(fleet.servers[1:])
    name = run.random.choice(["kill", "kill", "freeze", "stop", "database", "nothing"])
    match name:
        case "kill":
            await victim.kill()
            await victim.start()
        case "freeze":
            await _freeze(run, victim)
        case "stop":
            await victim.stop()
            await victim.start()
        case "database":
            assert run.database is not None
            run.history.deaths.append(Death(EVERYBODY, now_ms()))
            await asyncio.to_thread(run.database.server.crash)
            await asyncio.to_thread(run.database.server.start)
        case _:
            pass
    return name


async def _freeze(run: Run, victim: Server) -> None:
    victim.up.clear()
    victim.freeze()
    await asyncio.sleep(run.random.uniform(0.5, 6))
    victim.thaw()
    victim.up.set()


def _slope(samples: list[tuple[float, float, int]]) -> tuple[float, float]:
    """Megabytes an hour by least squares, and the mean."""
    if len(samples) < 2:
        return 0.0, 0.0
    count = len(samples)
    mean_x = sum(at for at, _, _ in samples) / count
    mean_y = sum(size for _, size, _ in samples) / count
    above = sum((at - mean_x) * (size - mean_y) for at, size, _ in samples)
    below = sum((at - mean_x) ** 2 for at, _, _ in samples)
    return above / below * 3600, mean_y
