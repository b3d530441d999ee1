"""Cards: both well-known paths, both shapes, by the address they are asked at; with ETag.

Callers who have said who they are may ask for the extended card, which also lists the skills that the
public one leaves out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from hashlib import blake2b

from msgspec.structs import replace

from trunkline import errors
from trunkline.auth.identity import Identity
from trunkline.config import Settings
from trunkline.http.exchange import JSON, Exchange, Headers, read_query, text
from trunkline.http.host_check import LOOPBACK, HostCheck, host_name, spelled
from trunkline.wire.card import Card, Extension, card_hybrid, card_v1, check_card
from trunkline.wire.service_parameters import Version, negotiate
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
_KEPT = 64
# Beside the address of JSON-RPC: some clients look there, and nowhere else.
CARD_BESIDE = "/a2a/agent-card.json"
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PREFIX = re.compile(r"|/[A-Za-z0-9._~%-][A-Za-z0-9._~%/-]*")


class Cards:
    """An agent's card, made once per address and shape."""

    def __init__(
        self,
        card: Card,
        settings: Settings,
        identity: Identity,
        hosts: HostCheck,
        private: Collection[str] = (),
    ) -> None:
        """Take the card, and the ids of the skills that only the extended one lists.

        Raises:
            Misuse: a name on it holds control characters.
        """
        self._settings = settings
        self._identity = identity
        self._hosts = hosts
        self._said = False
        # Makes the card that is to be shown from the next reader on.
        self._next: Callable[[], Card] | None = None
        self.show(card, private)

    def show(self, card: Card, private: Collection[str] = (), *, extends: bool = False) -> None:
        """Show this card from now on; it `extends` where who is let in is shown another one by somebody else.

        Raises:
            Misuse: a name on it holds control characters; the one before is shown on.
        """
        check_card(card)
        self._whole = card
        self._public = _without(card, private)
        self._has_private = bool(private) or extends
        self.extensions = frozenset(one.uri for one in card.extensions)
        self._made: dict[tuple[str, bool, bool, tuple[str, ...]], bytes] = {}

    def show_next(self, make: Callable[[], Card]) -> None:
        """Show the card that this makes for the next reader: much may change before somebody looks."""
        self._next = make

    @property
    def public(self) -> Card:
        """The card for everybody."""
        if self._next is not None:
            make, self._next = self._next, None
            try:
                self.show(make())
            except errors.Misuse as error:
                log.error("card.unshown error=%a", str(error))
        return self._public

    async def answer(self, exchange: Exchange, *, keyed: bool | None = None) -> None:
        """Serve the card; with `keyed` said, it is that of who showed a key, or of who did not.

        Raises:
            RouteNotFound: the verb is neither GET nor HEAD.
        """
        if exchange.method not in ("GET", "HEAD"):
            raise errors.RouteNotFound("the card takes GET only", allow="GET, HEAD")
        # Who looks beside the interface names 1.0 and reads 0.3; the card for both has what it needs.
        pure = _asked(exchange) is Version.V1 and exchange.path != CARD_BESIDE
        keys = b"" if keyed is None else b", Authorization, X-API-Key, Cookie"
        body = self._make(exchange, pure=pure, extended=False)
        await respond(exchange, body, [(b"vary", b"A2A-Version, Host" + keys)], private=bool(keyed))

    def whole(self, exchange: Exchange, *, pure: bool) -> bytes:
        """The card with everything that is on it."""
        return self._make(exchange, pure=pure, extended=True)

    def extended(self, exchange: Exchange, *, pure: bool) -> bytes | None:
        """The card for who is let in; None while everybody is, or where all there is to say is public."""
        declared = self._has_private and self._identity.enforced
        return self._make(exchange, pure=pure, extended=True) if declared else None

    def _make(self, exchange: Exchange, *, pure: bool, extended: bool) -> bytes:
        base, schemes, public = self.base_url(exchange), self._identity.schemes(), self.public
        key = (base, pure, extended, tuple(schemes))
        made = self._made.get(key)
        if made is None:
            card = replace(
                self._whole if extended else public,
                rpc_url=f"{base}/a2a",
                rest_url=base,
                extended_card=self._has_private and bool(schemes),
                schemes=schemes,
                # Any one of them opens the door.
                requirements=tuple((name,) for name in schemes),
            )
            made = card_v1(card) if pure else card_hybrid(card)
            # The base may come from a Host header: what a stranger can vary is bounded.
            if len(self._made) < _KEPT:
                self._made[key] = made
        return made

    def base_url(self, exchange: Exchange) -> str:
        """The address for callers: the setting, a trusted proxy's word, a known Host, or where they came."""
        settings = self._settings
        if settings.public_url:
            return settings.public_url.rstrip("/") + exchange.prefix
        forwarded = self._forwarded(exchange) if settings.trust_forwarded else ""
        if forwarded:
            return f"{forwarded}{exchange.base}{exchange.prefix}"
        scheme, host, port = exchange.address()
        place, own = (text(exchange, b"host") or "").strip().lower(), spelled(host)
        # Any other name may be a caller's invention, and a cache might give the card to somebody else.
        known = host_name(place) in (*LOOPBACK, own) or self._hosts.lists(place)
        if not known or _HOST.fullmatch(place) is None:
            place = own if port is None else f"{own}:{port}"
        return f"{scheme}://{place}{exchange.base}{exchange.prefix}"

    def _forwarded(self, exchange: Exchange) -> str:
        """The address in a proxy's headers; nothing if they are not what a proxy writes, or name a stranger.

        Not every proxy takes away what a caller has sent of them, and a cache may give the answer to others:
        with `@evil.example` for a prefix, the whole address would lead there.
        """
        host, scheme, prefix = (
            (text(exchange, b"x-forwarded-" + name) or "").rpartition(",")[2].strip()
            for name in (b"host", b"proto", b"prefix")
        )
        prefix = prefix.rstrip("/")
        if not (_HOST.fullmatch(host) and _PREFIX.fullmatch(prefix) and scheme in ("", "http", "https")):
            return ""
        if not self._hosts.lists(host):
            if not self._said:
                # Once: anybody can send the header.
                self._said = True
                log.warning("card.forwarded_host_ignored host=%a fix=allowed_hosts", host[:64])
            return ""
        return f"{scheme or 'https'}://{host}{prefix}"


