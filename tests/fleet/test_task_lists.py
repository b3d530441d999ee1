"""Turns to read lists: each tenant has some of its own, and there is an end to all of them together."""

from __future__ import annotations

import asyncio

from trunkline.fleet.task_lists import LISTING, LISTING_IN_ALL, TenantTurns


def test_a_tenant_waits_behind_itself_and_all_of_them_are_bounded() -> None:
    async def main() -> None:
        turns, told = TenantTurns(), asyncio.Event()
        reading: list[str] = []

        async def read(tenant: str) -> None:
            async with turns.of(tenant):
                reading.append(tenant)
                await told.wait()

        async def begin(*tenants: str) -> None:
            for tenant in tenants:
                tasks.append(asyncio.create_task(read(tenant)))
            # Each has had its chance to begin.
            for _ in range(10):
                await asyncio.sleep(0)

        tasks: list[asyncio.Task[None]] = []
        await begin(*["loud"] * 100)
        assert reading == ["loud"] * LISTING
        await begin("calm")
        assert reading == [*["loud"] * LISTING, "calm"]
        await begin(*[f"t{number}" for number in range(100)])
        assert len(reading) == LISTING_IN_ALL
        told.set()
        await asyncio.gather(*tasks)
        assert len(reading) == 201

    asyncio.run(main())
