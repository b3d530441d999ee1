"""JSON Web Tokens of the issuers that are set: who sends one, and what it may do.

Only what is set counts: the algorithms, the audience and where keys come from. What a token says
about its own keys (`jku`, `x5u`, `jwk`) is never looked at.
"""

from __future__ import annotations

import asyncio
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from joserfc.jws import JWSRegistry, deserialize_compact
from msgspec import Struct

from trunkline.auth.principal import SCOPES, Principal, Scope, check_tenant, scopes_of, with_included
from trunkline.config import Issuer
from trunkline.errors import Misuse, Unauthenticated, Unavailable, Unreachable
from trunkline.net.fetch import Fetcher
from trunkline.wire.card import BearerScheme, OpenIdScheme, Scheme

log = logging.getLogger("trunkline.auth")
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
LEEWAY_S = 30.0
# A verified token is believed for so long without another look, or until it ends: a key that its issuer
# has withdrawn must not open the door for days.
KEPT_S = 300.0
KEPT = 4096
LONGEST = 8192
_TYPES = {"jwt", "at+jwt", "application/jwt", "application/at+jwt"}
_SEGMENT = re.compile(rb"[A-Za-z0-9_-]+")
_LONGEST_OWNER = 256
_LATEST = 1e12
Claims = dict[str, object]
DISCOVERY = "/.well-known/openid-configuration"
# Keys are looked at again after this time, and when a token names one that is not known.
FRESH_S = 600.0
# But not more often than this, whatever tokens name; sooner while there are none at all.
PAUSE_S = 30.0
FIRST_PAUSE_S = 3.0
_MOST_KEYS = 100
_FEWEST_RSA_BYTES = 256
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class _Registry(JWSRegistry):
    """Lets a header be as long as a token may, and EdDSA be called by its old name, as most do."""

    max_header_length = LONGEST

    def get_alg(self, name: str):  # noqa: ANN201 - the library's own type
        """The algorithm; that it is one of ours was checked before."""
        return self.algorithms[name]


_REGISTRY = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


class _VerifiedToken(Struct, frozen=True, gc=False):
    until: float
    principal: Principal


