"""Scenarios of several servers on one PostgreSQL: what they see of each other, and what a death costs."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic_ns, perf_counter

from bench import contract, database
from bench.frames import DATA, Reader, subscribe
from bench.generator import Load, run, start_callers
from bench.scenario import Sample, Scale
from bench.servers import Contender, Server
from trunkline.log.events import Claimed
from trunkline.store.base import Store
from trunkline.store.records import START
from trunkline.store.url import store_from_url

RATE = 5_000  # events/s
TICKING = 100  # tasks that share it
STAYING = 10  # tasks of each process that is killed
TICK = re.compile(rb"tick-(\d+)-(\d+)\.")
HERE = re.compile(rb"here-(\d+)\.")
ENDED = b"TASK_STATE_COMPLETED"


def fan_out(contender: Contender, scale: Scale) -> Sample:
    """One process emits, the other has all subscribers: milliseconds from emit to received, p99."""
    with _replicas(contender, 2) as (owner, other):
        return run(_fan_out(owner, other, scale))


async def _fan_out(owner: Server, other: Server, scale: Scale) -> Sample:
    count = round(RATE * scale.seconds / TICKING)
    ids = await _begin(owner, f"ticks {count} {TICKING / RATE * 1000:g}", TICKING)
    readers = await subscribe(other.endpoint, ids)
    started, used = perf_counter(), (owner.cpu(), other.cpu())
    await contract.send(owner.endpoint, "release")
    for reader in readers:
        await reader.until(ENDED, scale.seconds * 4 + 30)
        reader.close()
    seconds = perf_counter() - started
    gaps = sum(_numbers(reader) != list(range(count)) for reader in readers)
    delays = sorted(delay for reader in readers for delay in _delays(reader))
    extra = {
        "p50_ms": _share(delays, 0.5),
        "events_s": len(delays) / seconds,
        "owner_cpu": (owner.cpu() - used[0]) / seconds,
        "other_cpu": (other.cpu() - used[1]) / seconds,
    }
    return Sample(_share(delays, 0.99), gaps, extra=extra)


def takeover(contender: Contender, scale: Scale) -> Sample:
    """kill -9 of the owner: milliseconds until a subscriber elsewhere hears of the task again, p99."""
    with _replicas(contender, 2) as servers:
        return run(_takeover(servers, scale.kills))


async def _takeover(servers: Sequence[Server], kills: int) -> Sample:
    delays: list[float] = []
    bad = 0
    for number in range(kills):
        owner, other = servers[number % 2], servers[1 - number % 2]
        ids = await _begin(owner, "stay", STAYING)
        readers = await subscribe(other.endpoint, ids)
        firsts = [HERE.findall((await reader.until(b"here-"))[1]) for reader in readers]
        for reader in readers:
            reader.frames.clear()
        killed = monotonic_ns()
        owner.process.send_signal(signal.SIGKILL)
        for reader, first in zip(readers, firsts, strict=True):
            came, _ = await reader.until(DATA, 60)
            delays.append((came - killed) / 1e6)
            _, frame = await reader.until(b"here-", 60)
            bad += HERE.findall(frame) == first
            reader.close()
        owner.stop(signal.SIGKILL)
        for task_id in ids:
            cancel = other.endpoint.request("CancelTask", {"id": task_id}, close=True)
            await contract.exchange(other.endpoint, cancel)
        await asyncio.to_thread(owner.start)
    delays.sort()
    extra = {"p50_ms": _share(delays, 0.5), "max_ms": delays[-1], "kills": kills}
    return Sample(_share(delays, 0.99), bad, extra=extra)


def claims(contender: Contender, scale: Scale) -> Sample:
    """A process dies with many tasks; seconds from the start of three others until all have an owner."""
    with database.fresh() as url, ExitStack() as stack:
        with Server(contender, url) as first:
            run(_stay(first, scale.unfinished))
            first.stop(signal.SIGKILL)
        servers = [Server(contender, url) for _ in range(3)]
        return run(_claims(url, servers, stack, scale.unfinished))


async def _claims(url: str, servers: Sequence[Server], stack: ExitStack, count: int) -> Sample:
    store = store_from_url(url)
    await store.open()
    try:
        await _orphaned(store, count)
        started = perf_counter()
        await asyncio.gather(*(asyncio.to_thread(stack.enter_context, server) for server in servers))
        serving = perf_counter() - started
        await _orphaned(store, 0)
        seconds = perf_counter() - started
        taken = await _claimed(store, count)
    finally:
        await store.close()
    wrong = sum(times != 1 for times in taken.values()) + abs(count - len(taken))
    return Sample(seconds, wrong, extra={"serving_s": serving, "tasks": count})


async def _orphaned(store: Store, count: int) -> None:
    """Until just so many tasks have no living owner."""
    for _ in range(2_400):
        if len(await store.nodes.orphans(("",), count + 1)) == count:
            return
        await asyncio.sleep(0.05)
    raise contract.Broken(f"there are not {count} tasks without a living owner")


async def _claimed(store: Store, count: int) -> Counter[str]:
    """How often each task was taken over; reads the whole log."""
    taken = Counter[str]()
    cursor = START
    async with asyncio.timeout(60):
        while len(taken) < count:
            records, cursor = await store.log.tail(cursor, 5_000)
            taken.update(one.task_id for one in records if isinstance(one.recorded.event, Claimed))
            if not records:
                await asyncio.sleep(0.05)
        records, _ = await store.log.tail(cursor, 100_000)
    taken.update(one.task_id for one in records if isinstance(one.recorded.event, Claimed))
    return taken


@contextmanager
def _replicas(contender: Contender, count: int) -> Generator[list[Server]]:
    with database.fresh() as url, ExitStack() as stack:
        servers = [stack.enter_context(Server(contender, url)) for _ in range(count)]
        try:
            yield servers
        except Exception:
            for server in servers:
                print(f"a replica's log ends:\n{server.log()}", file=sys.stderr)
            raise


async def _begin(server: Server, text: str, count: int) -> list[str]:
    """So many tasks that go on after their sends were answered."""
    make = server.endpoint.send(text, close=True, wait=False)
    return [(await contract.answered(server.endpoint, make()))["id"] for _ in range(count)]


async def _stay(server: Server, count: int) -> None:
    make = server.endpoint.send("stay", wait=False)
    numbers = iter(range(count))
    load = Load(lambda: make() if next(numbers, None) is not None else None, b'"result"')
    await start_callers(server.endpoint, load, 64)
    await asyncio.wait_for(load.ended.wait(), 300)
    if load.bad or load.lost:
        raise contract.Broken(f"{load.bad + load.lost} of {count} sends were not answered")


def _numbers(reader: Reader) -> list[int]:
    return [int(number) for _, frame in reader.frames for number, _ in TICK.findall(frame)]


def _delays(reader: Reader) -> Iterator[float]:
    for came, frame in reader.frames:
        for _, emitted in TICK.findall(frame):
            yield (came - int(emitted)) / 1e6


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
