"""The health of a fleet while its host lives: fresh when asked, and what is above its limit is said."""

from __future__ import annotations

import asyncio

import pytest

from tests.fleet.health.given import NOW, Ended, Moment, run_task
from trunkline.fleet.health import fleet_health as module
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.health.health_records import HealthRecords
from trunkline.fleet.health.snapshot import FleetSnapshot, snapshot
from trunkline.store.url import store_from_url
from trunkline.wire.types import TaskState

FAILED = Ended("desk", "work", TaskState.FAILED, NOW, 70, 0.5)


@pytest.mark.parametrize("limits", [AlertLimits(), None], ids=["with limits", "without"])
def test_what_is_above_its_limit_is_said_unasked(
    limits: AlertLimits | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALERT_EVERY_S", 0.0)

    async def main() -> None:
        store = store_from_url("memory:")
        await store.open()
        await run_task(store, "t1", FAILED)
        health = FleetHealth(
            store,
            origin="desk",
            window_s=3600.0,
            registered=lambda _: ["desk"],
            limits=None if limits is None else lambda tenant: limits,
            now_ms=Moment(),
        )
        going_on = health.start()
        assert health.start() is going_on
        async with asyncio.timeout(30):
            assert (await health.fresh()).of("north", "desk").failure_rate_1h == 1.0
            if limits is None:
                await health.check()
            else:
                while "orphaned-skills" not in caplog.text:  # noqa: ASYNC110 - nothing there to wait on
                    await asyncio.sleep(0.01)
        going_on.cancel()
        await asyncio.wait({going_on})
        await store.close()

    asyncio.run(main())
    said = [record.message for record in caplog.records if record.name == "trunkline.fleet"]
    assert said == (
        []
        if limits is None
        else [
            "fleet.alert tenant=north kind=failure-rate value=1 limit=0.5",
            "fleet.alert tenant=north kind=orphaned-skills value=1 limit=0",
        ]
    )


def test_who_asks_is_answered_though_a_long_log_is_not_read_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CATCH_UP_S", 0.0)

    async def main() -> int:
        store = store_from_url("memory:")
        await store.open()
        await run_task(store, "t1", FAILED)
        health = FleetHealth(store, origin="desk", window_s=3600.0, registered=lambda _: (), now_ms=Moment())
        before = (await health.fresh()).of("north", "desk").total
        # It goes on beside.
        async with asyncio.timeout(30):
            while not health.records.of("north", "desk").total:  # noqa: ASYNC110 - nothing there to wait on
                await asyncio.sleep(0.01)
        health.start().cancel()
        await store.close()
        return before

    assert asyncio.run(main()) == 0


def test_the_agents_of_a_fleet_come_in_pages_by_name() -> None:
    async def main() -> FleetSnapshot:
        store = store_from_url("memory:")
        await store.open()
        records = HealthRecords(store.docs, 3_600_000, Moment())
        await store.close()
        return snapshot(records, "north", ["c", "a", "b"], AlertLimits())

    whole = asyncio.run(main())
    first = whole.cut(2, "")
    assert ([one.agent for one in first.agents], first.next) == (["a", "b"], "b")
    rest = whole.cut(2, "b")
    assert ([one.agent for one in rest.agents], rest.next) == (["c"], None)
    assert whole.cut(3, "").next is None
