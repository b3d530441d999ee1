"""Ids sort by time, whatever the clock does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from trunkline.clock import Ids, new_id, random_bits, wait_event
from trunkline.log.ids import UUID, is_task_id

V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def clock(times: list[int]) -> Iterator[int]:
    yield from times
    while True:
        yield times[-1]


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(0, 2**64))
def test_ids_rise_whatever_the_clock_does(times: list[int], chance: int) -> None:
    ticks = clock(times)
    ids = Ids(lambda: next(ticks), lambda bits: chance % (1 << bits))
    made = [ids.new() for _ in range(60)]
    assert made == sorted(set(made))
    assert all(V7.match(one) and UUID.match(one) and is_task_id(one) for one in made)


def test_a_full_counter_moves_on_to_the_next_millisecond() -> None:
    ids = Ids(lambda: 7, lambda bits: (1 << bits) - 1)
    made = [ids.new() for _ in range(5_000)]
    assert made == sorted(set(made))
    assert made[0].startswith("00000000-0007-7")
    assert made[-1].startswith("00000000-0008-7")


def test_the_time_is_in_the_id() -> None:
    made = Ids(lambda: 0x0123456789AB, lambda bits: 0).new()
    assert made == "01234567-89ab-7000-8000-000000000000"


def test_the_shared_source_makes_ids_that_rise() -> None:
    made = [new_id() for _ in range(100)]
    assert made == sorted(set(made))
    assert all(V7.match(one) for one in made)


def test_chance_has_as_many_bits_as_are_asked_for() -> None:
    for count in (1, 10, 62, 64, 128, 256):
        # More than are fetched at once.
        drawn = [random_bits(count) for _ in range(600)]
        assert max(drawn).bit_length() == count
        assert min(drawn) >= 0


def test_an_event_is_waited_for_as_long_as_is_said() -> None:
    async def scene() -> None:
        event = asyncio.Event()
        assert not await wait_event(event, 0.01)
        asyncio.get_running_loop().call_soon(event.set)
        assert await wait_event(event, 60)
        assert await wait_event(event, None)
        # One that has come already is seen even where nobody would wait.
        assert await wait_event(event, 0)

    asyncio.run(scene())
