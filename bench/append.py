"""The store alone: how fast it appends, and how fast its own statement runs without it."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Sequence
from time import perf_counter, process_time

from bench import database
from bench.contract import Broken
from bench.generator import run
from bench.scenario import Sample, Scale
from bench.servers import Contender
from trunkline.clock import now_ms
from trunkline.log.encoding import encode
from trunkline.log.events import Chunk
from trunkline.store.base import Store
from trunkline.store.postgres.address import DatabaseAddress
from trunkline.store.postgres.append import append_statement
from trunkline.store.url import store_from_url
from trunkline.wire.types import Artifact, Part

TASKS = 200
TENANT = "default"
TEXT = "lorem ipsum dolor sit amet " * 12
EVENT = Chunk(Artifact("out", parts=(Part(text=TEXT),)), append=True)
IDS = [f"0190f0f0-0000-7000-8000-{place:012x}" for place in range(TASKS)]


class Meter:
    """Counts what is acknowledged after the warm-up and before the end."""

    def __init__(self, scale: Scale) -> None:
        self._from = perf_counter() + scale.warm
        self._until = self._from + scale.seconds
        self._cpu = 0.0
        self._scale = scale
        self.count = 0
        self.groups: list[int] = []

    def add(self, count: int) -> bool:
        """Count; whether to go on."""
        now = perf_counter()
        if now < self._from:
            self._cpu = process_time()
        elif now < self._until:
            self.count += count
        return now < self._until

    def sample(self) -> Sample:
        """Events per second, and this process's own part in their cost."""
        cpu_us = (process_time() - self._cpu) / max(1, self.count) * 1e6
        group = statistics.median(self.groups)
        return Sample(self.count / self._scale.seconds, cpu_us=cpu_us, extra={"group": group})


def append(contender: Contender, scale: Scale) -> Sample:
    """Many tasks, each appends one event again and again and waits until it is acknowledged."""
    with database.fresh() as url:
        return run(_append(url, contender.name, scale))


async def _append(url: str, name: str, scale: Scale) -> Sample:
    store = store_from_url(url)
    await store.open()
    try:
        meter = Meter(scale)
        if name == "asyncpg":
            await _through_driver(url, meter)
        else:
            await _through_store(store, meter)
        return meter.sample()
    finally:
        await store.close()


async def _through_store(store: Store, meter: Meter) -> None:
    def note(outcomes: Sequence[object], seconds: float) -> None:
        del seconds
        meter.groups.append(len(outcomes))

    async def one(task_id: str) -> None:
        last, events = 0, (EVENT,)
        while meter.add(last > 0):
            last = await store.log.append(TENANT, task_id, last, events, at=now_ms())

    store.observe(note)
    await asyncio.gather(*(one(task_id) for task_id in IDS))


async def _through_driver(url: str, meter: Meter) -> None:
    """The statement of the store on a session like its own, in groups like its own, and nothing else."""
    connection = await DatabaseAddress(url).connect("bench", seconds=10)
    statement = append_statement(False, False, False, False)
    values: dict[str, object] = {
        "count": TASKS,
        "task_ids": IDS,
        "tenants": [TENANT] * TASKS,
        "bodies": [encode((EVENT,))] * TASKS,
    }
    marks = itertools.count()
    last = 0
    while meter.add(TASKS if last else 0):
        values["expected"], last = [last] * TASKS, last + 1
        values["lasts"] = [last] * TASKS
        values["ats"] = [now_ms()] * TASKS
        values["marks"] = [next(marks) for _ in range(TASKS)]
        (row,) = await connection.fetch(statement.text, *statement.values(values))
        if row[0] is None or row[0]:
            raise Broken("the statement did not write every append")
        meter.groups.append(TASKS)
    await connection.close(timeout=5)
