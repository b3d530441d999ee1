"""Clock: the store's time, and instants claimed once."""

from __future__ import annotations

import asyncio

from tests.conformance.store.given import AT


def test_now(run, store, clock):
    first = run(store.clock.now())
    clock.ms += 5
    assert (first, run(store.clock.now())) == (AT, AT + 5)


def test_an_instant_fires_once(run, store):
    async def case():
        return [await store.clock.fire_once("daily", AT) for _ in range(3)]

    assert run(case()) == [True, False, False]


def test_one_of_many_callers_fires(run, store):
    async def case():
        return sum(await asyncio.gather(*(store.clock.fire_once("daily", AT) for _ in range(30))))

    assert run(case()) == 1


def test_instants_and_schedules_are_apart(run, store):
    async def case():
        return [
            await store.clock.fire_once("daily", AT),
            await store.clock.fire_once("daily", AT + 1),
            await store.clock.fire_once("hourly", AT),
        ]

    assert run(case()) == [True, True, True]
