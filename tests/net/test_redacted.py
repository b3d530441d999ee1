"""An answer that repeats a credential is read without it, whole and in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
