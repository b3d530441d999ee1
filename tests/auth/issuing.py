"""An issuer for tests: real keys, real tokens, and a fetcher that counts what is fetched."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from msgspec import Struct

from trunkline.auth.jwt import TokenVerifier
from trunkline.config import Issuer
from trunkline.errors import Unreachable

NAME = "https://issuer.example"
JWKS = "https://issuer.example/keys"
AUDIENCE = "https://agent.example"
NOW_S = 1_800_000_000


@cache
def key(kind: str, kid: str) -> Key:
    """A key pair by what it is for and its id, made once per process."""
    parameters: Any = {"kid": kid, "use": "sig"}
    match kind:
        case "RSA":
            return RSAKey.generate_key(2048, parameters)
        case "EC":
            return ECKey.generate_key("P-256", parameters)
        case _:
            return OKPKey.generate_key("Ed25519", parameters)


def public(*keys: Key, **more: Any) -> bytes:
    """A JWKS document."""
    return json.dumps({"keys": [{**each.as_dict(private=False), **more} for each in keys]}).encode()


def encoded(value: Any) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(raw).rstrip(b"=")


def claims(**more: Any) -> dict[str, Any]:
    """Claims that are right, but for what is said here; None leaves one out."""
    plain = {"iss": NAME, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 3600}
    return {name: value for name, value in {**plain, **more}.items() if value is not None}


def token(by: Key, said: Any = None, *, algorithm: str = "", **header: Any) -> bytes:
    """A signed token; the header may say what it likes, the signature is by the algorithm's own rules."""
    own = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[by.key_type]
    head = {"alg": own, "typ": "JWT", "kid": by.kid, **header}
    signed = encoded({name: value for name, value in head.items() if value is not None})
    signed += b"." + encoded(claims() if said is None else said)
    return signed + b"." + encoded(JWSRegistry.algorithms[algorithm or own].sign(signed, by))


def with_mac(secret: bytes, said: Any = None, **header: Any) -> bytes:
    """A token that is signed with a shared secret, such as a public key that everybody knows."""
    signed = encoded({"alg": "HS256", "typ": "JWT", **header}) + b"." + encoded(said or claims())
    return signed + b"." + encoded(hmac.digest(secret, signed, sha256))


class Page(Struct):
    status: int
    body: bytes


class Net:
    """Pages by address; None does not answer."""

    def __init__(self, pages: dict[str, bytes | int | None]) -> None:
        self.pages = pages
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, url: str) -> Page:
        self.asked.append(url)
        await self.gate.wait()
        page = self.pages.get(url)
        if page is None:
            raise Unreachable(f"{url} does not answer", reason="connect")
        return Page(page, b"") if isinstance(page, int) else Page(200, page)


class Time:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.s = float(NOW_S)

    def ms(self) -> int:
        return round(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


def issuer(**more: Any) -> Issuer:
    return Issuer(**{"issuer": NAME, "audience": AUDIENCE, "jwks_url": JWKS, **more})


def tokens(net: Net, *issuers: Issuer, time: Time | None = None) -> TokenVerifier:
    clock = time or Time()
    return TokenVerifier(issuers or (issuer(),), net, now_ms=clock.ms, clock=clock.monotonic)


Ask = Callable[[bytes], Any]
