"""An answer that repeats a credential is read without it, whole and in pieces."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine

import pytest

from trunkline.net.redacted import RedactedResponse, credentials_in, redacted

KEY = "sk-canary-71d4"


class Repeating:
    status = 401
    is_read = True

    def __init__(self, *pieces: bytes) -> None:
        self.headers = {"www-authenticate": f'Bearer error="{KEY}"', "location": f"/x?k={KEY}"}
        self.pieces = pieces
        self.closed = False

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        return b"".join(self.pieces)

    async def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def close(self) -> None:
        self.closed = True


def test_what_is_repeated_is_left_out() -> None:
    reply = Repeating(b"bad key " + KEY.encode(), b", fine, ", KEY.encode() * 2)
    found = redacted(reply, KEY)

    async def case() -> None:
        assert (found.status, getattr(found, "is_read", False)) == (401, True)
        assert await found.read(1 << 20) == b"bad key ***, fine, ******"
        assert [piece async for piece in found.chunks()] == [b"bad key ***", b", fine, ", b"******"]
        assert found.headers["www-authenticate"] == 'Bearer error="***"'
        # Whoever is sent on has to come to the place.
        assert found.headers["location"] == f"/x?k={KEY}"
        await found.close()
        assert reply.closed

    asyncio.run(case())


@pytest.mark.parametrize("shown", [(), ("",), ("short",)])
def test_what_anybody_says_is_left_as_it_is(shown: tuple[str, ...]) -> None:
    reply = Repeating(b"a short word")
    assert redacted(reply, *shown) is reply


def test_credentials_are_known_by_their_headers() -> None:
    sent = (("Authorization", f"Bearer {KEY}"), ("X-API-Key", "other"), ("x-region", "eu-central-1"))
    assert credentials_in(sent) == [KEY, "other"]
    plain = RedactedResponse(Repeating(b""), "nobody says this")
    assert plain.headers["location"].endswith(KEY)


def test_a_stream_that_is_left_leaves_nothing_to_be_closed() -> None:
    class Streaming(Repeating):
        def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
            return self

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            return KEY.encode()

    async def case() -> int:
        made: list[asyncio.Task[object]] = []

        def count(loop: asyncio.AbstractEventLoop, work: Coroutine[object, None, object]) -> object:
            made.append(asyncio.Task(work, loop=loop))
            return made[-1]

        asyncio.get_running_loop().set_task_factory(count)  # type: ignore[arg-type]
        pieces = redacted(Streaming(), KEY).chunks()
        assert await anext(pieces) == b"***"
        del pieces
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(made)

    assert asyncio.run(case()) == 0
