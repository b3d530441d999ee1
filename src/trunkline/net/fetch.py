"""Whole requests and responses, for webhooks and documents: the HTTP client with limits of time and size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy

from msgspec import Struct

from trunkline.errors import TimedOut, Unreachable
from trunkline.net.connection import SocketResponse, refuse_packed
from trunkline.net.egress import Egress, HttpTarget, join, target
from trunkline.net.http import Body, HttpRequest
from trunkline.net.http_client import Dial, SocketHttpClient, dial, untrusted
from trunkline.net.places import TenantPlaces

TIMEOUT_S = 15.0
POST_BYTES = 64 * 1024
GET_BYTES = 1 << 20
HOPS = 3
# How long the answer to a POST may go on after its status: that is what it was sent for.
BODY_S = 2.0
# Requests in flight at once, in all and for one tenant, and connections to one origin: more than are
# delivered to it at once, as whoever waits for one loses time to be answered in.
IN_FLIGHT = 512
PER_TENANT = 192
ORIGIN_CONNECTIONS = 10
_REDIRECTS = {301, 302, 303, 307, 308}
_CREDENTIALS = {"authorization", "cookie", "proxy-authorization", "x-api-key"}


class FullResponse(Struct, frozen=True):
    """A response with its body. Header names are in lower case; the body of a post may be packed."""

    status: int
    headers: dict[str, str]
    body: bytes


class Fetcher:
    """Sends whole requests to where the egress guard lets them go, and reads a bounded part of the answer."""

    def __init__(
        self,
        egress: Egress,
        *,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        dial: Dial = dial,
    ) -> None:
        self._egress = egress
        self._timeout_s = timeout_s
        self._client = SocketHttpClient(egress, tls=tls, connections=ORIGIN_CONNECTIONS, dial=dial)
        self._in_flight = TenantPlaces(IN_FLIGHT, PER_TENANT)
        self._tenant = ""
        self._sending = 0

    def of(self, tenant: str) -> Fetcher:
        """The same over the same connections, in the places of a tenant."""
        made = copy(self)
        made._tenant = tenant
        return made

    @property
    def busy(self) -> bool:
        """Whether a request is on its way."""
        return self._sending > 0

    async def check(self, url: str) -> None:
        """Let an address pass if it could be called now.

        Raises:
            Unreachable: it could not.
        """
        await self._egress.check(url)

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> FullResponse:
        """Post a body, see `submit`."""
        return await self.submit("POST", url, body, headers)

    async def submit(
        self, method: str, url: str, body: bytes, headers: Sequence[tuple[str, str]]
    ) -> FullResponse:
        """Send a body and take the response, whatever its status; redirects are responses like others.

        Of a body over 64 KiB, or one that goes on for too long, the rest is not read.

        Raises:
            Unreachable: there was no response, or the URL may not be called.
        """
        async with _within(target(url), self._timeout_s):
            request = HttpRequest(method, url, tuple(headers), body)
            response, _ = await self._send(request, POST_BYTES, BODY_S)
        return response

    async def get(
        self, url: str, *, headers: Sequence[tuple[str, str]] = (), limit: int = GET_BYTES
    ) -> FullResponse:
        """Fetch a document, over redirects if need be; credentials do not follow to another origin.

        Raises:
            Unreachable: there was no response, it is too large or packed, or a URL on its way is not allowed.
        """
        at = target(url)
        async with _within(at, self._timeout_s):
            for _ in range(HOPS + 1):
                response, is_whole = await self._send(HttpRequest("GET", url, tuple(headers)), limit, None)
                if response.status not in _REDIRECTS or "location" not in response.headers:
                    if not is_whole:
                        raise Unreachable(f"{at.host}: the answer is over {limit} bytes", reason="size")
                    if response.body:
                        refuse_packed(at.host, response.headers)
                    return response
                url, origin = join(url, response.headers["location"]), at
                at = target(url)
                if (origin.scheme, at.scheme) == ("https", "http"):
                    raise Unreachable(f"{origin.host}: redirects from https to http", reason="refused")
                if at.origin != origin.origin:
                    headers = [(name, value) for name, value in headers if name.lower() not in _CREDENTIALS]
        raise Unreachable(f"{at.host}: redirects more than {HOPS} times", reason="refused")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _send(
        self, request: HttpRequest, limit: int, body_s: float | None
    ) -> tuple[FullResponse, bool]:
        """The response, and whether that was all of it."""
        self._sending += 1
        try:
            async with self._in_flight.held(self._tenant):
                response = await self._open(request)
                try:
                    body, is_whole = await _read(response.body, limit, body_s)
                finally:
                    await response.close()
        finally:
            self._sending -= 1
        return FullResponse(response.status, response.headers, body), is_whole

    async def _open(self, request: HttpRequest) -> SocketResponse:
        try:
            return await self._client.open(request)
        except TimedOut as error:
            raise Unreachable(str(error), reason="timeout") from error
        except Unreachable as error:
            if error.reason != "sent":
                raise
            raise _unanswered(request, error) from error


FetcherOf = Callable[[str], Fetcher]


class TenantFetchers:
    """Fetches and posts for each tenant where its rule allows; those with the rule of everybody share one."""

    def __init__(self, egress: Egress, *, timeout_s: float) -> None:
        """Take the rule of everybody, until somebody says by `egress_of` that a tenant has another."""
        self.shared = Fetcher(egress, timeout_s=timeout_s)
        self.egress_of: Callable[[str], Egress] = lambda tenant: egress
        self._egress = egress
        self._timeout_s = timeout_s
        self._own: dict[str, Fetcher] = {}

    def shared_egress(self, tenant: str) -> Egress:
        """Where a tenant may call now; for those with the rule of everybody it is the same object."""
        own = self.egress_of(tenant)
        return self._egress if own.rule == self._egress.rule else own

    def find(self, tenant: str) -> Fetcher:
        """The fetcher that obeys the rule of a tenant; each has one rule object, which may change."""
        egress = self.shared_egress(tenant)
        if egress is self._egress:
            return self.shared.of(tenant)
        if tenant not in self._own:
            # Not the connections of others: what is open is not judged again.
            self._own[tenant] = Fetcher(egress, timeout_s=self._timeout_s)
        return self._own[tenant]

    async def release(self, tenant: str) -> bool:
        """Let go of the connections of a tenant that is no more; whether none is on its way somewhere."""
        found = self._own.get(tenant)
        if found is None:
            return True
        if found.busy:
            return False
        del self._own[tenant]
        await found.close()
        return True

    async def close(self) -> None:
        """Close all connections."""
        for one in (self.shared, *self._own.values()):
            await one.close()


def _unanswered(request: HttpRequest, error: Unreachable) -> Unreachable:
    """Why a request that was sent has no response. Whether it was taken matters to nobody here.

    A webhook is posted again under its id, and a document is only read.
    """
    if isinstance(error.__cause__, ssl.SSLError):
        # A server that wants a certificate of ours says so after the handshake.
        return untrusted(target(request.url).host, error.__cause__)
    return Unreachable(str(error), reason="protocol" if error.__cause__ is None else "connect")


async def _read(body: Body, limit: int, body_s: float | None) -> tuple[bytes, bool]:
    found, is_whole = bytearray(), False
    with suppress(TimeoutError):
        async with asyncio.timeout(body_s):
            async for piece in body:
                found += piece
                if len(found) > limit:
                    break
            is_whole = len(found) <= limit
    return bytes(found[:limit]), is_whole


@asynccontextmanager
async def _within(at: HttpTarget, seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        message = f"{at.host}: no whole answer within {seconds:g} seconds"
        raise Unreachable(message, reason="timeout") from error
