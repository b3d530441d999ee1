"""Cards: both well-known paths, both shapes, by the address they are asked at; with ETag."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from trunkline import errors
from trunkline.config import Settings
from trunkline.server.exchange import JSON, Exchange, query, text
from trunkline.server.guard import is_loopback
from trunkline.wire.card import ApiKeyScheme, BearerScheme, Card, Scheme, card_hybrid, card_v1, check_card
from trunkline.wire.versions import Version, negotiate

SCHEMES: dict[str, Scheme] = {
    "apiKey": ApiKeyScheme("X-API-Key", "A key of this agent."),
    "bearer": BearerScheme(description="The same key as a bearer token."),
}
_KEPT = 64


class _Made(Struct, frozen=True):
    body: bytes
    etag: bytes


class Cards:
    """An agent's card, made once per address and shape."""

    def __init__(self, card: Card, settings: Settings) -> None:
        """Take the card.

        Raises:
            Misuse: a name on it holds control characters.
        """
        check_card(card)
        # Both schemes take the same key, either alone opens the door.
        self._card = (
            replace(card, schemes=SCHEMES, requirements=(("apiKey",), ("bearer",))) if settings.keys else card
        )
        self._settings = settings
        self._made: dict[tuple[str, bool], _Made] = {}

    async def answer(self, exchange: Exchange) -> None:
        """Serve the card.

        Raises:
            RouteNotFound: the verb is neither GET nor HEAD.
        """
        if exchange.method not in ("GET", "HEAD"):
            raise errors.RouteNotFound("the card takes GET only", allow="GET, HEAD")
        made = self._make(self.base_url(exchange), pure=_asked(exchange) is Version.V1)
        headers = [
            (b"etag", made.etag),
            (b"cache-control", b"public, max-age=60"),
            (b"vary", b"A2A-Version"),
        ]
        known = exchange.headers.get(b"if-none-match", b"")
        if made.etag in known or known == b"*":
            await exchange.respond(304, b"", headers=headers)
        else:
            await exchange.respond(200, made.body, JSON, headers)

    def _make(self, base: str, *, pure: bool) -> _Made:
        key = (base, pure)
        made = self._made.get(key)
        if made is None:
            card = replace(self._card, rpc_url=f"{base}/a2a", rest_url=base)
            body = card_v1(card) if pure else card_hybrid(card)
            made = _Made(body, b'"%b"' % blake2b(body, digest_size=12).hexdigest().encode())
            # The base may come from a Host header: what a stranger can vary is bounded.
            if len(self._made) < _KEPT:
                self._made[key] = made
        return made

    def base_url(self, exchange: Exchange) -> str:
        """The address callers should use: the setting, a trusted proxy's word, or where they came in."""
        settings = self._settings
        if settings.public_url:
            return settings.public_url.rstrip("/")
        headers = exchange.headers
        if settings.trust_forwarded and b"x-forwarded-host" in headers:
            scheme = headers.get(b"x-forwarded-proto", b"https").decode("latin-1")
            prefix = headers.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
            return f"{scheme}://{headers[b'x-forwarded-host'].decode('latin-1')}{prefix}{exchange.base}"
        scheme, host, port = exchange.address()
        if is_loopback(host):
            shown = f"[{host}]" if ":" in host else host
            place = f"{shown}:{port}" if port is not None else shown
        else:
            place = (text(exchange, b"host") or "").strip()
        return f"{scheme}://{place}{exchange.base}"


def _asked(exchange: Exchange) -> Version | None:
    try:
        return negotiate(text(exchange, b"a2a-version"), query(exchange).get("A2A-Version"))
    except errors.VersionNotSupported:
        # The card is how a caller learns which versions are spoken here.
        return None
