"""Rows 5, 7 to 10, 12 and 21: several servers on one PostgreSQL, and what happens between them."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.chaos.client import Client, NotSent, now_ms, plain_state, seen
from tests.chaos.crowd import OVER, Crowd
from tests.chaos.fleet import KEYS, Fleet, Server
from tests.chaos.history import EVERYBODY, Death, Logged, Told, collect
from tests.chaos.proxy import Proxy
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, percentile, row, spread, verdict
from tests.chaos.watch import watching
from trunkline.auth.keys import Keyring
from trunkline.config import Secret
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.url import store_from_url
from trunkline.wire.types import Message, Part, Role, TaskState

WHO = "c0"
TTL_S = 3.0
GRACE_S = 3.5


@row(
    5, "the database crashes and comes back, every 1 to 4 s", "0 violations in 20 crashes; first write ≤ 2 s after", POSTGRES
)  # fmt: skip
async def row_05(run: Run) -> Result:
    assert run.database is not None
    crashes = run.count(20, option="kills")
    fleet = run.fleet(2)
    await fleet.start()
    crowd = Crowd(fleet.servers, run.history, run.seed, run.options.get("clients") or 30)
    crowd.start()
    await crowd.until_ack(50)
    gaps: list[float] = []
    for number in range(crashes):
        await asyncio.sleep(run.random.uniform(1, 4))
        run.history.deaths.append(Death(EVERYBODY, now_ms()))
        await asyncio.to_thread(run.database.server.crash)
        await asyncio.sleep(run.random.uniform(0, 1))
        await asyncio.to_thread(run.database.server.start)
        up, before = time.monotonic(), crowd.acks
        await crowd.until_ack(before)
        gaps.append(crowd.last_ack - up)
        run.say(f"{number + 1} of {crashes} crashes, {crowd.acks} acknowledged")
    await crowd.settle()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{crashes} crashes, {crowd.acks} acknowledged writes; first write after it was up {spread(gaps)}",
        percentile(gaps, 99) <= 2.0,
    )


@row(
    7, "the owner is frozen (SIGSTOP), another claims, the owner thaws; 50 tasks a round",
    "300 of 300 fenced, 0 late events", POSTGRES,
)  # fmt: skip
async def row_07(run: Run) -> Result:
    rounds = run.count(6)
    fleet = run.fleet(2)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    taken: list[float] = []
    tasks: list[str] = []
    for number in range(rounds):
        owner, other = fleet.servers[number % 2], fleet.servers[1 - number % 2]
        skills = [("pieces", "again", "steady")[place % 3] for place in range(50)]
        ids = await asyncio.gather(*(_open(client, owner, skill, "3000 20") for skill in skills))
        owner.freeze()
        frozen = time.monotonic()
        while left := await _owned(run, ids):
            if time.monotonic() - frozen > 20:
                break
            run.say(f"round {number + 1}: {left} of 50 still with the frozen one")
            await asyncio.sleep(0.1)
        taken.append(time.monotonic() - frozen)
        await asyncio.sleep(max(0.0, 5 - taken[-1]))
        owner.thaw()
        # Long enough for the thawed one to say what it had in its mouth.
        await asyncio.sleep(2)
        await asyncio.gather(*(_cancel(client, other, task_id) for task_id in ids))
        tasks += ids
    await _sleep_alone(run, client, fleet)
    client.close()
    logs = await logs_of(fleet)
    fenced = sum(any(isinstance(one.event, ev.Claimed) for one in logs[task_id].records) for task_id in tasks)
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{fenced} of {len(tasks)} fenced; all claimed after {spread(taken, 's')} frozen",
        fenced == len(tasks),
    )


async def _sleep_alone(run: Run, client: Client, fleet: Fleet) -> None:
    """With nobody to claim anything, whoever wakes must not take its own tasks from itself."""
    alone, other = fleet.servers
    await other.stop()
    ids = await asyncio.gather(
        *(_open(client, alone, skill, "9000 10") for skill in ("pieces", "again", "steady"))
    )
    alone.freeze()
    await asyncio.sleep(TTL_S + 2)
    alone.thaw()
    await asyncio.sleep(2)
    await asyncio.gather(*(_cancel(client, alone, task_id) for task_id in ids))


async def _owned(run: Run, ids: list[str]) -> int:
    """How many tasks nobody has claimed since they were opened."""
    store = store_from_url(run.url)
    await store.open()
    try:
        heads = [await store.heads.get("default", task_id) for task_id in ids]
        firsts = [(await store.log.read("default", task_id, 0, 1))[0].event for task_id in ids]
    finally:
        await store.close()
    return sum(
        head is not None and isinstance(first, ev.Submitted) and head.node == first.node
        for head, first in zip(heads, firsts, strict=True)
    )


@row(
    8, "the owner dies (kill -9), a stream is open at another replica", "the end is there p99 ≤ 500 ms after the kill", POSTGRES
)  # fmt: skip
async def row_08(run: Run) -> Result:
    kills = run.count(50, option="kills")
    fleet = run.fleet(2)
    await fleet.start()
    # A database that has just come up gives everybody three seconds to say that they live.
    await asyncio.sleep(GRACE_S)
    client = Client(WHO, KEYS[WHO], run.history)
    lags: list[float] = []
    for number in range(kills):
        owner, other = fleet.servers[number % 2], fleet.servers[1 - number % 2]
        task_id = await _open(client, owner, "pieces", "9000 10")
        async with watching(run, client, other, task_id) as watch:
            await watch.until(lambda frames: len(frames) > 3)
            await owner.kill()
            killed = time.monotonic()
            starting = asyncio.create_task(owner.start())
            await watch.until(lambda frames: frames[-1].state in OVER)
            lags.append(watch.last_at - killed)
            await starting
        run.say(f"{number + 1} of {kills} kills, {spread(lags)}")
    client.close()
    violations = await fleet.judge()
    return verdict(violations, f"{kills} kills, takeover {spread(lags)}", percentile(lags, 99) <= 0.5)


@row(
    9, "half-open TCP between a replica and the database", "taken over ≤ 5 s at a TTL of 3 s; the other's streams go on", POSTGRES
)  # fmt: skip
async def row_09(run: Run) -> Result:
    assert run.database is not None
    rounds = run.count(5)
    proxy = Proxy(run.database.server.port)
    await proxy.start()
    fleet = run.fleet(2)
    fleet.servers[0] = _through(run, proxy, 0)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    lags: list[float] = []
    silences: list[float] = []
    for _ in range(rounds):
        cut, other = fleet.servers
        lost = await _open(client, cut, "pieces", "9000 10")
        lively = await _open(client, other, "pieces", "9000 100")
        async with watching(run, client, other, lost) as watch, watching(run, client, other, lively) as own:
            await watch.until(lambda frames: len(frames) > 3)
            run.history.deaths.append(Death(cut.name, now_ms()))
            proxy.stand_still()
            stood = time.monotonic()
            await watch.until(lambda frames: frames[-1].state in OVER, 20)
            lags.append(watch.last_at - stood)
            silences.append(own.longest_silence)
            proxy.flow()
            await _cancel(client, other, lively)
            await own.until(lambda frames: frames[-1].state in OVER)
        await _until_served(client, cut)
        run.say(f"{len(lags)} of {rounds}: {spread(lags, 's')}")
    client.close()
    violations = await fleet.judge()
    await proxy.close()
    return verdict(
        violations,
        f"taken over after {spread(lags, 's')}; longest silence of another stream {max(silences):.1f} s",
        max(lags) <= 5.0, max(silences) <= 2.0,
    )  # fmt: skip


@row(10, "the doorbell is lost completely", "all delivered, lag ≤ 1.2 s", POSTGRES)
async def row_10(run: Run) -> Result:
    assert run.database is not None
    proxy = Proxy(run.database.server.port, deaf=True)
    await proxy.start()
    fleet = run.fleet(2)
    fleet.servers[1] = _through(run, proxy, 1)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    owner, deaf = fleet.servers
    arrivals: dict[str, list[tuple[int, int]]] = {}
    for _ in range(run.count(5)):
        ids = await asyncio.gather(*(_open(client, owner, "pieces", "60 50") for _ in range(8)))
        for task_id, came in zip(
            ids, await asyncio.gather(*(_arrivals(run, client, deaf, one) for one in ids)), strict=True
        ):
            arrivals[task_id] = came
    client.close()
    logs = await logs_of(fleet)
    lags = [
        (at - times[seq]) / 1000
        for task_id, came in arrivals.items()
        for times in ({one.seq: one.at for one in logs[task_id].records},)
        for seq, at in came
    ]
    violations = await fleet.judge()
    await proxy.close()
    return verdict(
        violations,
        f"{len(lags)} events over {len(arrivals)} streams, {proxy.dropped} bells lost, lag {spread(lags)}",
        max(lags) <= 1.2, proxy.dropped > 0,
    )  # fmt: skip


async def _arrivals(run: Run, client: Client, server: Server, task_id: str) -> list[tuple[int, int]]:
    came: list[tuple[int, int]] = []
    async with watching(run, client, server, task_id) as watch:
        await watch.until(lambda frames: frames[-1].state in OVER, 60)
        came = [(frame.seq or 0, at) for frame, at in zip(watch.reading.frames, watch.times, strict=True)]
    # The snapshot is as old as its task.
    return came[1:]


@row(
    12, "a start with 10 000 unfinished tasks", "all claimed once ≤ 30 s", SQLITE, POSTGRES
)  # fmt: skip
async def row_12(run: Run) -> Result:
    count = run.count(10_000)
    await _seed(run.url, count)
    fleet = run.fleet(1 if run.kind == SQLITE else 3)
    began = time.monotonic()
    await asyncio.gather(*(server.start() for server in fleet.servers))
    client = Client(WHO, KEYS[WHO], run.history)
    left = count
    while left and time.monotonic() - began < 90:
        await asyncio.sleep(0.2)
        left = await unfinished(client, fleet)
        run.say(f"{left} of {count} left after {time.monotonic() - began:.0f} s")
    took = time.monotonic() - began
    client.close()
    logs = await logs_of(fleet)
    claims = [sum(isinstance(one.event, ev.Claimed) for one in log.records) for log in logs.values()]
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{len(claims)} tasks claimed and ended in {took:.1f} s by {len(fleet.servers)} servers; "
        f"claims of a task: {min(claims)} to {max(claims)}",
        took <= 30, not left, set(claims) == {1},
    )  # fmt: skip


async def _seed(url: str, count: int) -> None:
    """Tasks whose process is gone, as a crash leaves them."""
    store = store_from_url(url)
    await store.open()
    at = now_ms()
    owner = Keyring([Secret(KEYS[WHO])]).find(KEYS[WHO].encode()).name
    try:
        for start in range(0, count, 500):
            await asyncio.gather(
                *(_put(store, owner, at, place) for place in range(start, min(count, start + 500)))
            )
    finally:
        await store.close()


async def _put(store: Any, owner: str, at: int, place: int) -> None:
    task_id = f"seeded-{place}"
    message = Message(
        f"seed-{place}", task_id, task_id, role=Role.USER, parts=(Part(text=f"1 0 canary-{WHO}"),)
    )
    skill = ("pieces", "again")[place % 2]
    events = (ev.Submitted(message, task_id, owner, "nobody", skill), ev.Status(TaskState.WORKING))
    await store.log.append("default", task_id, 0, events, at=at, head=head_after(State(task_id), events, at))


async def unfinished(client: Client, fleet: Fleet) -> int:
    """How many tasks have not ended."""
    total = 0
    for state in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
        told = Told("count", WHO, "", now_ms())
        page = None
        while page is None:
            page = await client.call(fleet.servers[0], "ListTasks", {"pageSize": 1, "status": state}, told)
        total += page["totalSize"]
    return total


# What these rows share


def _through(run: Run, proxy: Proxy, place: int) -> Server:
    """A server that reaches the database through a proxy."""
    parts = urlsplit(run.url)
    login = parts.netloc.rpartition("@")[0]
    url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}"))
    return Server(run.directory, place, url, run.history)


async def _open(client: Client, server: Server, skill: str, text: str) -> str:
    """A task in work at this server."""
    message = {
        "messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": f"{text} canary-{WHO}"}],
        "metadata": {"skillHint": skill},
    }  # fmt: skip
    told = Told("send", WHO, "", now_ms(), message_id=message["messageId"])
    params = {"message": message, "configuration": {"returnImmediately": True}}
    result = await client.call(server, "SendMessage", params, told)
    assert result is not None, told
    told.task_id, told.seen = result["task"]["id"], [seen(result["task"])]
    return told.task_id


async def _cancel(client: Client, server: Server, task_id: str) -> None:
    """End it, unless it has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        told = Told("cancel", WHO, "", now_ms(), task_id=task_id)
        try:
            task = await client.call(server, "CancelTask", {"id": task_id}, told)
        except NotSent:
            task = None
        if task is not None or told.error.startswith("-32002"):
            return
        await asyncio.sleep(0.1)


async def _until_served(client: Client, server: Server) -> None:
    """Until this server takes and does work."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": f"canary-{WHO}"}]}
        told = Told("send", WHO, "", now_ms(), message_id=message["messageId"])
        result = await client.call(server, "SendMessage", {"message": message}, told, 5.0)
        if result is not None:
            told.task_id, told.seen = result["task"]["id"], [seen(result["task"])]
            if plain_state(result["task"]) == "completed":
                return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{server.name} does not work again")


async def logs_of(fleet: Fleet) -> dict[str, Logged]:
    """Everything that is stored, after the servers have stopped."""
    await fleet.stop()
    store = store_from_url(fleet.url)
    await store.open()
    try:
        return {log.task_id: log for log in await collect(store)}
    finally:
        await store.close()
