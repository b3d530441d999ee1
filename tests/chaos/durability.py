"""Rows 1 to 4, 11 and 14: what was acknowledged outlives the process, the disk and the copy."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.crowd import Crowd
from tests.chaos.fleet import Server
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, spread, verdict


@row(
    1, "kill -9 at random under load, 50 clients, 5 to 500 ms apart",
    "0 violations in 200 kills; restart to first ack ≤ 1 s", SQLITE, POSTGRES,
)  # fmt: skip
async def row_01(run: Run) -> Result:
    kills = run.count(200, option="kills")
    fleet = run.fleet(1 if run.kind == SQLITE else 2)
    await fleet.start()
    crowd = Crowd(fleet.servers, run.history, run.seed, run.options.get("clients") or 50)
    crowd.start()
    first_acks: list[float] = []
    for number in range(kills):
        await asyncio.sleep(run.random.uniform(0.005, 0.5))
        server = run.random.choice(fleet.servers)
        await server.kill()
        before = crowd.acks
        await server.start()
        await crowd.until_ack(before)
        first_acks.append(crowd.last_ack - server.started_at)
        run.say(f"{number + 1} of {kills} kills, {crowd.acks} acknowledged")
    await crowd.settle()
    violations = await fleet.judge()
    lasted = [seconds for seconds in first_acks if seconds > 0]
    return verdict(
        violations,
        f"{kills} kills, {crowd.acks} acknowledged writes, {len(run.history.readings)} streams; "
        f"restart to first ack {spread(lasted)}",
        run.kind == POSTGRES or max(lasted) <= 1.0,
    )


async def _alive(server: Server, limit_s: float) -> bool:
    """Whether a server is still there after a while."""
    deadline = time.monotonic() + limit_s
    while server.running and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return server.running
