"""Scenarios of one server: each drives it once and gives one sample."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import resource
import shutil
import signal
import statistics
from collections.abc import Iterator
from time import perf_counter

from bench import contract
from bench.generator import (
    COMPLETED,
    ECHO,
    Load,
    Stream,
    StreamLoop,
    Tally,
    Window,
    call_loop,
    connect,
    crowd,
    start_callers,
    stream_loop,
)
from bench.scenario import Sample, Scale
from bench.servers import WORK, Server

TASK_ID = re.compile(rb'"task":\s*\{\s*"id":\s*"([^"]+)"')
NOT_WAITING = b'"result"'
WATCH_S = 10.0
BATCHES = 10


async def send(server: Server, scale: Scale) -> Sample:
    """64 callers, each sends and waits for the finished task."""
    load = _echo_load(server)
    return _rate(await call_loop_of(server, load, scale, 64))


async def send_cpu(server: Server, scale: Scale) -> Sample:
    """The same, but what counts is the server's own work for each."""
    sample = await send(server, scale)
    return Sample(sample.cpu_us, sample.bad, sample.cpu_us, {"requests_s": sample.value, **sample.extra})


async def get(server: Server, scale: Scale) -> Sample:
    """16 callers read finished tasks from a small pool."""
    requests = _rounds([server.endpoint.get(task_id) for task_id in await _finished_ids(server, scale.pool)])
    return _rate(await call_loop_of(server, Load(lambda: next(requests)), scale, 16))


async def stream(server: Server, scale: Scale, told: int = 50) -> Sample:
    """16 streams of 50 chunks at once, in which a chunk is `told` so often."""
    loop = StreamLoop(told, server.endpoint.send("chunks 50", stream=True), 50)
    window = await stream_loop(
        server.endpoint, loop, connections=16, warm=scale.warm, seconds=scale.seconds, cpu=server.cpu
    )
    sample = _rate(window)
    sample.extra["first_event_ms"] = statistics.median(loop.firsts) * 1e3
    sample.extra["whole_ms"] = statistics.median(loop.wholes) * 1e3
    return sample


async def stream_cpu(server: Server, scale: Scale, told: int = 50) -> Sample:
    """The same, but what counts is the server's own work for each chunk."""
    sample = await stream(server, scale, told)
    each = sample.cpu_us * told / 50
    return Sample(each, sample.bad, each, {"chunks_s": sample.value * 50 / told, **sample.extra})


async def fan_out(server: Server, scale: Scale) -> Sample:
    """One task, many subscribers, 50 chunks to each; the time runs from the release to the last end."""
    chunks = 50
    tally = Tally(chunks)
    source = await connect(server.endpoint, tally)
    source.start(server.endpoint.send(f"hold {chunks}", stream=True)())
    await asyncio.wait_for(source.first, 30)
    subscribe = server.endpoint.subscribe(_task_id(source.opening))
    readers = await crowd(server.endpoint, tally, subscribe, scale.fan_out)
    started, used = perf_counter(), server.cpu()
    await contract.send(server.endpoint, "release")
    await _all_over([source, *readers], 120)
    seconds = perf_counter() - started
    delivered = sum(reader.chunks for reader in readers)
    lost = abs(chunks * len(readers) - delivered) + tally.bad
    for each in (source, *readers):
        each.close()
    return Sample(delivered / seconds, lost, (server.cpu() - used) / max(1, delivered) * 1e6)


async def idle(server: Server, scale: Scale) -> Sample:
    """Many open streams that wait; memory of each, and how fast all end after one release."""
    count = idle_streams(scale)
    tally = Tally(1)
    before = await _settled(server)
    streams = await crowd(server.endpoint, tally, server.endpoint.send("hold 1", stream=True), count)
    each = (await _settled(server) - before) / count
    started = perf_counter()
    await contract.send(server.endpoint, "release")
    await _all_over(streams, 300)
    seconds = perf_counter() - started
    for one in streams:
        one.close()
    return Sample(each, tally.bad, extra={"finish_s": seconds, "streams": count})


