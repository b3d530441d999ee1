"""An issuer's keys: found, fetched once for many, replaced when they change, kept when it is away."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from tests.auth.issuing import JWKS, NAME, Net, Time, issuer, key, public, token, tokens
from trunkline.auth.jwt import FIRST_PAUSE_S, FRESH_S, KEPT_S, PAUSE_S, TokenVerifier
from trunkline.errors import Unauthenticated, Unavailable

DISCOVERY = f"{NAME}/.well-known/openid-configuration"
DEEP = b'{"keys":[{"a":' + b"[" * 5000
O1, O2, R1 = key("OKP", "o1"), key("OKP", "o2"), key("RSA", "r1")


def found(jwks_uri: str = JWKS, name: str = NAME) -> bytes:
    return json.dumps({"issuer": name, "jwks_uri": jwks_uri, "more": []}).encode()


def accepted(verifier: TokenVerifier, sent: bytes) -> bool:
    try:
        asyncio.run(verifier.ask(sent))
    except Unauthenticated:
        return False
    return True


def test_keys_are_fetched_once_for_all_who_wait() -> None:
    net = Net({JWKS: public(O1)})
    verifier = tokens(net)

    async def main() -> None:
        net.gate.clear()
        asking = [asyncio.ensure_future(verifier.ask(token(O1))) for _ in range(50)]
        await asyncio.sleep(0)
        net.gate.set()
        assert len({one.name for one in await asyncio.gather(*asking)}) == 1

    asyncio.run(main())
    assert net.asked == [JWKS]


def test_one_who_leaves_does_not_leave_the_others_waiting() -> None:
    net = Net({JWKS: public(O1)})
    verifier = tokens(net)

    async def main() -> None:
        net.gate.clear()
        first, second = (asyncio.ensure_future(verifier.ask(token(O1))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        net.gate.set()
        assert (await second).name == f"{NAME}#alice"

    asyncio.run(main())
    assert net.asked == [JWKS, JWKS]


def test_a_new_key_is_found_when_a_token_names_it() -> None:
    net, time = Net({JWKS: public(O1)}), Time()
    verifier = tokens(net, time=time)
    assert accepted(verifier, token(O1))
    net.pages[JWKS] = public(O2)
    assert not accepted(verifier, token(O2)), "not more often than every 30 seconds"
    assert len(net.asked) == 1
    time.s += PAUSE_S
    assert accepted(verifier, token(O2))
    assert len(net.asked) == 2
    time.s += KEPT_S
    assert not accepted(verifier, token(O1)), "and one that was withdrawn opens no more"


def test_names_nobody_knows_do_not_make_us_fetch() -> None:
    net, time = Net({JWKS: public(O1)}), Time()
    verifier = tokens(net, time=time)
    for number in range(100):
        assert not accepted(verifier, token(O1, kid=f"k{number}"))
        time.s += 0.5
    assert len(net.asked) == 2


def test_keys_are_looked_at_again_after_a_while() -> None:
    net, time = Net({JWKS: public(O1)}), Time()
    verifier = tokens(net, time=time)
    accepted(verifier, token(O1))
    time.s += FRESH_S - 1
    accepted(verifier, token(O1))
    assert len(net.asked) == 1
    time.s += 1
    accepted(verifier, token(R1))
    assert len(net.asked) == 2


@pytest.mark.parametrize(
    "page", [None, 500, 404, b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[7]}', b"\xff", DEEP]
)
def test_known_keys_stay_when_the_issuer_is_away(page: Any, caplog: pytest.LogCaptureFixture) -> None:
    net, time = Net({JWKS: public(O1)}), Time()
    verifier = tokens(net, time=time)
    accepted(verifier, token(O1))
    net.pages[JWKS] = page
    for _ in range(3):
        time.s += FRESH_S / 2
        assert accepted(verifier, token(O1))
    assert caplog.text.count("issuer.unreachable issuer='https://issuer.example'") == len(net.asked) - 1 > 0


def test_others_do_not_wait_for_a_second_look() -> None:
    net, time = Net({JWKS: public(O1)}), Time()
    verifier = tokens(net, time=time)

    async def main() -> None:
        await verifier.ask(token(O1))
        time.s += FRESH_S
        net.gate.clear()
        slow = asyncio.ensure_future(verifier.ask(token(O1)))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert (await verifier.ask(token(O1))).name == f"{NAME}#alice"
        net.gate.set()
        await slow

    asyncio.run(main())
    assert len(net.asked) == 2


def test_without_any_keys_the_answer_is_try_again() -> None:
    net, time = Net({}), Time()
    verifier = tokens(net, time=time)
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot be fetched now"):
            asyncio.run(verifier.ask(token(O1)))
    assert len(net.asked) == 1
    net.pages[JWKS] = public(O1)
    time.s += FIRST_PAUSE_S
    assert accepted(verifier, token(O1))


def test_discovery_finds_them() -> None:
    net = Net({DISCOVERY: found(), JWKS: public(O1)})
    assert accepted(tokens(net, issuer(jwks_url="")), token(O1))
    assert net.asked == [DISCOVERY, JWKS]


@pytest.mark.parametrize(
    "document",
    [
        found(name="https://evil.example"),
        found(name=NAME + "/"),
        found("http://issuer.example/keys"),
        found("file:///etc/keys"),
        b"{}",
        b"<html>",
    ],
)
def test_discovery_that_cannot_be_believed(document: bytes, caplog: pytest.LogCaptureFixture) -> None:
    net = Net({DISCOVERY: document, JWKS: public(O1), "http://issuer.example/keys": public(O1)})
    with pytest.raises(Unavailable):
        asyncio.run(tokens(net, issuer(jwks_url="")).ask(token(O1)))
    assert net.asked == [DISCOVERY]
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    "document",
    [
        public(O1, use="enc"),
        public(O1, kty="oct", k="AAAA"),
        public(O1, kty="XYZ"),
        public(O1, x=7),
        public(O1, crv="Nothing"),
        public(R1, n=None),
        public(RSAKey.import_key(R1.as_dict(private=False)), n="AQAB"),
        public(R1, n=7),
    ],
)
def test_keys_that_cannot_be_used_are_passed_by(document: bytes) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(tokens(Net({JWKS: document})).ask(token(O1)))
    merged = json.dumps({"keys": [*json.loads(document)["keys"], *json.loads(public(O2))["keys"]]}).encode()
    assert accepted(tokens(Net({JWKS: merged})), token(O2))


def test_two_keys_of_one_name_and_kind_are_none() -> None:
    twin = json.loads(public(O1))["keys"][0] | {"kid": "o2"}
    merged = json.dumps({"keys": [twin, *json.loads(public(O2))["keys"]]}).encode()
    assert not accepted(tokens(Net({JWKS: merged})), token(O2))
