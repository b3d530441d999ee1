"""Rows 32, 33 and 21: a server that is asked to go, a database that takes no more, and clocks that jump."""

from __future__ import annotations

import asyncio
import time
from glob import glob
from typing import Any

import asyncpg

from tests.chaos.client import BROKEN, Client, Line, NotSent, now_ms
from tests.chaos.crowd import OVER, Crowd
from tests.chaos.fleet import KEYS, Fleet, Server
from tests.chaos.history import OK, REFUSED, Told
from tests.chaos.load import begin, cancel
from tests.chaos.replicas import logs_of
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, percentile, row, spread, verdict
from tests.chaos.sockets import open_all
from tests.chaos.watch import watching
from trunkline.log import events as ev

WHO = "c0"


@row(
    32, "SIGTERM under load: 500 streams, 100 tasks at work", "exit ≤ 30 s, streams end cleanly, 0 lost, taken over ≤ 500 ms",
    SQLITE, POSTGRES,
)  # fmt: skip
async def row_32(run: Run) -> Result:
    fleet = run.fleet(1 if run.kind == SQLITE else 2)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    crowd = Crowd(fleet.servers, run.history, run.seed, 20)
    crowd.start()
    exits: list[float] = []
    unready: list[float] = []
    codes: set[int] = set()
    streams = clean = 0
    ids: list[str] = []
    for number in range(run.count(4)):
        server = fleet.servers[number % len(fleet.servers)]
        skills = [("steady", "again")[place % 2] for place in range(100)]
        mine = await asyncio.gather(*(begin(client, server, skill, "600 20") for skill in skills))
        ids += mine
        requests = [client.raw("SubscribeToTask", {"id": mine[place % 100]}) for place in range(500)]
        readers = await open_all(server.port, requests)
        stopping = asyncio.create_task(server.stop())
        unready.append(await _until_unready(server))
        code, took = await stopping
        codes.add(code)
        exits.append(took)
        await asyncio.wait([reader.ended for reader in readers], timeout=10)
        streams += len(readers)
        clean += sum(reader.clean and reader.last_id > 0 for reader in readers)
        await server.start()
        run.say(f"{number + 1}: out after {took:.1f} s, {clean} of {streams} streams ended cleanly")
    await crowd.settle()
    await asyncio.gather(*(_until_ended(client, fleet, task_id) for task_id in ids))
    client.close()
    logs = await logs_of(fleet)
    lags = _takeovers([logs[task_id] for task_id in ids]) if run.kind == POSTGRES else []
    violations = await fleet.judge()
    return verdict(
        violations,
        f"exit {spread(exits, 's')} with {sorted(codes)}, not ready after {max(unready) * 1000:.0f} ms, "
        f"{clean} of {streams} streams ended cleanly" + (f", taken over {spread(lags)}" if lags else ""),
        max(exits) <= 30, codes == {0}, clean == streams, not lags or percentile(lags, 99) <= 0.5,
    )  # fmt: skip


async def _until_unready(server: Server) -> float:
    """Seconds until it no longer says that it is ready."""
    began = time.monotonic()
    request = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    while time.monotonic() - began < 10:
        try:
            status, _, _ = await Line(server).ask(request, 5)
        except (*BROKEN, NotSent):
            break
        if status != 200:
            break
        await asyncio.sleep(0.002)
    return time.monotonic() - began