async def finished(server: Server, scale: Scale) -> Sample:
    """Memory that a finished task leaves behind."""
    # The first thousands fill pools and caches that do not grow any more.
    warm = min(5_000, scale.finished // 4)
    await send_many(server, warm)
    before = await _settled(server)
    lost = await send_many(server, scale.finished)
    return Sample((await _settled(server) - before) / scale.finished, lost)


async def parked(server: Server, scale: Scale) -> Sample:
    """Memory of tasks that wait without a coroutine, and the CPU seconds they cost in ten seconds."""
    await send_many(server, 2_000)
    before, idle_s = await _settled(server), await _cpu_while(server, WATCH_S)
    lost = 0
    for _ in range(BATCHES):
        # Not all at once: what is measured is those that are parked, not as many that still have a coroutine.
        for text in ("ask", "sleep"):
            lost += await send_many(server, scale.idle // BATCHES // 2, text, wait=False)
        await asyncio.sleep(2.0)
    # Each is parked when it has waited for five seconds; then nothing moves any more.
    while await _cpu_while(server, 2.0) > 0.1 + idle_s:
        pass
    cpu_s = await _cpu_while(server, WATCH_S) - idle_s
    return Sample((await _settled(server) - before) / 1024, lost, extra={"cpu_s": max(0.0, cpu_s)})


async def _cpu_while(server: Server, seconds: float) -> float:
    before = server.cpu()
    await asyncio.sleep(seconds)
    return server.cpu() - before


async def startup(server: Server, scale: Scale) -> Sample:
    """From the start of the process to the first card; the server's start has measured it."""
    return Sample(server.ready_seconds, extra={"mib": server.memory() / 1024})


async def durable(server: Server, scale: Scale) -> Sample:
    """Kill it under load, start it again, ask for every task it had acknowledged."""
    acknowledged: list[bytes] = []
    load = _echo_load(server)
    load.keep = acknowledged.append
    await start_callers(server.endpoint, load, 64)
    await asyncio.sleep(scale.seconds)
    load.over = True  # what the kill cuts off is not an error
    server.stop(signal.SIGKILL)
    await asyncio.wait_for(load.ended.wait(), 30)
    await asyncio.to_thread(server.start)
    requests = [server.endpoint.get(_task_id(answer)) for answer in acknowledged]
    queue = iter(requests)
    check = Load(lambda: next(queue, None))
    await start_callers(server.endpoint, check, 16)
    await asyncio.wait_for(check.ended.wait(), 300)
    unread = len(requests) - len(check.latencies)
    return Sample(check.bad + unread, load.bad, extra={"acknowledged": len(requests)})


async def restart(server: Server, scale: Scale) -> Sample:
    """Killed under load with many tasks in its file: from the next start to the first answered send."""
    await _fill(server, scale.stored)
    load = _echo_load(server)
    await start_callers(server.endpoint, load, 64)
    await asyncio.sleep(scale.warm)
    load.over = True
    server.stop(signal.SIGKILL)
    await asyncio.wait_for(load.ended.wait(), 30)
    started = perf_counter()
    await asyncio.to_thread(server.start)
    await contract.send(server.endpoint, ECHO)
    seconds = perf_counter() - started
    return Sample(seconds, load.bad, extra={"serving_s": server.ready_seconds, "tasks": scale.stored})


async def _fill(server: Server, count: int) -> None:
    """So many finished tasks; made once in a run, by the first server, and copied for the others."""
    kept, mine = WORK / f"tasks-{os.getpid()}", server.scratch
    # The key that its secrets are sealed with lies beside the file.
    names = ("tasks.db", "tasks.db.key")
    if not kept.exists():
        await send_many(server, count)
        await asyncio.to_thread(server.stop, signal.SIGTERM)
        kept.mkdir()
        atexit.register(shutil.rmtree, kept)
        pairs = [(mine / name, kept / name) for name in names]
    else:
        await asyncio.to_thread(server.stop, signal.SIGTERM)
        pairs = [(kept / name, mine / name) for name in names]
    for there, here in pairs:
        shutil.copy(there, here)
    await asyncio.to_thread(server.start)


def idle_streams(scale: Scale) -> int:
    """As many as asked, or as the limit on open files lets us."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(scale.idle, soft - 500)


async def call_loop_of(server: Server, load: Load, scale: Scale, connections: int) -> Window:
    """A closed loop against a server, for as long as the scale says."""
    return await call_loop(
        server.endpoint,
        load,
        connections=connections,
        warm=scale.warm,
        seconds=scale.seconds,
        cpu=server.cpu,
    )


def _echo_load(server: Server) -> Load:
    load = Load(server.endpoint.send(ECHO))
    if not server.contender.waits:
        load.mark = NOT_WAITING
    return load


async def send_many(server: Server, count: int, text: str = ECHO, *, wait: bool = True) -> int:
    """Send so many messages by 64 callers; how many were not answered as they should be."""
    make = server.endpoint.send(text, wait=wait)
    numbers = iter(range(count))
    mark = COMPLETED if wait else NOT_WAITING
    load = Load(lambda: make() if next(numbers, None) is not None else None, mark)
    await start_callers(server.endpoint, load, 64)
    await asyncio.wait_for(load.ended.wait(), 1_800)
    return load.bad + load.lost


async def _finished_ids(server: Server, count: int) -> list[str]:
    if not server.contender.keeps:
        return ["01900000-0000-7000-8000-000000000001"]
    ids: list[str] = []
    for _ in range(count):
        task = await contract.send(server.endpoint, ECHO)
        ids.append((await contract.finished(server.endpoint, task, waits=server.contender.waits))["id"])
    return ids


async def _all_over(streams: list[Stream], limit: float) -> None:
    async with asyncio.timeout(limit):
        for each in streams:
            await each.over


async def _settled(server: Server) -> float:
    """Memory after a moment in which the server could let go of what it no longer needs."""
    await asyncio.sleep(1.0)
    return server.memory()


def _rounds(items: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from items


def _rate(window: Window) -> Sample:
    count = max(1, window.count)
    extra = {"generator_cpu": window.own_cpu}
    if window.latencies:
        ordered = sorted(window.latencies)
        extra["p50_ms"] = ordered[len(ordered) // 2] * 1e3
        extra["p99_ms"] = ordered[int(len(ordered) * 0.99)] * 1e3
    return Sample(window.count / window.seconds, window.bad, window.server_cpu / count * 1e6, extra)


def _task_id(answer: bytes) -> str:
    found = TASK_ID.search(answer)
    if found is None:
        raise contract.Broken(f"no task id in {answer[:300]!r}")
    return found[1].decode()
