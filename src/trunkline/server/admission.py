"""The one place that lets a request in: Host and Origin, going down, who asks, and how much of it.

All of it comes before a body is read. Wrong keys and tokens are bounded: of one address, and of all together.
Whoever has none left is refused before its key is looked at, so that nobody guesses any further. A key that
is right, from an address that sent no wrong one of late, is always let in: a stranger locks out nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from math import ceil

from trunkline.auth.browser_sessions import session_cookie
from trunkline.auth.identity import UNKNOWN, Identity
from trunkline.auth.principal import ANONYMOUS, Principal
from trunkline.config import Settings
from trunkline.errors import TooManyRequests, Unauthenticated, Unavailable
from trunkline.http.exchange import Exchange
from trunkline.http.host_check import HostCheck
from trunkline.net.egress import judge
from trunkline.run.limits import CallerKey, Quota
from trunkline.server.refusals import Refusals
from trunkline.server.rpc import check_media_type
from trunkline.server.streams import Streams
from trunkline.telemetry.traces import TraceSeen

log = logging.getLogger("trunkline.server")
_LONGEST_PLACE = 64
_SAY_S = 1.0
# A body that is here after so long was here when its request was let in.
_AT_ONCE_S = 0.01
# A second, and together after a pause. People mistype keys, and programs that have an old one try it again.
PER_PLACE, PLACE_BURST = 1.0, 1000
IN_ALL, ALL_BURST = 20.0, 5000
_ALL = ("", "", "")


class Admission:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        host_check: HostCheck,
        identity: Identity,
        streams: Streams,
        quota: Quota | None,
        settings: Settings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._host_check = host_check
        self.identity = identity
        self.refusals = Refusals(identity)
        self._streams = streams
        self._quota = quota
        self._clock = clock
        self._trusts = settings.trust_forwarded
        # The most bytes of a body, and how many seconds it may take.
        self.body_limits = settings.body_limit, settings.body_timeout
        self._failed = FailedAttempts(clock)
        # Refuses work of a tenant and a principal that is known to have nothing left, before it is read.
        self.check_work: Callable[[str, str], None] = lambda tenant, principal: None
        self._said_at = float("-inf")
        self._refused = 0

    def check(self, exchange: Exchange) -> None:
        """What is asked of everybody, also for what needs no key.

        Raises:
            Forbidden: the Host or the Origin is not let in.
        """
        self._host_check.check(exchange.headers)

    def public(
        self, operation: str, handler: Callable[[Exchange], Awaitable[None]]
    ) -> Callable[[Exchange, TraceSeen], Awaitable[None]]:
        """A handler of what needs no key, as one that answers whoever passes `check`."""

        async def checked(exchange: Exchange, seen: TraceSeen) -> None:
            del seen
            self.check(exchange)
            await handler(exchange)

        return self.refusals.guard(operation, checked)

    async def admit(self, exchange: Exchange, seen: TraceSeen) -> Principal:
        """Who asks, if it may; what it holds is given back by `leave`. See `enter`."""
        principal = self.enter(exchange, seen)
        return await self.ask(exchange, seen) if principal is None else principal

    def admit_anyone(self, exchange: Exchange, seen: TraceSeen) -> Principal:
        """Let anybody in where no key is needed; Host, Origin, the end of the server and rates count."""
        self._check_open(exchange)
        return self._take(ANONYMOUS, exchange, seen)

    def check_own(self, exchange: Exchange) -> None:
        """What is asked of requests that a browser sends with cookies.

        Raises:
            Forbidden: the Host is not let in, or no page of this server has sent it.
        """
        self._host_check.check(exchange.headers)
        self._host_check.check_own(exchange.method, exchange.headers)

    def _check_open(self, exchange: Exchange) -> None:
        headers = exchange.headers
        self._host_check.check(headers)
        if b"cookie" in headers and not _shows_key(headers) and session_cookie(headers):
            self._host_check.check_own(exchange.method, headers)
        if self._streams.closing:
            raise Unavailable("the server is going down; nothing was recorded, try again")

    def enter(self, exchange: Exchange, seen: TraceSeen) -> Principal | None:
        """The same without waiting, as nearly everybody is known at once; None means: `ask`.

        Raises:
            Forbidden: the Host or the Origin is not let in.
            Unavailable: the server is going down.
            Unauthenticated: nobody we know.
            TooManyRequests: the caller is over its rate, has too much in flight, or sent too many wrong keys.
        """
        self._check_open(exchange)
        if _shows_key(exchange.headers) and self._failed and self._is_caller(exchange):
            self._failed.check(self._place(exchange))
        try:
            principal = self.identity.known(exchange.headers)
        except Unauthenticated:
            self._count_failure(exchange)
            raise
        return None if principal is None else self._take(principal, exchange, seen)

    async def ask(self, exchange: Exchange, seen: TraceSeen) -> Principal:
        """The principal of a request, where somebody else has to be asked for it."""
        try:
            principal = await self.identity.ask(exchange.headers)
        except Unauthenticated:
            self._count_failure(exchange)
            raise
        return self._take(principal, exchange, seen)

    def _count_failure(self, exchange: Exchange) -> None:
        if not _shows_key(exchange.headers):
            return
        place = self._place(exchange)
        try:
            self._failed.count(place)
        except TooManyRequests:
            self._say(("", "", place))
            raise

    def _is_caller(self, exchange: Exchange) -> bool:
        """Whether the address is the caller's own, so that nobody else is refused with it.

        Behind a proxy whose word is not trusted everybody has the proxy's address.
        """
        proxied = b"x-forwarded-for" in exchange.headers or b"forwarded" in exchange.headers
        return self._trusts or not proxied or not judge(self._place(exchange))

    def lasting(self, exchange: Exchange) -> Callable[[], bool] | None:
        """A question for later: whether who was let in still would be."""
        return self.identity.lasting(exchange.headers)

    def _take(self, principal: Principal, exchange: Exchange, seen: TraceSeen) -> Principal:
        seen.tenant = principal.tenant
        # Those without a name share one; told apart by where they are, none of them can lock out the others.
        place = self._place(exchange) if principal is ANONYMOUS else ""
        caller = exchange.reader = (principal.tenant, principal.name, place)
        if self._quota is not None:
            try:
                self._quota.enter(caller)
            except TooManyRequests:
                self._say(caller)
                raise
            seen.holds = caller
        return principal

    def _place(self, exchange: Exchange) -> str:
        if self._trusts and (hops := exchange.headers.get(b"x-forwarded-for")) is not None:
            # The last one was written by the proxy that we trust; those before it by anybody.
            return _network(hops.rpartition(b",")[2].strip()[:_LONGEST_PLACE].decode("latin-1"))
        return _network(exchange.peer())

    def _say(self, caller: CallerKey) -> None:
        # A flood of requests is not to become a flood of lines.
        self._refused += 1
        now = self._clock()
        if now - self._said_at >= _SAY_S:
            tenant, name, place = caller
            log.warning(
                "caller.limited tenant=%a caller=%a place=%a refused=%d", tenant, name, place, self._refused
            )
            self._said_at, self._refused = now, 0

    async def read_body(
        self, exchange: Exchange, principal: Principal | None, limit: int | None = None
    ) -> bytes:
        """The body of a request that was let in as one of this principal's; None is anybody's.

        Who takes its time to send it is asked for again: else a key would go on, by requests that were begun
        before it was revoked.

        Raises:
            Unauthenticated: its key has ended meanwhile, or may do less.
        """
        began = self._clock()
        body = await exchange.body(self.body_limits[0] if limit is None else limit, self.body_limits[1])
        if principal is not None and self._clock() - began > _AT_ONCE_S:
            # A token that was verified before may have ended too, or its tenant be let in no longer.
            if not principal.lasts_in(await self.identity.ask(exchange.headers)):
                raise Unauthenticated(UNKNOWN)
        return body

    async def read_json(self, exchange: Exchange, principal: Principal | None) -> bytes:
        """The body of a request that says it is JSON; nothing where the method has none. See `read_body`."""
        if exchange.method in ("GET", "HEAD", "DELETE"):
            return b""
        body = await self.read_body(exchange, principal)
        if body:
            check_media_type(exchange)
        return body

    def leave(self, seen: TraceSeen) -> None:
        """A request is over, with its stream if it had one."""
        if seen.holds is not None and self._quota is not None:
            self._quota.leave(seen.holds)
            seen.holds = None


def _shows_key(headers: Mapping[bytes, bytes]) -> bool:
    """Whether somebody says who it is; who says nothing is told what is needed, and guesses nothing."""
    return b"x-api-key" in headers or b"authorization" in headers


@lru_cache(4096)
def _network(place: str) -> str:
    """An address as somebody holds it: of version 6 everybody has 2**64 of them."""
    if ":" not in place:
        return place
    if place.startswith("["):
        place = place[1:].partition("]")[0]
    elif place.count(":") == 1:
        # Some proxies write the port as well.
        return place.partition(":")[0]
    try:
        address = IPv6Address(place.partition("%")[0])
    except ValueError:
        return place
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(IPv6Address(int(address) >> 64 << 64))


class FailedAttempts:
    """Counts wrong keys by the address they come from. Each process counts for itself."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._of_place = Quota(PER_PLACE, PLACE_BURST, 0, clock)
        self._of_all = Quota(IN_ALL, ALL_BURST, 0, clock)

    def __bool__(self) -> bool:
        return bool(self._of_place)

    def check(self, place: str) -> None:
        """Whether a key from here may be looked at.

        Raises:
            TooManyRequests: too many were wrong: of here, or of all and some of them of here.
        """
        caller = ("", "", place)
        wait_s = self._of_place.wait_s(caller)
        if self._of_place.is_used(caller):
            wait_s = max(wait_s, self._of_all.wait_s(_ALL))
        if wait_s:
            raise _refusal(wait_s)

    def count(self, place: str) -> None:
        """A key from here was wrong.

        Raises:
            TooManyRequests: it was one too many.
        """
        try:
            self._of_place.enter(("", "", place))
            self._of_all.enter(_ALL)
        except TooManyRequests as error:
            raise _refusal(error.retry_after_s) from None


def _refusal(wait_s: float) -> TooManyRequests:
    seconds = max(1.0, wait_s)
    return TooManyRequests(f"too many wrong keys; try again in {ceil(seconds)} s", retry_after_s=seconds)
