"""Finds an agent's card, chooses how to speak to it, and thinks again when the card turns out to be wrong."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from trunkline.client.credentials import Auth, Guarded, describe_refusal
from trunkline.client.delegate import DelegateTransport
from trunkline.client.discovery import Discovery
from trunkline.client.options import Options, in_time
from trunkline.client.ranking import STRANGE, no_interface, probe, probes, rank
from trunkline.client.ranking import named as in_words
from trunkline.client.rest import RestTransport
from trunkline.client.rpc import JsonRpcTransport
from trunkline.client.transport import Call, Transport, TransportFactory
from trunkline.errors import (
    MethodNotFound,
    Misuse,
    PushNotSupported,
    Refused,
    RouteNotFound,
    TimedOut,
    TrunklineError,
    Unreachable,
    Unreadable,
    UnsupportedOperation,
    VersionNotSupported,
)
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient
from trunkline.wire.peer_card import Interface, PeerCard

log = logging.getLogger("trunkline.client")
# An operation that an agent need not have is missing too where another version is spoken.
_LACKS = (UnsupportedOperation, PushNotSupported)
TRANSPORTS: dict[str, TransportFactory] = {
    "JSONRPC": JsonRpcTransport,
    "HTTP+JSON": RestTransport,
    "DELEGATE": DelegateTransport,
}


# How long an agent that lacks a method is not asked for its card again because of that.
RENEW_S = 60.0


class Negotiation:
    """The card and the chosen transport of one agent."""

    def __init__(
        self,
        url: str,
        options: Options,
        http_client: HttpClient,
        auth: Auth | None = None,
        *,
        transports: Mapping[str, TransportFactory] | None = None,
        card: PeerCard | None = None,
    ) -> None:
        # The card as it was when the interface was chosen, or as it came last; None if there is none.
        self.known = card
        self.transport: Transport | None = None
        # Whether the chosen interface has ever answered as one; and whether it can tell of a task later.
        self.proven = False
        self.reads_tasks = True
        self._url = url
        self._options = options
        self._http_client = http_client if auth is None else Guarded(http_client, auth, url)
        self._discovery = Discovery(
            url, self._http_client, card_url=options.card_url, ttl_s=options.card_ttl_s
        )
        self._is_given = card is not None
        self._transports = {name.upper(): make for name, make in {**TRANSPORTS, **(transports or {})}.items()}
        for binding in options.bindings:
            # The protocol's third way may be preferred by who has another program, too.
            if binding.upper() not in (*self._transports, "GRPC"):
                spoken = ", ".join(self._transports)
                raise Misuse(f"bindings has {binding!r}; spoken here are {spoken} and what transports= adds")
        self._choosing = asyncio.Lock()
        # A client may live for months.
        self._told: deque[str] = deque(maxlen=50)
        self._notes: tuple[str, ...] = ()
        self._untried: list[Interface] = []
        # Those that were taken though they cannot read a task; each is taken once.
        self._spared: set[Interface] = set()
        self._chosen: Interface | None = None
        # When the card may be looked at again because a method is missing: some agents lack it for good.
        self._renewable_at = 0.0

    @property
    def version(self) -> str:
        """The version whose words the chosen interface takes; empty before one is chosen."""
        chosen = self._chosen
        return "" if chosen is None else chosen.words or chosen.version

    @property
    def explanation(self) -> tuple[str, ...]:
        """How the card was found and the interface chosen, line by line."""
        return (*self._discovery.explanation, *self._told)

    async def card(self, *, refresh: bool = False) -> PeerCard:
        """The card: the one that was given, or the agent's own, fetched if it must be."""
        if self.known is not None and self._is_given and not refresh:
            return self.known
        self.known = await self._discovery.card(refresh=refresh)
        return self.known

    async def open(self) -> Transport:
        """The chosen transport; many who ask at once wait for one choice."""
        if self.transport is None:
            async with self._choosing:
                if self.transport is None:
                    # Those who have no clock of their own wait no longer than for a call.
                    self.transport = await in_time(self._options.timeout_s, self._choose(), self._late)
        return self.transport

    async def understands(self) -> bool:
        """Whether the chosen interface answers as one; asked once, by a question that does no work."""
        if not self.proven and self.transport is not None:
            self.proven = await self._probe(self.transport) is None
        return self.proven

    async def reconsider(self, failed: Transport, error: TrunklineError) -> bool:
        """Choose another interface, as this one does not seem to be one; false if the error is the answer.

        Raises:
            RouteNotFound: there is none; the text says what was tried.
        """
        if (version := self._options.version) and isinstance(error, VersionNotSupported):
            wanted = f"version {version} is pinned; leave it out to have the agent's own"
            raise VersionNotSupported(f"{error.message}; {wanted}") from error
        if self.proven and isinstance(error, MethodNotFound | VersionNotSupported):
            return await self._renew(failed)
        # Garbage comes from places that the card names rightly, too: it is asked for again, not elsewhere.
        # What is too large has been made, and would be made once more elsewhere.
        is_large = isinstance(error, Unreachable) and error.reason == "size"
        strange = isinstance(error, (*STRANGE, *_LACKS))
        if self.proven or is_large or isinstance(error, Unreadable) or not strange:
            return False
        async with self._choosing:
            if self.transport is not failed:
                return True
            is_dead = isinstance(error, Unreachable)
            if not is_dead and await self.understands():
                return False
            attempts = [(self._chosen, str(error))] if self._chosen is not None else []
            lacks_method = isinstance(error, MethodNotFound)
            near = None if is_dead else self._chosen
            if await self._elsewhere(attempts, lacks_method=lacks_method, failed=near):
                return True
            if is_dead or isinstance(error, _LACKS):
                return False
            raise no_interface(self._url, attempts, self._notes) from error

    async def _renew(self, failed: Transport) -> bool:
        """Choose anew if the agent has become another one meanwhile, as its card then says."""
        async with self._choosing:
            if self.transport is not failed:
                return True
            now, before = asyncio.get_running_loop().time(), self.known
            if before is None or now < self._renewable_at:
                return False
            self._renewable_at = now + RENEW_S
            try:
                if (await self.card(refresh=True)).interfaces == before.interfaces:
                    return False
            except (Refused, Unreachable, Unreadable):
                return False
            self.proven = False
            self.transport = await self._choose()
            return True

    def describe_refusal(self, answer: str) -> str:
        """Return why the agent refused the caller, and which credentials it accepts; see `credentials`."""
        if isinstance(self._http_client, Guarded):
            return self._http_client.describe_refusal(self.known, answer)
        return describe_refusal(self.known, None, answer)

    def _late(self) -> TimedOut:
        within = f"within {self._options.timeout_s:g} seconds"
        return TimedOut(f"no way to speak to {shown(self._url)} was found {within}", reason="total")

    async def _choose(self) -> Transport:
        try:
            card = await self.card()
        except (RouteNotFound, Unreadable) as error:
            if isinstance(error, RouteNotFound) and error.missing:
                # The only card here describes another agent. Calling that one would do the wrong work.
                raise
            # Without a card an agent can still be spoken to, if it is where it seems to be.
            self._notes = (f"no card: {error}",)
            card = None
        if card is not None and isinstance(self._http_client, Guarded):
            self._http_client.fit(card)
        options = self._options
        candidates, notes = rank(
            card, self._url, version=options.version, bindings=options.bindings, adapters=self._transports
        )
        self._notes += tuple(notes)
        self._told.extend(self._notes)
        self._untried = [one.interface for one in candidates]
        if card is not None:
            return self._take(self._untried.pop(0), candidates[0].why)
        attempts: list[tuple[Interface, str]] = []
        found = await self._elsewhere(attempts, lacks_method=True)
        if found and self.transport is not None:
            return self.transport
        raise no_interface(self._url, attempts, self._notes)

    async def _elsewhere(
        self, attempts: list[tuple[Interface, str]], *, lacks_method: bool, failed: Interface | None = None
    ) -> bool:
        """Ask the other candidates if they understand, then what lies near one that failed; take the first.

        Where a method was missing, and none of them can read a task, one that knows no such method is taken.
        """
        more = () if failed is None else probes(self._url, failed, version=self._options.version)
        tried = {interface for interface, _ in attempts}
        spare: Interface | None = None
        for interface in (*self._untried, *more):
            if interface in tried:
                continue
            tried.add(interface)
            got = await self._probe(self._made(interface))
            if got is None:
                self._take(interface, "it understood")
                self.proven = True
                return True
            if isinstance(got, MethodNotFound) and interface not in self._spared:
                spare = spare or interface
            attempts.append((interface, str(got) or type(got).__name__))
            self._told.append(f"{in_words(interface)}: {attempts[-1][1]}")
        if spare is None or not lacks_method:
            return False
        # Somebody speaks JSON-RPC there and may have nothing but the method that is wanted.
        self._spared.add(spare)
        self._take(spare, "it understood, and has no method to read a task")
        return True

    async def _probe(self, transport: Transport) -> TrunklineError | None:
        return await probe(transport, Call(idle_s=self._options.idle_s))

    def _take(self, interface: Interface, why: str) -> Transport:
        if self._chosen is not None:
            log.warning("client.interface_changed from=%a to=%a", in_words(self._chosen), in_words(interface))
        self._chosen, self.reads_tasks = interface, True
        self.transport = self._made(interface)
        self._told.append(f"{self.transport.name}: chosen, as {why}")
        return self.transport

    def _made(self, interface: Interface) -> Transport:
        return self._transports[interface.binding.upper()](interface, self._http_client)
