"""Row 55: tokens that must not be believed, each wrong in one way, and those that must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.auth.issuing import (
    AUDIENCE,
    JWKS,
    NAME,
    NOW_S,
    Net,
    claims,
    encoded,
    issuer,
    key,
    public,
    token,
    tokens,
    with_mac,
)
from trunkline.auth.principal import Principal, Scope
from trunkline.errors import Unauthenticated

OTHER = "https://other.example"
OTHER_JWKS = "https://other.example/keys"
PLAIN = frozenset({Scope.READ, Scope.WRITE})

Make = Callable[[], bytes]


def rsa(kid: str = "r1") -> Any:
    return key("RSA", kid)


def ec(kid: str = "e1") -> Any:
    return key("EC", kid)


def okp(kid: str = "o1") -> Any:
    return key("OKP", kid)


def stranger() -> Any:
    """A key that nobody has published, under a name that somebody has."""
    made = key("OKP", "stranger")
    return type(made).import_key({**made.as_dict(private=True), "kid": "o1"})


def pem() -> bytes:
    return rsa().as_pem(private=False)


def said(**more: Any) -> Make:
    return lambda: token(okp(), claims(**more))


def headed(**header: Any) -> Make:
    return lambda: token(okp(), **header)


def cut(place: int) -> bytes:
    return token(okp())[:place]


def altered() -> bytes:
    head, _, signature = token(okp()).split(b".")
    return b".".join([head, encoded(claims(sub="mallory")), signature])


ATTACK: dict[str, tuple[Make, str]] = {
    "alg none, no signature": (lambda: encoded({"alg": "none"}) + b"." + encoded(claims()) + b".", "no signed JWT"),
    "alg none, some signature": (headed(alg="none"), "algorithm"),
    "alg None": (headed(alg="None"), "algorithm"),
    "alg nOnE": (headed(alg="nOnE"), "algorithm"),
    "no alg": (headed(alg=None), "algorithm"),
    "alg is a number": (headed(alg=7), "algorithm"),
    "alg is a list": (headed(alg=["EdDSA"]), "algorithm"),
    "alg is empty": (headed(alg=""), "algorithm"),
    "alg is unknown": (headed(alg="XX256"), "algorithm"),
    "HS256 with the public key as secret": (lambda: with_mac(pem(), kid="r1"), "algorithm"),
    "HS256 with the JWK as secret": (lambda: with_mac(json.dumps(rsa().as_dict()).encode(), kid="r1"), "algorithm"),
    "HS256 with nothing as secret": (lambda: with_mac(b"x", kid="r1"), "algorithm"),
    "RS256 claimed, HMAC made": (lambda: with_mac(pem(), alg="RS256", kid="r1"), "signature"),
    "RS384, which is not set": (lambda: token(rsa(), algorithm="RS384", alg="RS384"), "algorithm"),
    "ES256 claimed for an RSA key": (lambda: token(rsa(), alg="ES256"), "no such key"),
    "EdDSA claimed for an RSA key": (lambda: token(rsa(), alg="EdDSA"), "no such key"),
    "RS256 claimed for an Ed25519 key": (headed(alg="RS256"), "no such key"),
    "PS256 claimed, RS256 made": (lambda: token(rsa(), alg="PS256"), "signature"),
    "a key of another": (lambda: token(stranger()), "signature"),
    "claims altered": (altered, "signature"),
    "expired": (said(exp=NOW_S - 31), "expired"),
    "expired long ago": (said(exp=1), "expired"),
    "exp of zero": (said(exp=0), "expired"),
    "exp is negative": (said(exp=-1), "expired"),
    "no exp": (said(exp=None), "no exp"),
    "exp is a text": (said(exp=str(NOW_S + 60)), "exp is no time"),
    "exp is in no calendar": (said(exp=10**12), "exp is no time"),
    "nbf is before any": (said(nbf=-(10**12)), "nbf is no time"),
    "exp is true": (said(exp=True), "exp is no time"),
    "exp is a list": (said(exp=[NOW_S + 60]), "exp is no time"),
    "nbf in the future": (said(nbf=NOW_S + 31), "nbf is in the future"),
    "nbf is a text": (said(nbf="soon"), "nbf is no time"),
    "iat in the far future": (said(iat=NOW_S + 86400), "iat is in the future"),
    "another issuer": (said(iss="https://evil.example"), "issuer is not known"),
    "an issuer with a slash more": (said(iss=NAME + "/"), "issuer is not known"),
    "an issuer in capitals": (said(iss=NAME.upper()), "issuer is not known"),
    "no issuer": (said(iss=None), "issuer is not known"),
    "issuer is a list": (said(iss=[NAME]), "issuer is not known"),
    "another audience": (said(aud="https://bank.example"), "audience"),
    "part of the audience": (said(aud=AUDIENCE + "/x"), "audience"),
    "audiences without ours": (said(aud=["a", "b"]), "audience"),
    "no audience": (said(aud=None), "audience"),
    "audience is an object": (said(aud={"url": AUDIENCE}), "audience"),
    "no sub": (said(sub=None), "sub names nobody"),
    "sub is empty": (said(sub=""), "sub names nobody"),
    "sub is a number": (said(sub=7), "sub names nobody"),
    "sub with a line end": (said(sub="alice\nbob"), "sub names nobody"),
    "sub is long": (said(sub="x" * 257), "sub names nobody"),
    "unknown kid": (headed(kid="o9"), "no such key"),
    "kid is a path": (headed(kid="../../../../dev/null"), "no such key"),
    "kid is a URL": (headed(kid="https://evil.example/key"), "no such key"),
    "kid is SQL": (headed(kid="x' UNION SELECT 'key"), "no such key"),
    "kid is a number": (headed(kid=1), "key id is no text"),
    "kid is a list": (headed(kid=["o1"]), "key id is no text"),
    "no kid, and several keys fit": (lambda: token(rsa(), kid=None), "no such key"),
    "jku of another": (lambda: token(stranger(), jku="https://evil.example/jwks"), "signature"),
    "x5u of another": (lambda: token(stranger(), x5u="https://evil.example/chain"), "signature"),
    "jwk of another": (lambda: token(stranger(), jwk=key("OKP", "stranger").as_dict(private=False)), "signature"),
    "crit": (headed(crit=["exp"], exp=NOW_S), "not understood"),
    "b64 false": (headed(b64=False, crit=["b64"]), "not understood"),
    "an encrypted one": (lambda: b".".join([encoded({"alg": "dir"})] * 5), "no signed JWT"),
    "a logout token": (headed(typ="logout+jwt"), "no access token"),
    "typ is a list": (headed(typ=["JWT"]), "no access token"),
    "garbage": (lambda: b"ey.ey.ey", "no signed JWT"),
    "dots": (lambda: b"..", "no signed JWT"),
    "header is a list": (lambda: encoded([]) + b"." + encoded(claims()) + b".AA", "no signed JWT"),
    "claims are a text": (lambda: encoded({"alg": "EdDSA"}) + b"." + encoded(b'"x"') + b".AA", "no signed JWT"),
    "claims are deep": (lambda: encoded({"alg": "EdDSA"}) + b"." + encoded(b"[" * 4000) + b".AA", "no signed JWT"),
    "claims are no UTF-8": (lambda: encoded({"alg": "EdDSA"}) + b"." + encoded(b"\xff\xfe") + b".AA", "no signed JWT"),
    "padded": (lambda: token(okp()) + b"==", "no signed JWT"),
    "spaces inside": (lambda: token(okp()).replace(b".", b" .", 1), "no signed JWT"),
    "no signature": (lambda: token(okp()).rpartition(b".")[0] + b".", "no signed JWT"),
    "cut in the signature": (lambda: cut(-1), "signature"),
    "cut in half": (lambda: cut(len(token(okp())) // 2), "no signed JWT"),
    "four parts": (lambda: token(okp()) + b".AA", "no signed JWT"),
    "huge": (lambda: token(okp(), claims(pad="x" * 9000)), "no signed JWT"),
    "signed by the other issuer": (lambda: token(key("OKP", "x1")), "no such key"),
    "other issuer's, for our audience": (
        lambda: token(key("OKP", "x1"), claims(iss=OTHER)),
        "audience",
    ),
    "ours, in the other's name": (lambda: token(okp(), claims(iss=OTHER, aud="other")), "no such key"),
}  # fmt: skip

ALICE = Principal("default", f"{NAME}#alice", PLAIN)

GOOD: dict[str, tuple[Make, Principal]] = {
    "Ed25519": (lambda: token(okp()), ALICE),
    "RSA": (lambda: token(rsa()), ALICE),
    "RSA-PSS": (lambda: token(rsa(), algorithm="PS256", alg="PS256"), ALICE),
    "P-256": (lambda: token(ec()), ALICE),
    "no kid, and one key fits": (lambda: token(ec(), kid=None), ALICE),
    "our audience among others": (said(aud=["a", AUDIENCE]), ALICE),
    "within the leeway": (said(exp=NOW_S - 29, nbf=NOW_S + 29, iat=NOW_S + 29), ALICE),
    "no iat": (said(iat=None), ALICE),
    "times with a fraction": (said(exp=NOW_S + 0.5, iat=NOW_S - 0.5), ALICE),
    "an access token by name": (headed(typ="at+jwt"), ALICE),
    "no typ": (headed(typ=None), ALICE),
    "jku beside a known kid is not looked at": (headed(jku="https://evil.example/jwks"), ALICE),
    "scopes by scope": (
        said(scope="openid tasks:read email"),
        Principal("default", f"{NAME}#alice", frozenset({Scope.READ})),
    ),
    "scopes by scp": (
        said(scp=["admin", "metrics"]),
        Principal("default", f"{NAME}#alice", frozenset({Scope.ADMIN, Scope.METRICS})),
    ),
    "scopes that are none of ours": (said(scope="openid email"), ALICE),
    "the other issuer": (
        lambda: token(key("OKP", "x1"), claims(iss=OTHER, aud="other", email="a@b")),
        Principal("blue", f"{OTHER}#a@b", frozenset({Scope.READ})),
    ),
    "the other issuer makes no operators": (
        lambda: token(key("OKP", "x1"), claims(iss=OTHER, aud="other", email="a@b", scope="tasks:write admin")),
        Principal("blue", f"{OTHER}#a@b", frozenset({Scope.WRITE})),
    ),
    "nor does a scope that it cannot give become another": (
        lambda: token(key("OKP", "x1"), claims(iss=OTHER, aud="other", email="a@b", scope="admin metrics")),
        Principal("blue", f"{OTHER}#a@b", frozenset()),
    ),
}  # fmt: skip


def net() -> Net:
    return Net(
        {
            JWKS: public(rsa(), rsa("r2"), ec(), okp()),
            OTHER_JWKS: public(key("OKP", "x1")),
            # What a token names by itself is there, and would be believed by who fetched it.
            "https://evil.example/jwks": public(stranger()),
        }
    )


ISSUERS = (
    issuer(scopes=("tasks:read", "tasks:write", "metrics", "admin")),
    issuer(
        issuer=OTHER,
        audience="other",
        jwks_url=OTHER_JWKS,
        tenant="blue",
        owner_claim="email",
        default_scopes=("tasks:read",),
    ),
)


def test_there_are_enough() -> None:
    assert len(ATTACK) + len(GOOD) >= 40


@pytest.mark.parametrize("name", ATTACK)
def test_it_is_refused(name: str) -> None:
    make, words = ATTACK[name]
    world = net()
    verifier = tokens(world, *ISSUERS)
    sent = make()

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(Unauthenticated, match=words):
                await verifier.ask(sent)

    asyncio.run(main())
    assert verifier.known(sent) is None
    assert set(world.asked) <= {JWKS, OTHER_JWKS}, "nobody else is asked for keys"


@pytest.mark.parametrize("name", GOOD)
def test_it_is_accepted(name: str) -> None:
    make, who = GOOD[name]
    world = net()
    verifier = tokens(world, *ISSUERS)
    sent = make()
    assert verifier.known(sent) is None
    assert asyncio.run(verifier.ask(sent)) == who
    assert verifier.known(sent) == who
    assert len(world.asked) == 1


def test_numbers_beyond_all_bounds_are_no_times() -> None:
    for number in (b"1e999", b"-1e999", b"9" * 400):
        body = json.dumps(claims()).encode().replace(str(NOW_S + 3600).encode(), number)
        sent = token(okp(), body)
        with pytest.raises(Unauthenticated):
            asyncio.run(tokens(net()).ask(sent))
