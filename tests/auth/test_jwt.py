"""Tokens beside the hostile table: what is remembered and for how long, what issuers may be set to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.auth.issuing import JWKS, NAME, NOW_S, Net, Time, claims, issuer, key, public, token, tokens
from trunkline.auth import jwt
from trunkline.auth.jwt import KEPT_S, LEEWAY_S
from trunkline.errors import Misuse, Unauthenticated
from trunkline.wire.card import BearerScheme, OpenIdScheme

O1 = key("OKP", "o1")


def test_a_verified_token_is_known_until_it_ends() -> None:
    time = Time()
    verifier = tokens(Net({JWKS: public(O1)}), time=time)
    sent = token(O1, claims(exp=NOW_S + 60))
    who = asyncio.run(verifier.ask(sent))
    time.s += 60 + LEEWAY_S - 1
    assert verifier.known(sent) == who
    time.s += 1
    assert verifier.known(sent) is None
    with pytest.raises(Unauthenticated, match="expired"):
        asyncio.run(verifier.ask(sent))


def test_and_not_for_long() -> None:
    time = Time()
    verifier = tokens(Net({JWKS: public(O1)}), time=time)
    sent = token(O1, claims(exp=NOW_S + 10 * KEPT_S))
    asyncio.run(verifier.ask(sent))
    time.s += KEPT_S
    assert verifier.known(sent) is None
    asyncio.run(verifier.ask(sent))
    assert verifier.known(sent)


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt, "KEPT", 4)
    time = Time()
    verifier = tokens(Net({JWKS: public(O1)}), time=time)
    short = [token(O1, claims(sub=f"s{number}", exp=NOW_S + 1)) for number in range(2)]
    long = [token(O1, claims(sub=f"l{number}")) for number in range(6)]

    async def main() -> list[bool]:
        for sent in (*short, *long[:2]):
            await verifier.ask(sent)
        time.s += 1 + LEEWAY_S
        for sent in long[2:]:
            await verifier.ask(sent)
        return [verifier.known(sent) is not None for sent in long]

    # The two that were over made room first, then the oldest two.
    assert asyncio.run(main()) == [False, False, True, True, True, True]


def test_what_the_log_says_of_a_refusal_is_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    verifier = tokens(Net({JWKS: public(O1)}))
    sent = token(O1, claims(iss="https://evil.example/\nforged", sub="secret-name"))
    with pytest.raises(Unauthenticated):
        asyncio.run(verifier.ask(sent))
    assert "token.refused reason='the token is not accepted: its issuer is not known here'" in caplog.text
    assert "evil" not in caplog.text and "secret-name" not in caplog.text and sent.decode() not in caplog.text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"issuer": ""}, "an issuer and an audience"),
        ({"audience": ""}, "an issuer and an audience"),
        ({"issuer": "keycloak", "jwks_url": ""}, "'keycloak' is no URL to find its keys by; give jwks_url"),
        ({"jwks_url": "ftp://a.example/keys"}, "must begin with https:// or http://"),
        ({"algorithms": ("HS256",)}, "algorithm 'HS256' is not taken; choose ES256,"),
        ({"algorithms": ("EdDSA", "none")}, "algorithm 'none' is not taken"),
        ({"algorithms": ()}, "needs algorithms and an owner_claim"),
        ({"owner_claim": ""}, "needs algorithms and an owner_claim"),
        ({"tenant": "a/b"}, "cannot be a tenant"),
        ({"default_scopes": ("root",)}, "no scope 'root'; choose tasks:read,"),
        ({"scopes": ("tasks:read", "root")}, "no scope 'root'; choose tasks:read,"),
        ({"issuer": "https://a.example#b"}, "cannot be an issuer: leave out the #"),
    ],
)
def test_an_issuer_that_cannot_work(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        tokens(Net({}), issuer(**more))


def test_an_issuer_is_there_once() -> None:
    with pytest.raises(Misuse, match="is there twice"):
        tokens(Net({}), issuer(), issuer(audience="other"))


def test_the_card_says_whose_tokens() -> None:
    one = tokens(Net({}), issuer(jwks_url="")).schemes()
    assert one == {
        "openIdConnect": OpenIdScheme(
            f"{NAME}/.well-known/openid-configuration", "A token for https://agent.example."
        )
    }
    two = tokens(Net({}), issuer(), issuer(issuer="https://b.example/", jwks_url="")).schemes()
    assert list(two) == ["jwt1", "openIdConnect2"]
    assert isinstance(two["jwt1"], BearerScheme) and two["jwt1"].bearer_format == "JWT"
    second = two["openIdConnect2"]
    assert isinstance(second, OpenIdScheme)
    assert second.url == "https://b.example/.well-known/openid-configuration"
