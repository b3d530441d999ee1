"""Reading what streams, while somebody listens for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from trunkline.errors import TimedOut
from trunkline.peer import hearing
from trunkline.peer.hearing import Hearings


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "LISTEN_S", 0.0)


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _at_its_end() -> str:
    return "read"


async def _nothing() -> None:
    pass


async def _given_up() -> None:
    raise TimedOut("it said nothing", reason="silent")


def _read(reading: Coroutine[Any, Any, Any], listen: hearing.Listen) -> Any:
    async def read() -> Any:
        found = await asyncio.wait_for(Hearings().read(reading, listen), 5)
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()
        return found

    return asyncio.run(read())


def test_what_is_read_to_its_end_is_given() -> None:
    assert _read(_at_its_end(), _for_ever) == "read"


def test_a_word_from_elsewhere_ends_the_reading() -> None:
    assert _read(_for_ever(), _nothing) is None


def test_what_the_listener_raises_ends_the_reading_too() -> None:
    with pytest.raises(TimedOut, match="said nothing"):
        _read(_for_ever(), _given_up)


def test_a_cancel_from_outside_is_no_word_from_elsewhere() -> None:
    async def cancelled() -> bool:
        task = asyncio.create_task(Hearings().read(_for_ever(), _for_ever))
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task])
        return done.pop().cancelled()

    assert asyncio.run(cancelled())


def test_a_reading_that_ignores_the_word_is_read_and_leaves_no_cancel_behind() -> None:
    async def stubborn() -> str:
        try:
            await _for_ever()
        except asyncio.CancelledError:
            return "read all the same"
        return ""

    assert _read(stubborn(), _nothing) == "read all the same"


def test_one_that_is_used_in_a_second_loop_listens_there() -> None:
    hearings = Hearings()
    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(hearings.read(_for_ever(), _nothing), 5)) is None
