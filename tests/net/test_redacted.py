"""An answer that repeats a credential is read without it, whole and in pieces."""

from __future__ import annotations

import asyncio
import gc
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Coroutine
from urllib.parse import quote, quote_plus

import pytest

from trunkline.net.redacted import CredentialRedaction, credentials_in

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
    found = CredentialRedaction(KEY).of(reply)

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


def test_a_credential_that_is_no_text_is_for_the_connection_to_refuse() -> None:
    assert CredentialRedaction("\udcff" + KEY).text("said") == "said"


@pytest.mark.parametrize("shown", [(), ("",), ("short",)])
def test_what_anybody_says_is_left_as_it_is(shown: tuple[str, ...]) -> None:
    reply = Repeating(b"a short word")
    assert CredentialRedaction(*shown).of(reply) is reply


def test_credentials_are_known_by_their_headers() -> None:
    sent = (
        ("Authorization", f"Bearer {KEY}"), ("X-API-Key", "other"), ("x-region", "eu-central-1"),
        ("X-Acme-Token", "custom"), ("Cookie", "a=first; b=second"), ("idempotency-key", "a-message-id"),
        ("proxy-authorization", f"Basic {b64encode(b'me:hunter22').decode()}"), ("authorization", "Basic é"),
    )  # fmt: skip
    login = b64encode(b"me:hunter22").decode()
    assert credentials_in(sent) == [KEY, "other", "custom", "first", "second", login, "hunter22", "é"]
    plain = CredentialRedaction("nobody says this").of(Repeating(b""))
    assert plain.headers["location"].endswith(KEY)


@pytest.mark.parametrize(
    ("names", "is_secret"),
    [
        (
            "Authorization X-Auth-Token X-AuthKey apikey Set-Cookie2 X_SECRET_1 sessionid X-Api-Keys passwd",
            True,
        ),
        (
            "X-Author authority X-Keyword X-Tokenizer X-Region Secretary X-Auth-Email X-Auth-User X-Token-Type",
            False,
        ),
    ],
)
def test_a_header_is_known_by_whole_words(names: str, is_secret: bool) -> None:
    for name in names.split():
        assert bool(credentials_in(((name, "alexandra"),))) is is_secret, name


ODD = 'p/ss wörd+"=1'


@pytest.mark.parametrize(
    "spelt", [ODD, json.dumps(ODD)[1:-1], json.dumps(ODD, ensure_ascii=False)[1:-1].replace("/", r"\/"),
              quote(ODD), quote(ODD, safe=""), quote_plus(ODD)],
)  # fmt: skip
def test_a_credential_is_known_as_others_spell_it(spelt: str) -> None:
    hide = CredentialRedaction(ODD)
    assert hide.text(f"a {spelt} b") == "a *** b"
    assert hide.body(f"a {spelt} b".encode()) == b"a *** b"
    assert ODD not in repr(hide)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 14, 40])
def test_a_credential_that_comes_in_pieces_is_left_out(size: int) -> None:
    whole = f"{KEY[:5]} data: {KEY}\n\n{KEY[:-1]}{KEY}, sk-".encode()
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]

    async def case() -> list[bytes]:
        return [piece async for piece in CredentialRedaction(KEY).of(Repeating(*pieces)).chunks()]

    found = asyncio.run(case())
    assert b"".join(found) == f"{KEY[:5]} data: ***\n\n{KEY[:-1]}***, sk-".encode()
    assert all(found)


def test_an_event_does_not_wait_for_the_next() -> None:
    async def case() -> None:
        pieces = CredentialRedaction(KEY).of(Repeating(b"data: sk\n\n", b"data: more\n\n")).chunks()
        assert await anext(pieces) == b"data: sk\n\n"

    asyncio.run(case())


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
        pieces = CredentialRedaction(KEY).of(Streaming()).chunks()
        assert await anext(pieces) == b"***"
        del pieces
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(made)

    assert asyncio.run(case()) == 0
