"""A body on its way: what is given at once, what is waited for, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trunkline.errors import TimedOut, Unreachable
from trunkline.net.http import UNREAD_BYTES, Body


def run(work: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(main())


def made(room: Any = lambda: None) -> Body:
    return Body(asyncio.get_running_loop(), "agent.example", room)


def test_what_is_there_is_given_at_once_and_together() -> None:
    async def work() -> None:
        body = made()
        for piece in (b"a", b"b", b"c"):
            assert body.feed(piece) is False
        assert await anext(body) == b"abc"
        body.feed(b"d")
        body.end()
        assert [chunk async for chunk in body] == [b"d"]
        assert [chunk async for chunk in body.chunks(5)] == []

    run(work)


def test_too_much_unread_is_said_and_reading_makes_room() -> None:
    async def work() -> None:
        rooms: list[int] = []
        body = made(lambda: rooms.append(1))
        assert body.feed(b"x" * UNREAD_BYTES) is False
        assert body.feed(b"x") is True
        assert len(await anext(body)) == UNREAD_BYTES + 1
        assert rooms == [1]
        body.end()
        assert await body.read(10) == b""
        # An ended body has no say any longer: its line may be somebody else's.
        assert rooms == [1]

    run(work)


def test_an_error_comes_after_what_was_good() -> None:
    async def work() -> None:
        body = made()
        body.feed(b"good")
        body.end(Unreachable("cut", reason="protocol"))
        body.end()
        assert await anext(body) == b"good"
        with pytest.raises(Unreachable, match="cut"):
            await anext(body)
        with pytest.raises(Unreachable, match="cut"):
            await body.read(100)

    run(work)


def test_the_limit_counts_before_the_end() -> None:
    async def work() -> None:
        body = made()
        body.feed(b"x" * 11)
        with pytest.raises(Unreachable, match="over 10 bytes"):
            await body.read(10)

    run(work)


def test_each_piece_starts_the_silence_anew() -> None:
    """A timer is made once and not for each wait, so it must look again when it fires too early."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        body = made()

        def drip(left: int) -> None:
            body.feed(b".")
            if left:
                loop.call_later(0.03, drip, left - 1)

        begun = loop.time()
        loop.call_later(0.03, drip, 3)
        taken = b""
        with pytest.raises(TimedOut):
            while True:
                taken += await anext(body.chunks(0.05))
        assert taken == b"...."
        assert loop.time() - begun >= 0.12 + 0.05 - 0.005
        # A shorter patience than that of the timer which is set.
        body.feed(b"x")
        await anext(body.chunks(5))
        with pytest.raises(TimedOut):
            await anext(body.chunks(0.01))
        waiting = asyncio.ensure_future(body.chunks(5).__anext__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        begun = loop.time()
        with pytest.raises(TimedOut):
            await anext(body.chunks(0.01))
        assert loop.time() - begun < 5
        body.end()

    run(work)


def test_a_timer_that_fires_when_nobody_waits() -> None:
    async def work() -> None:
        body = made()
        asyncio.get_running_loop().call_soon(body.feed, b"x")
        assert await anext(body.chunks(0.01)) == b"x"
        await asyncio.sleep(0.02)
        body.feed(b"y")
        assert await anext(body.chunks(0.01)) == b"y"
        body.drop()
        body.drop()

    run(work)
