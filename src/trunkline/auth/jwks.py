"""The public keys of one issuer: found, fetched through the egress guard, kept while it cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from msgspec import Struct

from trunkline.config import Issuer
from trunkline.errors import Unauthenticated, Unavailable, Unreachable
from trunkline.net.fetch import Fetcher

log = logging.getLogger("trunkline.auth")
DISCOVERY = "/.well-known/openid-configuration"
# Keys are looked at again after this time, and when a token names one that is not known.
FRESH_S = 600.0
# But not more often than this, whatever tokens name; sooner while there are none at all.
PAUSE_S = 30.0
FIRST_PAUSE_S = 3.0
_MOST_KEYS = 100
_FEWEST_RSA_BYTES = 256
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class _Discovered(Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _Jwks(Struct, frozen=True):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """The keys of an issuer; one fetch at a time, whoever asks."""

    def __init__(self, issuer: Issuer, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._fetcher = fetcher
        self._clock = clock
        self._keys: list[Key] = []
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> Key:
        """The key that a token names.

        Raises:
            Unauthenticated: the issuer has no such key.
            Unavailable: its keys cannot be fetched, and none are known.
        """
        stale = self._clock() >= self._fetched_at + FRESH_S
        # Who finds somebody at it already makes do with the old ones.
        if stale and not (self._keys and self._lock.locked()):
            await self._renew()
        found = self._pick(kid, algorithm)
        if found is None:
            await self._renew()
            found = self._pick(kid, algorithm)
        if found is not None:
            return found
        if not self._keys:
            raise Unavailable("the keys of the token's issuer cannot be fetched now; try again")
        raise Unauthenticated("the token is not accepted: its issuer has no such key")

    def _pick(self, kid: str | None, algorithm: str) -> Key | None:
        kind = _KINDS[algorithm[:2]]
        fitting = [key for key in self._keys if key.key_type == kind]
        if kid is not None:
            fitting = [key for key in fitting if key.kid == kid]
        # Several keys of one name, or no name and several keys: no guessing.
        return fitting[0] if len(fitting) == 1 else None

    async def _renew(self) -> None:
        """Fetch the keys, unless that was tried a moment ago."""
        asked = self._clock()
        async with self._lock:
            now, before = self._clock(), self._tried_at
            if before >= asked or now < before + (PAUSE_S if self._keys else FIRST_PAUSE_S):
                return
            self._tried_at = now
            try:
                self._keys = _read(await self._document())
                self._fetched_at = now
            except (Unreachable, msgspec.MsgspecError, ValueError, RecursionError) as error:
                log.warning("issuer.unreachable issuer=%a error=%a", self._issuer.issuer, str(error)[:200])
            except asyncio.CancelledError:
                # The caller left; the next one may try.
                self._tried_at = before
                raise

    async def _document(self) -> bytes:
        issuer = self._issuer
        url = issuer.jwks_url
        if not url:
            place = issuer.issuer.rstrip("/") + DISCOVERY
            found = msgspec.json.decode(await self._get(place), type=_Discovered)
            if found.issuer != issuer.issuer:
                raise ValueError("its discovery document names another issuer")
            url = found.jwks_uri
            if urlsplit(url).scheme != urlsplit(issuer.issuer).scheme:
                raise ValueError("its discovery document names keys by another scheme")
        return await self._get(url)

    async def _get(self, url: str) -> bytes:
        page = await self._fetcher.get(url)
        if page.status != 200:
            raise ValueError(f"{urlsplit(url).hostname} answered {page.status}")
        return page.body


def _read(document: bytes) -> list[Key]:
    found = [_key(each) for each in msgspec.json.decode(document, type=_Jwks).keys[:_MOST_KEYS]]
    keys = [key for key in found if key is not None]
    if not keys:
        raise ValueError("it has no key that can be used")
    return keys


def _key(given: dict[str, Any]) -> Key | None:
    """A key for signatures that is strong enough; others are passed by."""
    kind = given.get("kty")
    if kind not in ("RSA", "EC", "OKP") or given.get("use", "sig") != "sig":
        return None
    try:
        if kind == "RSA" and len(_decoded(given["n"]).lstrip(b"\0")) < _FEWEST_RSA_BYTES:
            return None
        return JWKRegistry.import_key(given)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
