"""Who sends a request, by which header, and what is asked of everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tests.auth.issuing import JWKS, NAME, Net, key, public, token, tokens
from trunkline.auth.identity import KEY_SCHEMES, Identity
from trunkline.auth.keys import Keyring, StoredKey, digest_of
from trunkline.auth.principal import ANONYMOUS
from trunkline.config import Secret
from trunkline.errors import Unauthenticated, Unavailable

ONE, TWO = "first-key-12345", "second-key-6789"
BY_ONE = b"Bearer " + ONE.encode()
O1 = key("OKP", "o1")


@pytest.fixture
def by_key() -> Identity:
    return Identity(Keyring([Secret(ONE), Secret(TWO)]))


def by_token(*keys: str, net: Net | None = None) -> Identity:
    return Identity(Keyring(map(Secret, keys)), tokens(net or Net({JWKS: public(O1)})))


def test_while_nothing_is_enforced_everybody_is_anonymous() -> None:
    identity = Identity(Keyring([]))
    assert not identity.enforced
    assert identity.schemes() == {}
    for headers in ({}, {b"x-api-key": b"whatever"}, {b"authorization": b"Bearer a.b.c"}):
        assert identity.known(headers) is ANONYMOUS
        assert asyncio.run(identity.ask(headers)) is ANONYMOUS


def test_the_first_stored_key_shuts_the_door() -> None:
    ring = Keyring([])
    identity = Identity(ring)
    ring.take(
        StoredKey(id="a", tenant="t", owner="o", scopes=(), digest=digest_of(b"tl_a_b").hex(), created_at=1)
    )
    assert identity.enforced
    assert list(identity.schemes()) == ["apiKey", "bearer"]
    with pytest.raises(Unauthenticated):
        identity.known({})
    known = identity.known({b"x-api-key": b"tl_a_b"})
    assert known is not None and known.name == "o"


def test_what_was_good_once_is_asked_again() -> None:
    now = 5_000_000_000_000
    ring = Keyring([Secret(ONE)], lambda: now)
    stored = StoredKey(
        id="a",
        tenant="t",
        owner="o",
        scopes=(),
        digest=digest_of(b"tl_a_new").hex(),
        created_at=1,
        expires_at=now + 100,
        previous=digest_of(b"tl_a_old").hex(),
        previous_until=now + 10,
    )
    ring.take(stored)
    identity = Identity(ring, tokens(Net({JWKS: public(O1)})))
    lasting = [
        identity.lasting({b"x-api-key": ONE.encode()}),
        identity.lasting({b"x-api-key": b"tl_a_new"}),
        identity.lasting({b"authorization": b"Bearer tl_a_old"}),
    ]

    def still() -> list[bool]:
        return [one is not None and one() for one in lasting]

    assert still() == [True, True, True]
    now += 10
    assert still() == [True, True, False], "the grace is over"
    now += 90
    assert still() == [True, False, False], "so is its time"
    now -= 100
    assert still() == [True, True, True]
    ring.take(replace(stored, revoked_at=now))
    assert still() == [True, False, False]
    assert identity.lasting({b"authorization": b"Bearer " + token(O1)}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {b"x-api-key": ONE.encode()},
        {b"authorization": BY_ONE},
        {b"authorization": b"bearer " + ONE.encode()},
        {b"authorization": b"BEARER   " + ONE.encode() + b" "},
        {b"x-api-key": b"", b"authorization": BY_ONE},
        {b"x-api-key": ONE.encode(), b"authorization": b"Bearer " + TWO.encode()},
        {b"x-api-key": ONE.encode(), b"authorization": b"Bearer nonsense"},
    ],
)
def test_either_header_opens_and_the_key_alone_counts_where_it_is(
    by_key: Identity, headers: Mapping[bytes, bytes]
) -> None:
    assert by_key.known(headers) == by_key.known({b"x-api-key": ONE.encode()})
    assert asyncio.run(by_key.ask(headers)) == by_key.known(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"x-api-key": b""},
        {b"x-api-key": b"wrong"},
        {b"x-api-key": b"wrong", b"authorization": BY_ONE},
        {b"authorization": ONE.encode()},
        {b"authorization": b"Basic " + ONE.encode()},
        {b"authorization": b"Bearer"},
        {b"authorization": b"Bearer "},
        {b"authorization": BY_ONE + b", Bearer " + TWO.encode()},
        {b"authorization": b"Bearer\t" + ONE.encode()},
        {b"authorization": b"Bearer " + token(O1)},
        {b"cookie": b"x-api-key=" + ONE.encode()},
    ],
)
def test_anything_else_stays_out(by_key: Identity, headers: Mapping[bytes, bytes]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        by_key.known(headers)
    assert ONE not in caught.value.message and TWO not in caught.value.message


def test_a_token_is_asked_about_once() -> None:
    identity = by_token()
    headers = {b"authorization": b"Bearer " + token(O1)}
    assert identity.enforced
    assert identity.known(headers) is None
    who = asyncio.run(identity.ask(headers))
    assert who.name == f"{NAME}#alice"
    assert identity.known(headers) == who


def test_keys_and_tokens_go_together() -> None:
    identity = by_token(ONE)
    assert identity.known({b"authorization": BY_ONE}) == identity.known({b"x-api-key": ONE.encode()})
    with pytest.raises(Unauthenticated, match="not known"):
        identity.known({b"x-api-key": token(O1)})
    with pytest.raises(Unauthenticated, match="not known"):
        identity.known({b"x-api-key": b"wrong", b"authorization": b"Bearer " + token(O1)})


@pytest.mark.parametrize("sent", [b"", b"Bearer", b"Bearer opaque-token", b"Basic x", b"Bearer ey.a"])
def test_without_keys_only_tokens_open(sent: bytes) -> None:
    with pytest.raises(Unauthenticated):
        asyncio.run(by_token().ask({b"authorization": sent}))


def test_an_issuer_that_is_away_is_not_the_callers_fault() -> None:
    with pytest.raises(Unavailable):
        asyncio.run(by_token(net=Net({})).ask({b"authorization": b"Bearer " + token(O1)}))


def test_what_is_asked_for_is_what_is_enforced(by_key: Identity) -> None:
    assert (by_key.challenge, by_key.schemes()) == (b"Bearer, ApiKey", KEY_SCHEMES)
    assert (by_token().challenge, list(by_token().schemes())) == (b"Bearer", ["jwt"])
    both = by_token(ONE)
    assert (both.challenge, list(both.schemes())) == (b"Bearer, ApiKey", ["apiKey", "bearer", "jwt"])
    for identity, words in (
        (by_key, "needs a key: send"),
        (by_token(), "needs a token: send"),
        (both, ", or a key"),
    ):
        with pytest.raises(Unauthenticated, match=words):
            identity.known({})
