"""Rows 25, 26 and 29 to 31: many readers, slow readers, readers that vanish, and a task that is too long."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import struct
import time
from collections.abc import Callable

from tests.chaos.client import Client, Line, now_ms, plain_state
from tests.chaos.crowd import OVER
from tests.chaos.fleet import KEYS, Server
from tests.chaos.history import Told
from tests.chaos.rows import SQLITE, Result, Run, percentile, row, verdict
from tests.chaos.sockets import Reader, crawl, open_all

WHO = "c0"


@row(
    25, "clients vanish at any byte of an answer, 5 000 times", "sockets back to the start, RSS within 5 MB", SQLITE
)  # fmt: skip
async def row_25(run: Run) -> Result:
    cuts = run.count(5_000)
    fleet = run.fleet(1, "--set", "coalesce_milliseconds=0")
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    done = await begin(client, server, "pieces", "60 0")
    await _until_over(client, server, done)
    running = await begin(client, server, "pieces", "100000 10")
    requests = [
        client.raw("SubscribeToTask", {"id": done}, "Last-Event-ID: 0"),
        client.raw("SubscribeToTask", {"id": running}),
        client.raw("GetTask", {"id": done}),
        client.raw("ListTasks", {"pageSize": 50, "includeArtifacts": True}),
    ]
    await _cut_all(server, requests, cuts // 10, run)
    await _settled(server.descriptors)
    before, memory = await _settled(server.descriptors), server.memory_kb()
    await _cut_all(server, requests, cuts, run)
    after = await _settled(server.descriptors, before)
    grown = (server.memory_kb() - memory) / 1024
    await cancel(client, server, running)
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{cuts} cuts, descriptors {before} → {after}, RSS {grown:+.1f} MB",
        after <= before, grown <= 5.0,
    )  # fmt: skip


async def _cut_all(server: Server, requests: list[bytes], count: int, run: Run) -> None:
    todo = iter(range(count))
    chance = random.Random(f"{run.seed}-{count}")

    async def cut() -> None:
        for place in todo:
            await _cut(server, chance.choice(requests), chance.randrange(2000))
            run.say(f"{place + 1} of {count} cuts")

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(cut())


async def _cut(server: Server, request: bytes, size: int) -> None:
    """Read so many bytes, then reset the connection."""
    loop = asyncio.get_running_loop()
    line = socket.socket()
    line.setblocking(False)
    try:
        await loop.sock_connect(line, ("127.0.0.1", server.port))
        await loop.sock_sendall(line, request)
        left = size
        async with asyncio.timeout(0.2):
            while left > 0 and (piece := await loop.sock_recv(line, left)):
                left -= len(piece)
    except (TimeoutError, OSError):
        pass
    finally:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()


@row(
    26, "200 readers of a byte a second beside 200 fast ones",
    "fast p99 ≤ 2 × baseline, ≤ 64 KB a stream, the slow ones are cut", SQLITE,
)  # fmt: skip
async def row_26(run: Run) -> Result:
    count = run.count(200, 20)
    fleet = run.fleet(1, "--set", "write_limit=5", "--set", "coalesce_milliseconds=0")
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    long = await begin(client, server, "bulk", "8000 1000")
    await _until_over(client, server, long)
    lags: list[float] = []
    growth = burst = 0.0
    for slow in (0, count):
        task_id = await begin(client, server, "ticks", "500 25 200")
        memory = server.memory_kb()
        readers = await open_all(server.port, [client.raw("SubscribeToTask", {"id": task_id})] * count)
        behind = client.raw("SubscribeToTask", {"id": long}, "Last-Event-ID: 0")
        crawlers = [await crawl(server.port, behind) for _ in range(slow)]
        # At first each gets what its socket takes; from then on it is slow.
        await asyncio.sleep(4)
        first = [lag for reader in readers for lag in reader.lags]
        for reader in readers:
            reader.lags.clear()
        for _ in range(16):
            await asyncio.sleep(0.25)
            growth = max(growth, (server.memory_kb() - memory) / (count + slow))
        lags.append(percentile([lag for reader in readers for lag in reader.lags], 99))
        await _until_over(client, server, task_id)
        await asyncio.gather(*(crawler.close() for crawler in crawlers))
        for reader in readers:
            reader.close()
        burst = percentile(first, 99)
        run.say(f"{slow} slow: p99 {lags[-1] * 1000:.0f} ms")
    cut = server.text().count("stream.cut")
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"fast p99 {lags[0] * 1000:.0f} ms alone, {lags[1] * 1000:.0f} ms beside {count} slow "
        f"({burst * 1000:.0f} ms while their sockets filled); "
        f"{growth:.0f} KB a stream; {cut} slow ones cut",
        lags[1] <= max(2 * lags[0], 0.05), growth <= 64, cut >= count * 0.9,
    )  # fmt: skip


@row(
    29, "10 000 idle and 100 active streams in one process",
    "≤ 350 MB, an event to all ≤ 500 ms, none dropped in a minute", SQLITE,
)  # fmt: skip
async def row_29(run: Run) -> Result:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(run.count(10_000), hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    fleet = run.fleet(1, "--set", "keep_alive=10")
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    asked = await begin(client, server, "ask", "now")
    await _until(client, server, asked, {"input-required"})
    busy = await begin(client, server, "ticks", "100000 100 50")
    idle = await open_all(server.port, [client.raw("SubscribeToTask", {"id": asked})] * count)
    active = await open_all(server.port, [client.raw("SubscribeToTask", {"id": busy})] * 100)
    run.say(f"{sum(reader.opened for reader in idle)} idle streams open, {server.memory_kb() // 1024} MB")
    for _ in range(run.count(60, 12)):
        await asyncio.sleep(1)
        run.say(f"{sum(reader.ended.done() for reader in idle)} dropped, {server.memory_kb() // 1024} MB")
    memory = server.memory_kb() / 1024
    dropped = sum(reader.ended.done() for reader in (*idle, *active))
    silent = sum(not reader.comments for reader in idle)
    place = max(reader.last_id for reader in idle)
    told = time.monotonic()
    await _say(client, server, asked, "this one")
    await _all(lambda: all(reader.last_id > place for reader in idle), 20)
    spread_s = max(reader.last_at for reader in idle) - told
    await cancel(client, server, busy)
    for reader in (*idle, *active):
        reader.close()
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{count} idle and {len(active)} active streams, {memory:.0f} MB, {dropped} dropped, "
        f"{silent} without a sign of life, an event to all in {spread_s * 1000:.0f} ms",
        memory <= 350, not dropped, not silent, spread_s <= 0.5,
    )  # fmt: skip


@row(30, "5 000 streams come back at once after a restart", "all resumed ≤ 15 s; spread by retry", SQLITE)
async def row_30(run: Run) -> Result:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(run.count(5_000), hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    fleet = run.fleet()
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    asked = [await begin(client, server, "ask", "now") for _ in range(50)]
    for task_id in asked:
        await _until(client, server, task_id, {"input-required"})
    requests = [client.raw("SubscribeToTask", {"id": asked[place % 50]}) for place in range(count)]
    readers = await open_all(server.port, requests)
    retries = sorted(reader.retry for reader in readers)
    await server.kill()
    died = time.monotonic()
    await server.start()
    back = await asyncio.gather(
        *(_come_back(client, server, asked[n % 50], one) for n, one in enumerate(readers))
    )
    resumed = time.monotonic() - died
    for task_id in asked:
        await _say(client, server, task_id, "this one")
    await _all(lambda: all(new.last_id > old.last_id for new, old in zip(back, readers, strict=True)), 20)
    behind = sum(new.last_id <= old.last_id for new, old in zip(back, readers, strict=True))
    for reader in back:
        reader.close()
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{count} streams resumed in {resumed:.1f} s after the kill, retry {retries[0]} to {retries[-1]} ms, "
        f"{behind} without what followed",
        resumed <= 15, not behind, retries[-1] - retries[0] > 500,
    )  # fmt: skip


async def _come_back(client: Client, server: Server, task_id: str, old: Reader) -> Reader:
    """As browsers do: wait for as long as the stream said, then go on after the last id."""
    await asyncio.sleep(old.retry / 1000)
    request = client.raw("SubscribeToTask", {"id": task_id}, f"Last-Event-ID: {old.last_id}")
    (reader,) = await open_all(server.port, [request])
    assert reader.opened, "a stream was refused"
    return reader


@row(
    31, "a task of 20 000 events, and one of 64 MB", "a clear end at the cap; replay ≤ 3 s, RSS + ≤ 32 MB beside the task itself", SQLITE
)  # fmt: skip
async def row_31(run: Run) -> Result:
    fleet = run.fleet()
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    ends: list[str] = []
    ids: list[str] = []
    for text in ("21000 200", "1200 80000"):
        ids.append(await begin(client, server, "bulk", text))
        ends.append(await _until_over(client, server, ids[-1], 120))
    # A fresh process: nothing of the task is in memory.
    await server.stop()
    await server.start()
    took: list[float] = []
    grown: list[float] = []
    counts: list[int] = []
    for task_id in ids:
        memory, began = server.memory_kb(), time.monotonic()
        request = client.raw("SubscribeToTask", {"id": task_id}, "Last-Event-ID: 0")
        size, count, peak = await _replay(server, request)
        took.append(time.monotonic() - began)
        grown.append((peak - memory) / 1024)
        counts.append(count)
        run.say(f"{count} events, {size >> 20} MB in {took[-1]:.1f} s")
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"ended {' and '.join(ends)}; replay of {counts[0]} events {took[0]:.1f} s RSS {grown[0]:+.0f} MB, "
        f"of 64 MB {took[1]:.1f} s RSS {grown[1]:+.0f} MB",
        # A task is folded in memory while somebody reads it.
        ends == ["failed", "failed"], counts[0] >= 19_900, max(took) <= 3.0, grown[0] <= 32, grown[1] <= 32 + 64,
    )  # fmt: skip


async def _replay(server: Server, request: bytes) -> tuple[int, int, int]:
    """Bytes, events and the server's largest memory meanwhile."""
    line = Line(server)
    await line.open()
    _, headers = await line.begin(request)
    size = count = peak = pieces = 0
    async for piece in line.pieces(headers):
        size += len(piece)
        count += piece.count(b"\nid:") + piece.startswith(b"id:")
        pieces += 1
        if pieces % 20 == 0:
            peak = max(peak, server.memory_kb())
    line.close()
    return size, count, max(peak, server.memory_kb())