def no_extended_card(dialect: Dialect) -> errors.Refused:
    """The refusal of an extended card where there is none; each version has its own code for it."""
    said = "this agent has no extended card; its card says so"
    if dialect is Dialect.V1:
        return errors.UnsupportedOperation(said)
    return errors.ExtendedCardNotConfigured(said)


async def respond(exchange: Exchange, body: bytes, more: Headers = (), *, private: bool = False) -> None:
    """Serve a document that changes seldom, or say that the reader has it already."""
    etag = b'"%b"' % blake2b(body, digest_size=12).hexdigest().encode()
    cached = b"private, max-age=60" if private else b"public, max-age=60"
    headers = [(b"etag", etag), (b"cache-control", cached), *more]
    known = exchange.headers.get(b"if-none-match", b"")
    if etag in known or known == b"*":
        await exchange.respond(304, b"", headers=headers)
    else:
        await exchange.respond(200, body, JSON, headers)


def _without(card: Card, private: Collection[str]) -> Card:
    """The card without these skills, also where extensions speak of them."""
    if not private:
        return card
    skills = tuple(skill for skill in card.skills if skill.id not in private)
    extensions = tuple(_silent_on(private, one) for one in card.extensions)
    return replace(card, skills=skills, extensions=extensions)


def _silent_on(private: Collection[str], extension: Extension) -> Extension:
    """An extension that does not speak of these skills."""
    params = extension.params
    if not params or "skills" not in params:
        return extension
    skills = {name: said for name, said in params["skills"].items() if name not in private}
    return replace(extension, params={**params, "skills": skills})


def _asked(exchange: Exchange) -> Version | None:
    try:
        return negotiate(text(exchange, b"a2a-version"), read_query(exchange.query_string).get("A2A-Version"))
    except errors.VersionNotSupported:
        # The card is how a caller learns which versions are spoken here.
        return None
