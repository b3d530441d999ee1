"""Every outcome is counted once, on every store, whichever process reads and whenever one dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fleet.health.given import DAY, HOUR, NOW, Ended, Moment, append, calculated, run_task, submitted
from trunkline.errors import StoreError
from trunkline.fleet.health import recorder as module
from trunkline.fleet.health.health_records import KIND, HealthRecords
from trunkline.fleet.health.recorder import HealthRecorder
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.store import tail
from trunkline.store.base import Store
from trunkline.store.tail import TailReader
from trunkline.store.url import store_from_url
from trunkline.wire.types import TaskState

Work = Callable[[Store], Awaitable[Any]]
ENDS = (TaskState.COMPLETED, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED)


@pytest.fixture(params=["sqlite", "postgres"])
def with_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Work], Any]:
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")

    def run(work: Work) -> Any:
        async def main() -> Any:
            store = store_from_url(url)
            await store.open()
            try:
                async with asyncio.timeout(60):
                    return await work(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return run


class Replica:
    """A process that counts: its records, and its reader of the log."""

    def __init__(self, store: Store, clock: Moment | None = None) -> None:
        self.records = HealthRecords(store.docs, DAY, clock or Moment())
        self.recorder = HealthRecorder(store, self.records, "desk")
        self.reader = TailReader(store, "health", self.recorder)

    async def fresh(self) -> HealthRecords:
        await self.reader.catch_up()
        await self.records.mirror.refresh()
        return self.records


def drawn(count: int) -> list[Ended]:
    draw = random.Random(7)
    return [
        Ended(
            draw.choice(("desk", "other")),
            draw.choice(("work", "rest")),
            draw.choice(ENDS),
            NOW - draw.randrange(26 * HOUR),
            draw.randrange(5000),
            draw.randrange(8) / 4,
        )
        for _ in range(count)
    ]


def figures(records: HealthRecords, agent: str) -> dict[str, Any]:
    return msgspec.structs.asdict(records.of("north", agent))


def test_HB_22_health_equals_an_independent_calculation_on_every_replica_and_after_a_restart(
    with_store: Callable[[Work], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "PAGE", 50)
    tasks = drawn(120)

    async def work(store: Store) -> None:
        replicas = [Replica(store), Replica(store)]
        for n, one in enumerate(tasks):
            await run_task(store, f"t{n}", one)
            if n % 40 == 39:
                # Both at once: one of them writes each batch.
                await asyncio.gather(*(one.fresh() for one in replicas))
        for replica in (*replicas, Replica(store)):
            records = await replica.fresh()
            for agent in ("desk", "other", "nobody"):
                assert figures(records, agent) == calculated(tasks, agent, NOW)
            assert figures(records, "desk") == figures(replicas[0].records, "desk")
        # The edge: what ended at its very moment still counts, a millisecond later no more.
        oldest = min(one.at for one in tasks if one.agent == "desk" and one.at >= NOW - DAY)
        for later in (0, 1):
            clock = Moment()
            clock.ms = oldest + DAY + later
            records = await Replica(store, clock).fresh()
            assert figures(records, "desk") == calculated(tasks, "desk", clock.ms)

    with_store(work)


@pytest.mark.parametrize(
    "killed", ["before its batch is saved", "before it is counted", "between two documents"]
)
def test_a_death_counts_nothing_twice_and_loses_nothing(
    with_store: Callable[[Work], Any], killed: str
) -> None:
    tasks = drawn(30)

    async def work(store: Store) -> None:
        first = Replica(store)
        for n, one in enumerate(tasks):
            await run_task(store, f"t{n}", one, tenant=("north", "south")[n % 2])
        written: list[str] = []

        async def die(*_: Any, **__: Any) -> None:
            raise StoreError("killed")

        real_put = first.records.mirror.put

        async def put(tenant: str, doc_id: str, body: bytes, *, expected_rev: int) -> None:
            if len(written) == 3:
                raise StoreError("killed")
            await real_put(tenant, doc_id, body, expected_rev=expected_rev)
            written.append(doc_id)

        if killed == "before its batch is saved":
            first.recorder.take = die  # type: ignore[method-assign]
        elif killed == "before it is counted":
            first.recorder.settle = die  # type: ignore[method-assign]
        else:
            first.records.mirror.put = put  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="killed"):
            await first.reader.catch_up()
        records = await Replica(store).fresh()
        for place, tenant in enumerate(("north", "south")):
            for agent in ("desk", "other"):
                found = msgspec.structs.asdict(records.of(tenant, agent))
                assert found == calculated(tasks[place::2], agent, NOW)

    with_store(work)


def test_a_task_of_which_the_beginning_was_not_heard_is_read(
    with_store: Callable[[Work], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_LIMIT", 1)
    one = Ended("desk", "work", TaskState.COMPLETED, NOW, 70, 0.5)

    async def work(store: Store) -> None:
        open_task = State("long")
        await append(store, open_task, submitted("desk"), at=NOW - 900)
        await run_task(store, "t1", one)
        await (replica := Replica(store)).fresh()
        await append(store, open_task, ev.Status(TaskState.INPUT_REQUIRED), at=NOW - 5)
        records = await replica.fresh()
        assert records.window("north")["desk"]["work"].tally.kinds == [1, 0, 0, 0, 1]
        await append(store, open_task, ev.Status(TaskState.FAILED), at=NOW)
        records = await Replica(store).fresh()
        assert records.window("north")["desk"]["work"].tally.kinds == [1, 1, 0, 0, 1]
        assert records.of("north", "desk").p95_ms == 900
        assert [(one.task, one.correlation) for one in records.failures("north")] == [("long", "long")]

    with_store(work)


def test_who_calls_whom_is_known_though_the_parent_has_ended() -> None:
    async def main() -> None:
        store = store_from_url("memory:")
        await store.open()
        done = Ended("desk", "work", TaskState.COMPLETED, NOW, 70, 0.5)
        # A log that names no agent is that of the agent at the origin.
        await run_task(store, "p1", done._replace(agent=""))
        await Replica(store).fresh()
        await run_task(store, "c1", done._replace(agent="other", state=TaskState.FAILED), parent="p1")
        await run_task(store, "c2", done._replace(agent="other"), parent="gone")
        records = await Replica(store).fresh()
        assert [(one.caller, one.agent, one.total, one.failed) for one in records.calls("north")] == [
            ("desk", "other", 1, 1)
        ]
        await store.close()

    asyncio.run(main())


def test_periods_are_kept_for_two_days_whatever_becomes_of_their_tasks() -> None:
    async def main() -> None:
        clock = Moment()
        store = store_from_url("memory:", now_ms=clock)
        await store.open()
        replica = Replica(store, clock)
        done = Ended("desk", "work", TaskState.COMPLETED, NOW, 70, 0.5)
        await run_task(store, "t1", done)
        await run_task(store, "old", done._replace(at=NOW - 3 * DAY))
        await replica.fresh()
        assert await store.maintenance.prune(NOW + 1) == 2
        assert (await Replica(store, clock).fresh()).of("north", "desk").total == 1
        for hours, kept in ((47, 2), (49, 1)):
            clock.ms = NOW + hours * HOUR
            await run_task(store, f"t{hours}", done._replace(at=clock.ms))
            records = await replica.fresh()
            assert len(await store.docs.list("north", KIND)) == kept + (hours == 49)
            assert records.of("north", "desk").total == (1 if hours == 47 else 2)
        await store.close()

    asyncio.run(main())