# What these rows share


async def begin(client: Client, server: Server, skill: str, text: str) -> str:
    message = {
        "messageId": f"load-{skill}-{now_ms()}-{random.random()}", "role": "ROLE_USER",
        "parts": [{"text": f"{text} canary-{WHO}"}], "metadata": {"skillHint": skill},
    }  # fmt: skip
    told = Told("send", WHO, "", now_ms(), message_id=message["messageId"])
    params = {"message": message, "configuration": {"returnImmediately": True}}
    result = await client.call(server, "SendMessage", params, told)
    assert result is not None, told
    told.task_id = result["task"]["id"]
    return told.task_id


async def _say(client: Client, server: Server, task_id: str, text: str) -> None:
    message = {
        "messageId": f"say-{task_id}",
        "role": "ROLE_USER",
        "taskId": task_id,
        "parts": [{"text": text}],
    }
    told = Told("say", WHO, "", now_ms(), message_id=message["messageId"], task_id=task_id)
    params = {"message": message, "configuration": {"returnImmediately": True}}
    assert await client.call(server, "SendMessage", params, told) is not None, told


async def cancel(client: Client, server: Server, task_id: str) -> None:
    told = Told("cancel", WHO, "", now_ms(), task_id=task_id)
    assert await client.call(server, "CancelTask", {"id": task_id}, told) is not None, told


async def _until_over(client: Client, server: Server, task_id: str, limit_s: float = 60) -> str:
    return await _until(client, server, task_id, OVER, limit_s)


async def _until(client: Client, server: Server, task_id: str, states: set[str], limit_s: float = 30) -> str:
    deadline = time.monotonic() + limit_s
    while True:
        told = Told("count", WHO, "", now_ms(), task_id=task_id)
        page = await client.call(server, "ListTasks", {"pageSize": 100}, told)
        assert page is not None, told
        found = next((plain_state(task) for task in page["tasks"] if task["id"] == task_id), "")
        if found in states:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"task {task_id} is {found or 'not listed'}")
        await asyncio.sleep(0.05)


async def _all(reached: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not reached() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _settled(look: Callable[[], int], least: int = 0) -> int:
    """A number once it no longer falls."""
    deadline = time.monotonic() + 15
    last = look()
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        if (now := look()) >= last or now <= least:
            return now
        last = now
    return last
