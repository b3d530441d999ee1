"""Places that tenants share: nobody waits for a tenant that wants many, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from trunkline.net.places import TenantPlaces


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await work()

    asyncio.run(main())


def waiting(places: TenantPlaces, tenant: str, told: list[str]) -> asyncio.Task[None]:
    """Somebody of a tenant that says so when it has a place, and keeps that."""

    async def taken() -> None:
        await places.take(tenant)
        told.append(tenant)

    return asyncio.create_task(taken())


def test_tenants_take_turns_however_many_of_one_wait() -> None:
    async def work() -> None:
        places, told = TenantPlaces(1), list[str]()
        await places.take("noisy")
        asked = [waiting(places, one, told) for one in ("noisy", "noisy", "noisy", "quiet", "other")]
        await asyncio.sleep(0)
        for tenant in ("noisy", "noisy", "quiet", "other", "noisy"):
            places.leave(tenant)
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        assert told == ["noisy", "quiet", "other", "noisy", "noisy"]

    run(work)


def test_a_tenant_holds_its_part_and_nobody_in_particular_all_that_are_left() -> None:
    async def work() -> None:
        places, told = TenantPlaces(4, 2), list[str]()
        asked = [waiting(places, one, told) for one in ("noisy", "noisy", "noisy", "quiet", "", "")]
        await asyncio.sleep(0)
        assert told == ["noisy", "noisy", "quiet", ""]
        assert not any(places.has_room(one) for one in ("noisy", "quiet", ""))
        places.leave("quiet")
        await asyncio.sleep(0)
        # One that has its part is passed over.
        assert told[4:] == [""]
        places.leave("noisy")
        await asyncio.gather(*asked)
        assert told[5:] == ["noisy"] and not places.has_room("noisy")

    run(work)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans()), max_size=30))
def test_no_place_is_lost_or_given_twice_whoever_gives_up(steps: list[tuple[str, int, bool]]) -> None:
    async def work() -> None:
        places, now, most = TenantPlaces(3, 2), 0, 0

        async def hold(tenant: str, turns: int) -> None:
            nonlocal now, most
            async with places.held(tenant):
                now += 1
                most = max(most, now)
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    now -= 1

        tasks = list[asyncio.Task[None]]()
        for tenant, turns, gives_up in steps:
            tasks.append(asyncio.create_task(hold(tenant, turns)))
            await asyncio.sleep(0)
            if gives_up:
                # Waiting, holding a place, or given one in this moment.
                tasks[len(tasks) // 2].cancel()
        for one in tasks:
            with suppress(asyncio.CancelledError):
                await one
        assert most <= 3 and all([places.has_room(one) for one in "abc"])
        for one in ("a", "a", "b"):
            await places.take(one)
        assert not places.has_room("c")

    run(work)