async def _until_ended(client: Client, fleet: Fleet, task_id: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told = Told("get", WHO, "", now_ms(), task_id=task_id)
        task = await client.call(fleet.servers[0], "GetTask", {"id": task_id}, told)
        if task is not None and task["status"]["state"].removeprefix("TASK_STATE_").lower() in OVER:
            return
        await asyncio.sleep(0.2)


def _takeovers(logs: list[Any]) -> list[float]:
    """How long each task was nobody's: from the last word before a claim that another node made."""
    lags: list[float] = []
    for log in logs:
        for before, record in zip(log.records, log.records[1:], strict=False):
            if isinstance(record.event, ev.Claimed) and record.event.node:
                lags.append((record.at - before.at) / 1000)
    return lags


@row(
    33, "the database takes no more connections (too_many_connections), 500 requests",
    "refused p99 ≤ 1 s, nothing hangs, recovers", POSTGRES,
)  # fmt: skip
async def row_33(run: Run) -> Result:
    assert run.database is not None
    fleet = run.fleet(1)
    await fleet.start()
    (server,) = fleet.servers
    client = Client(WHO, KEYS[WHO], run.history)
    admin = await asyncpg.connect(run.database.server.url())
    hogs = await _hog(run.database.url)
    await _cut_off(admin)
    hogs += await _hog(run.database.url)
    times: list[float] = []
    answered = refused = 0

    async def ask(place: int) -> None:
        nonlocal answered, refused
        message = {"messageId": f"pool-{place}", "role": "ROLE_USER", "parts": [{"text": f"canary-{WHO}"}]}
        told = Told("send", WHO, "", now_ms(), message_id=message["messageId"])
        began = time.monotonic()
        result = await client.call(server, "SendMessage", {"message": message}, told, 20)
        times.append(time.monotonic() - began)
        if result is not None:
            told.task_id = result["task"]["id"]
        answered += told.outcome == OK
        refused += told.outcome == REFUSED

    for start in range(0, 500, 50):
        await asyncio.gather(*(ask(place) for place in range(start, start + 50)))
        run.say(f"{answered} answered, {refused} refused")
    hung = 500 - answered - refused
    for hog in hogs:
        hog.terminate()
    freed = time.monotonic()
    while True:
        before = answered
        await ask(1000 + len(times))
        if answered > before or time.monotonic() - freed > 20:
            break
        await asyncio.sleep(0.05)
    recovered = time.monotonic() - freed
    await admin.close()
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{refused} refused and {answered} answered, {spread(times)}, {hung} hung, works again after {recovered:.1f} s",
        refused > 0, not hung, percentile(times, 99) <= 1.0, recovered <= 5,
    )  # fmt: skip


async def _hog(url: str) -> list[asyncpg.Connection]:
    """Every connection that is left."""
    hogs: list[asyncpg.Connection] = []
    try:
        while True:
            hogs.append(await asyncpg.connect(url, timeout=5))
    except (asyncpg.TooManyConnectionsError, asyncpg.PostgresError, OSError):
        return hogs


async def _cut_off(admin: asyncpg.Connection) -> None:
    """End the server's own sessions, which then find every seat taken."""
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'trunkline%' AND pid <> pg_backend_pid()"
    )


@row(
    21, "a replica's wall clock jumps by an hour and a day, both ways (libfaketime)", "0 false takeovers", POSTGRES
)  # fmt: skip
async def row_21(run: Run) -> Result:
    library = next(iter(glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), "")
    if not library:
        return Result(None, "libfaketime is not installed (apt-get install faketime)")
    offset = run.directory / "clock"
    offset.write_text("+0\n")
    fleet = run.fleet(2)
    fleet.servers[0].faked(library, offset)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    ids = [await begin(client, server, "pieces", "100000 50") for server in fleet.servers for _ in range(10)]
    jumps = ["+3600", "-3600", "+86400", "-86400", "+0"]
    async with watching(run, client, fleet.servers[1], ids[0]) as watch:
        for jump in jumps:
            offset.write_text(f"{jump}\n")
            seen_before = len(watch.reading.frames)
            await asyncio.sleep(max(1.0, 4 * run.scale))
            run.say(f"{jump} s: {len(watch.reading.frames) - seen_before} frames meanwhile")
    for task_id in ids:
        await cancel(client, fleet.servers[1], task_id)
    client.close()
    logs = await logs_of(fleet)
    claims = sum(isinstance(one.event, ev.Claimed) for task_id in ids for one in logs[task_id].records)
    violations = await fleet.judge()
    return verdict(violations, f"{len(jumps)} jumps, {claims} takeovers of {len(ids)} tasks", not claims)
