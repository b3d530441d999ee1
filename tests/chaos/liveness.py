"""Rows 84 to 86: sessions that are cut, a commit that stalls, and a skill that ends its process."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from tests.chaos.client import BROKEN, Client, NotSent, now_ms
from tests.chaos.crowd import OVER
from tests.chaos.fleet import KEYS, Fleet, Server
from tests.chaos.history import Told
from tests.chaos.load import begin, cancel
from tests.chaos.replicas import GRACE_S, logs_of, unfinished
from tests.chaos.rows import POSTGRES, Result, Run, row, verdict
from trunkline.log import events as ev

WHO = "c0"
STALL_S = 30.0
# As many as the setting takeover_limit allows, and the first.
DEATHS = 4


@row(
    84, "sessions of a replica are cut (pg_terminate_backend), any but one of them, 200 times",
    "0 takeovers, 0 tasks lost", POSTGRES,
)  # fmt: skip
async def row_84(run: Run) -> Result:
    assert run.database is not None
    rounds = run.count(200)
    fleet = run.fleet(2)
    await fleet.start()
    await asyncio.sleep(GRACE_S)
    client = Client(WHO, KEYS[WHO], run.history)
    skills = [("pieces", "again", "steady")[place % 3] for place in range(20)]
    ids = [
        await begin(client, fleet.servers[place % 2], skill, "100000 100")
        for place, skill in enumerate(skills)
    ]
    admin = await asyncpg.connect(run.database.server.url())
    cut: set[int] = set()
    for number in range(rounds):
        cut |= await _cut_all_but_one(run, admin, cut)
        await asyncio.sleep(run.random.uniform(0.01, 0.4))
        run.say(f"{number + 1} of {rounds} rounds, {len(cut)} sessions cut")
    await admin.close()
    await asyncio.sleep(1)
    for task_id in ids:
        await cancel(client, fleet.servers[1], task_id)
    client.close()
    logs = await logs_of(fleet)
    claims = sum(isinstance(one.event, ev.Claimed) for task_id in ids for one in logs[task_id].records)
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{rounds} rounds, {len(cut)} sessions cut, {claims} takeovers of {len(ids)} tasks",
        not claims,
    )


async def _cut_all_but_one(run: Run, admin: asyncpg.Connection, cut: set[int]) -> set[int]:
    """End sessions of one replica; the one that stays was there before and is none that is just ending."""
    sessions = await admin.fetch(
        "SELECT pid, split_part(application_name, ' ', 2) AS role, split_part(application_name, ' ', 3) AS process "
        "FROM pg_stat_activity WHERE application_name LIKE 'trunkline %' ORDER BY pid"
    )
    process = run.random.choice(sorted({one["process"] for one in sessions}))
    mine = [one for one in sessions if one["process"] == process]
    # Neither of these is ever ended by the replica itself.
    staying = [one["pid"] for one in mine if one["role"] in ("writer", "reader") and one["pid"] not in cut]
    if not staying:
        return set()
    stays = run.random.choice(staying)
    ended = {
        one["pid"]
        for one in mine
        if one["pid"] != stays and (one["role"] == "liveness" or run.random.random() < 0.7)
    }
    await admin.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", list(ended))
    return ended


@row(
    85, "commits stall for 30 s (a synchronous standby is away), 50 messages come meanwhile",
    "every task that was recorded ends ≤ 30 s after", POSTGRES,
)  # fmt: skip
async def row_85(run: Run) -> Result:
    assert run.database is not None
    fleet = run.fleet(2)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    admin = await asyncpg.connect(run.database.server.url())
    await _wait_for_standby(admin, "nobody")
    stalled = time.monotonic()
    answers = await asyncio.gather(*(_send(client, fleet.servers[place % 2], place) for place in range(50)))
    run.say(f"{sum(answers)} of 50 answered while commits stall")
    await asyncio.sleep(max(0.0, stalled + STALL_S - time.monotonic()))
    await _wait_for_standby(admin, "")
    flowing, left = time.monotonic(), 1
    while left and time.monotonic() - flowing < 60:
        await asyncio.sleep(0.2)
        left = await unfinished(client, fleet)
    took = time.monotonic() - flowing
    await admin.close()
    client.close()
    logs = await logs_of(fleet)
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{len(logs)} tasks recorded, {left} not ended; the last one after {took:.1f} s",
        not left,
        took <= 30,
    )


async def _wait_for_standby(admin: asyncpg.Connection, name: str) -> None:
    """Have commits wait for a standby that is not there, or for none."""
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await admin.execute("SELECT pg_reload_conf()")


async def _send(client: Client, server: Server, place: int) -> bool:
    message = {
        "messageId": f"stall-{place}",
        "role": "ROLE_USER",
        "parts": [{"text": f"{place} canary-{WHO}"}],
    }
    told = Told("send", WHO, "", now_ms(), message_id=message["messageId"])
    try:
        result = await client.call(server, "SendMessage", {"message": message}, told, STALL_S - 5)
    except (*BROKEN, NotSent):
        return False
    if result is not None:
        told.task_id = result["task"]["id"]
    return result is not None


@row(
    86, "a skill kills its process (on_crash=resume), three replicas that are started again",
    f"the task fails with that reason after ≤ {DEATHS} deaths", POSTGRES,
)  # fmt: skip
async def row_86(run: Run) -> Result:
    fleet = run.fleet(3)
    await fleet.start()
    await asyncio.sleep(GRACE_S)
    client = Client(WHO, KEYS[WHO], run.history)
    deaths: list[str] = []
    watching = [asyncio.create_task(_replace(server, deaths)) for server in fleet.servers]
    task_id = await begin(client, fleet.servers[0], "deadly", "now")
    reason = ""
    began = time.monotonic()
    while not reason and time.monotonic() - began < 60:
        await asyncio.sleep(0.1)
        reason = await _reason(client, fleet, task_id)
        run.say(f"{len(deaths)} deaths")
    took = time.monotonic() - began
    # Whoever is still being replaced is up before the end.
    await asyncio.gather(*(server.up.wait() for server in fleet.servers))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{len(deaths)} deaths in {took:.1f} s, then: {reason or 'nothing'}",
        0 < len(deaths) <= DEATHS, "without getting any further" in reason,
    )  # fmt: skip


async def _replace(server: Server, deaths: list[str]) -> None:
    """Start a server again whenever it has ended."""
    while True:
        if server.running:
            await asyncio.sleep(0.02)
        else:
            deaths.append(server.name)
            server.died()
            await server.start()


async def _reason(client: Client, fleet: Fleet, task_id: str) -> str:
    """Why the task has ended, asked of any server that answers."""
    for server in fleet.servers:
        told = Told("get", WHO, "", now_ms(), task_id=task_id)
        try:
            task = await client.call(server, "GetTask", {"id": task_id}, told) if server.up.is_set() else None
        except (*BROKEN, NotSent):
            continue
        if task is not None and task["status"]["state"].removeprefix("TASK_STATE_").lower() in OVER:
            return task["status"]["message"]["parts"][0]["text"]
    return ""
