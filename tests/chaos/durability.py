"""Rows 1 to 4, 11 and 14: what was acknowledged outlives the process, the disk and the copy."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.chaos.client import now_ms
from tests.chaos.crowd import Crowd
from tests.chaos.fleet import Server, strace, works
from tests.chaos.history import REFUSED
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, percentile, row, spread, verdict
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.base import Store
from trunkline.store.url import store_from_url
from trunkline.wire.types import Message, Part, Role, TaskState


@row(
    1, "kill -9 at random under load, 50 clients, 5 to 500 ms apart",
    "0 violations in 200 kills; on SQLite restart to first ack p99 ≤ 1 s with 100 000 tasks stored", SQLITE, POSTGRES,
)  # fmt: skip
async def row_01(run: Run) -> Result:
    kills = run.count(200, option="kills")
    stored = run.count(100_000) if run.kind == SQLITE else 0
    await _fill(run.url, stored)
    fleet = run.fleet(1 if run.kind == SQLITE else 2)
    await fleet.start()
    crowd = Crowd(fleet.servers, run.history, run.seed, run.options.get("clients") or 50)
    crowd.start()
    first_acks: list[float] = []
    starts: list[float] = []
    for number in range(kills):
        await asyncio.sleep(run.random.uniform(0.005, 0.5))
        server = run.random.choice(fleet.servers)
        await server.kill()
        before = crowd.acks
        starts.append(await server.start())
        await crowd.until_ack(before)
        first_acks.append(crowd.last_ack - server.started_at)
        run.say(f"{number + 1} of {kills} kills, {crowd.acks} acknowledged")
    await crowd.settle()
    violations = await fleet.judge()
    measured = (
        f"{kills} kills, {crowd.acks} acknowledged writes, {len(run.history.readings)} streams; restart to "
    )
    if run.kind == POSTGRES:
        # The other server goes on; how soon it takes over is row 8.
        return verdict(violations, f"{measured}listening {spread(starts)}")
    return verdict(
        violations,
        f"{measured}first ack {spread(first_acks)} with {stored} tasks stored",
        percentile(first_acks, 99) <= 1.0,
    )


async def _fill(url: str, count: int) -> None:
    """So many ended tasks of somebody else."""
    store = store_from_url(url)
    await store.open()
    try:
        for start in range(0, count, 500):
            places = range(start, min(count, start + 500))
            await asyncio.gather(*(_put(store, f"stored-{place}") for place in places))
    finally:
        await store.close()


async def _put(store: Store, task_id: str) -> None:
    message = Message(f"for-{task_id}", task_id, task_id, role=Role.USER, parts=(Part(text="long ago"),))
    events = (ev.Submitted(message, task_id, "somebody", "a-node"), ev.Status(TaskState.COMPLETED))
    at = now_ms()
    await store.log.append("default", task_id, 0, events, at=at, head=head_after(State(task_id), events, at))


@row(2, "kill -9 exactly at the n-th fsync or write (strace)", "0 violations at 150 points", SQLITE)
async def row_02(run: Run) -> Result:
    if not works(["strace", "-V"]):
        return Result(None, "strace is not installed")
    points = run.count(150, option="kills")
    fleet = run.fleet()
    (server,) = fleet.servers
    crowd = Crowd(fleet.servers, run.history, run.seed, run.options.get("clients") or 12)
    crowd.start()
    hit = 0
    for point in range(1, points + 1):
        call = ("fdatasync", "pwrite64")[point % 2]
        hit += await _live(server, strace(f"{call}:signal=SIGKILL:when={point}"), 8.0) == -signal.SIGKILL
        run.say(f"{point} of {points} points, {hit} hit, {crowd.acks} acknowledged")
    await server.start()
    await crowd.settle()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{hit} of {points} points hit, {crowd.acks} acknowledged writes",
        hit >= points * 0.95,
    )


@row(
    3, "fsync returns EIO at the n-th call, once or from then on (strace)",
    "acknowledged = stored at 50 points; refused = absent", SQLITE,
)  # fmt: skip
async def row_03(run: Run) -> Result:
    if not works(["strace", "-V"]):
        return Result(None, "strace is not installed")
    points = run.count(50, option="kills")
    fleet = run.fleet()
    (server,) = fleet.servers
    crowd = Crowd(fleet.servers, run.history, run.seed, run.options.get("clients") or 12)
    crowd.start()
    refused = 0
    for point in range(1, points + 1):
        before = _refusals(run)
        for_good = "+" if point % 2 else ""
        await _live(server, strace(f"fdatasync:error=EIO:when={point + 9}{for_good}"), 1.0)
        refused += _refusals(run) > before
        run.say(f"{point} of {points} points, {refused} refused something, {crowd.acks} acknowledged")
    await server.start()
    await crowd.settle()
    violations = await fleet.judge(strict=True)
    return verdict(
        violations,
        f"{points} points, {refused} of them refused writes ({_refusals(run)} in all), "
        f"{crowd.acks} acknowledged",
        refused >= points * 0.2,
    )


async def _live(server: Server, tracer: tuple[str, ...], limit_s: float) -> int:
    """One life under a tracer, to its end or for so long; how it ended."""
    try:
        await server.start(*tracer)
    except RuntimeError:
        # It ended while it opened the store, which is a point like any other.
        server.died()
        return await server.gone()
    deadline = time.monotonic() + limit_s
    while server.running and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    if server.running:
        await server.kill()
        return 0
    server.died()
    return await server.gone()


def _refusals(run: Run) -> int:
    return sum(one.outcome == REFUSED and one.kind in ("send", "say") for one in run.history.told)