class TokenVerifier:
    """Verifies tokens, and remembers for a while those that it has verified."""

    def __init__(
        self,
        issuers: Sequence[Issuer],
        fetcher: Fetcher,
        *,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """Take the issuers.

        Raises:
            Misuse: one of them is set in a way that cannot work or would not be safe.
        """
        self._now = now_ms
        self._trusted: dict[str, IssuerKeys] = {}
        for issuer in issuers:
            _check(issuer)
            if issuer.issuer in self._trusted:
                raise Misuse(f"issuers: {issuer.issuer} is there twice")
            self._trusted[issuer.issuer] = IssuerKeys(issuer, fetcher, clock)
        self._kept: dict[bytes, _VerifiedToken] = {}

    def known(self, token: bytes) -> Principal | None:
        """The principal of a token that was verified a moment ago, else None."""
        kept = self._kept.get(sha256(token).digest())
        return kept.principal if kept is not None and self._now() < kept.until * 1000 else None

    async def ask(self, token: bytes) -> Principal:
        """The principal of a token, verified with the keys of its issuer.

        Raises:
            Unauthenticated: it is not accepted; the text says why.
            Unavailable: the keys of its issuer cannot be fetched.
        """
        try:
            return await self._verified(token)
        except Unauthenticated as refused:
            log.info("token.refused reason=%a", refused.message)
            raise

    async def _verified(self, token: bytes) -> Principal:
        header, claims = _parsed(token)
        named = claims.get("iss")
        keys = self._trusted.get(named) if isinstance(named, str) else None
        if keys is None:
            raise _refusal("its issuer is not known here")
        issuer = keys.issuer
        algorithm, kid = _read_header(header, issuer)
        _check_signature(token, await keys.find(kid, algorithm))
        now = self._now() / 1000
        until = _check_times(claims, now)
        if issuer.audience not in _texts(claims.get("aud")):
            raise _refusal("it is for another audience")
        principal = Principal(issuer.tenant, _owner(claims, issuer), _scopes(claims, issuer))
        self._keep(sha256(token).digest(), _VerifiedToken(min(until, now + KEPT_S), principal), now)
        return principal

    def _keep(self, digest: bytes, kept: _VerifiedToken, now: float) -> None:
        if len(self._kept) >= KEPT:
            alive = {key: one for key, one in self._kept.items() if one.until > now}
            # A quarter goes at once, or each new token would cost a walk through all of them.
            self._kept = dict(islice(alive.items(), max(0, len(alive) - KEPT * 3 // 4), None))
        self._kept[digest] = kept

    def schemes(self) -> dict[str, Scheme]:
        """The security schemes by which the card names the issuers."""
        made: dict[str, Scheme] = {}
        for place, keys in enumerate(self._trusted.values()):
            issuer = keys.issuer
            number = str(place + 1) if len(self._trusted) > 1 else ""
            if issuer.jwks_url:
                text = f"A token of {issuer.issuer} for {issuer.audience}."
                made[f"jwt{number}"] = BearerScheme("JWT", text)
            else:
                text = f"A token for {issuer.audience}."
                made[f"openIdConnect{number}"] = OpenIdScheme(_discovery(issuer), text)
        return made


def _check(issuer: Issuer) -> None:
    """Whether an issuer can be used."""
    name = issuer.issuer
    if not name or not issuer.audience:
        raise Misuse("issuers: each needs an issuer and an audience")
    if "#" in name:
        # An owner is ISSUER#CLAIM: with two of these signs, it could be somebody of another issuer.
        raise Misuse(f"issuers: {name!r} cannot be an issuer: leave out the # and what follows")
    if not issuer.jwks_url and not name.startswith(("https://", "http://")):
        raise Misuse(f"issuers: {name!r} is no URL to find its keys by; give jwks_url")
    if issuer.jwks_url and not issuer.jwks_url.startswith(("https://", "http://")):
        raise Misuse(f"issuers: the jwks_url of {name} must begin with https:// or http://")
    if unfit := [each for each in issuer.algorithms if each not in ALGORITHMS]:
        raise Misuse(f"issuers: algorithm {unfit[0]!r} is not taken; choose {', '.join(sorted(ALGORITHMS))}")
    if not issuer.algorithms or not issuer.owner_claim:
        raise Misuse(f"issuers: {name} needs algorithms and an owner_claim")
    check_tenant(issuer.tenant)
    if unfit := [each for each in (*issuer.scopes, *issuer.default_scopes) if each not in SCOPES]:
        raise Misuse(f"issuers: there is no scope {unfit[0]!r}; choose {', '.join(SCOPES)}")


def _refusal(why: str) -> Unauthenticated:
    return Unauthenticated(f"the token is not accepted: {why}")


def _parsed(token: bytes) -> tuple[Claims, Claims]:
    """Header and claims, not yet believed."""
    parts = token.split(b".")
    if len(token) > LONGEST or len(parts) != 3 or not all(map(_SEGMENT.fullmatch, parts)):
        raise _refusal("it is no signed JWT")
    try:
        header, claims = (msgspec.json.decode(_decoded(part), type=Claims) for part in parts[:2])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _refusal("it is no signed JWT") from None
    return header, claims


def _read_header(header: Claims, issuer: Issuer) -> tuple[str, str | None]:
    """Algorithm and key id."""
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise _refusal("its algorithm is not taken")
    if "crit" in header or "b64" in header:
        raise _refusal("its header asks for what is not understood here")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise _refusal("it is no access token")
    if kid is not None and not isinstance(kid, str):
        raise _refusal("its key id is no text")
    return algorithm, kid


def _check_signature(token: bytes, key: Key) -> None:
    try:
        deserialize_compact(token, key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError):
        raise _refusal("its signature does not fit") from None


def _check_times(claims: Claims, now: float) -> float:
    """The times of a token; gives when it ends."""
    until = _seconds(claims, "exp")
    if until is None:
        raise _refusal("it has no exp")
    if now >= until + LEEWAY_S:
        raise _refusal("it has expired")
    for name in ("nbf", "iat"):
        since = _seconds(claims, name)
        if since is not None and since > now + LEEWAY_S:
            raise _refusal(f"its {name} is in the future")
    return until + LEEWAY_S


def _seconds(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LATEST < value < _LATEST:
        raise _refusal(f"its {name} is no time")
    return float(value)


def _owner(claims: Claims, issuer: Issuer) -> str:
    value = claims.get(issuer.owner_claim)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_OWNER or not value.isprintable():
        raise _refusal(f"its {issuer.owner_claim} names nobody")
    return f"{issuer.issuer}#{value}"


def _scopes(claims: Claims, issuer: Issuer) -> frozenset[Scope]:
    given = {word for name in ("scope", "scp") for text in _texts(claims.get(name)) for word in text.split()}
    named = scopes_of(given)
    # Others call scopes `admin` too: who runs one tenant's logins does not thereby run this server.
    return named & with_included(scopes_of(issuer.scopes)) if named else scopes_of(issuer.default_scopes)


def _texts(value: object) -> list[str]:
    """One text, or several."""
    several = cast("list[object]", value) if isinstance(value, list) else [value]
    return [each for each in several if isinstance(each, str)]


def _discovery(issuer: Issuer) -> str:
    return issuer.issuer.rstrip("/") + DISCOVERY


class _Discovered(Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _Jwks(Struct, frozen=True):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """The keys of an issuer; one fetch at a time, whoever asks."""

    def __init__(self, issuer: Issuer, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self.issuer = issuer
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
                log.warning("issuer.unreachable issuer=%a error=%a", self.issuer.issuer, str(error)[:200])
            except asyncio.CancelledError:
                # The caller left; the next one may try.
                self._tried_at = before
                raise

    async def _document(self) -> bytes:
        issuer = self.issuer
        url = issuer.jwks_url
        if not url:
            found = msgspec.json.decode(await self._get(_discovery(issuer)), type=_Discovered)
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


def _decoded(text: str | bytes) -> bytes:
    # Base64 in URLs goes without its padding; more than is needed is passed over.
    raw = text.encode() if isinstance(text, str) else text
    return urlsafe_b64decode(raw + b"==")
