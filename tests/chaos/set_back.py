"""Row 87: logs go back while tasks run, as after a failover to a standby that was behind."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from tests.chaos.client import BROKEN, Client, NotSent, now_ms
from tests.chaos.crowd import OVER
from tests.chaos.fleet import KEYS, Fleet
from tests.chaos.history import History, Told
from tests.chaos.load import begin
from tests.chaos.rows import POSTGRES, Result, Run, row, spread, verdict
from tests.chaos.sockets import Reader, open_all

WHO = "c0"
# Each skill with what it is sent: those that speak all the time, and one that is silent for a while.
TASKS = [("steady", "150 20"), ("again", "150 20"), ("pieces", "150 20"), ("pieces", "6 900")] * 4
LOST_S = 1.0
LOOK_S = 5.0
# How many transactions a task that went back may cost beside what idle servers ask; it was 4 341 in 5 s.
MOST = 50


@row(
    87, "the newest appends of 16 tasks at work are deleted in the database, half of the tasks are cancelled then",
    f"every task and stream ends ≤ 30 s after; then ≤ {MOST} transactions a task more than idle servers have in 5 s",
    POSTGRES,
)  # fmt: skip
async def row_87(run: Run) -> Result:
    assert run.database is not None
    fleet = run.fleet(2)
    await fleet.start()
    settings = {"search_path": "trunkline", "trunkline.tenant": "*"}
    admin = await asyncpg.connect(run.database.url, server_settings=settings)
    idle = await _transactions(admin)
    ends: list[float] = []
    calls: list[float] = []
    rounds, lost, open_streams, spent = run.count(4), 0, 0, 0
    for number in range(rounds):
        # A history of its own: what was acknowledged and then deleted is what the row is about.
        client = Client(WHO, KEYS[WHO], History(run.seed))
        ids = [
            await begin(client, fleet.servers[place // 4 % 2], skill, text)
            for place, (skill, text) in enumerate(TASKS)
        ]
        requests = [client.raw("SubscribeToTask", {"id": task_id}) for task_id in ids]
        readers = [one for server in fleet.servers for one in await open_all(server.port, requests)]
        lost += await _set_back(admin, ids)
        gone = time.monotonic()
        calls += await asyncio.gather(*(_cancel(client, fleet, task_id) for task_id in ids[8:]))
        await asyncio.gather(*(_until_over(client, fleet, task_id, gone + 60) for task_id in ids[:8]))
        ends.append(time.monotonic() - gone)
        open_streams += await _left_open(readers, gone + 60)
        spent = max(spent, await _transactions(admin) - idle)
        client.close()
        run.say(f"{number + 1} of {rounds}: ended after {spread(ends, 's')}")
    await admin.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{rounds} rounds, {lost} appends lost; all ended after {spread(ends, 's')}, a cancel took {spread(calls, 's')}, "
        f"{open_streams} streams left open, {spent:+d} transactions in 5 s after (idle: {idle})",
        lost > 0, max(ends) <= 30, max(calls) <= 30, not open_streams, spent <= MOST * len(TASKS),
    )  # fmt: skip


async def _left_open(readers: list[Reader], deadline: float) -> int:
    """How many streams have neither ended nor broken by then."""
    while True:
        left = sum(not reader.clean and not reader.ended.done() for reader in readers)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


async def _set_back(admin: asyncpg.Connection, ids: list[str]) -> int:
    """Let them work for a moment, then put logs and heads back to what they were before it."""
    await admin.execute("DROP TABLE IF EXISTS heads, places")
    await admin.execute("CREATE TEMPORARY TABLE heads AS SELECT * FROM tasks WHERE task_id = ANY ($1)", ids)
    await admin.execute(
        "CREATE TEMPORARY TABLE places AS "
        "SELECT task_id, max(last) AS last FROM events WHERE task_id = ANY ($1) GROUP BY task_id",
        ids,
    )
    await asyncio.sleep(LOST_S)
    async with admin.transaction():
        # Nothing is written between the one and the other.
        await admin.execute("LOCK TABLE events, tasks")
        deleted = await admin.fetch(
            "DELETE FROM events AS e USING places AS p "
            "WHERE e.task_id = p.task_id AND e.first > p.last RETURNING e.first"
        )
        await admin.execute("DELETE FROM tasks WHERE task_id = ANY ($1)", ids)
        await admin.execute("INSERT INTO tasks SELECT * FROM heads")
    return len(deleted)


async def _state(client: Client, fleet: Fleet, task_id: str, verb: str = "GetTask") -> str:
    """What a server says of a task, nothing if it says an error."""
    server = fleet.servers[hash(task_id) % 2]
    told = Told("get" if verb == "GetTask" else "cancel", WHO, "", now_ms(), task_id=task_id)
    try:
        task = await client.call(server, verb, {"id": task_id}, told, 30)
    except (*BROKEN, NotSent):
        return ""
    return "" if task is None else task["status"]["state"].removeprefix("TASK_STATE_").lower()


async def _until_over(client: Client, fleet: Fleet, task_id: str, deadline: float) -> None:
    while time.monotonic() < deadline:
        if await _state(client, fleet, task_id) in OVER:
            return
        await asyncio.sleep(0.1)


async def _cancel(client: Client, fleet: Fleet, task_id: str) -> float:
    """Cancel it until it has ended, as a caller does who is refused; the seconds that this took."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        if await _state(client, fleet, task_id, "CancelTask") in OVER:
            break
        if await _state(client, fleet, task_id) in OVER:
            break
        await asyncio.sleep(0.5)
    return time.monotonic() - began


async def _transactions(admin: asyncpg.Connection) -> int:
    """How many the servers begin in some seconds."""
    # What a session has counted is shown a second later.
    await asyncio.sleep(2.0)
    text = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    before = await admin.fetchval(text)
    await asyncio.sleep(LOOK_S)
    return await admin.fetchval(text) - before
