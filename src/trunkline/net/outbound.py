"""The one outbound client: all it sends goes through the guard, all it reads is bounded.

It sits on the connection pools beneath httpx2, one for each origin: a pool looks at all of its connections at
every request, and with fifty targets in one that costs more than the request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import httpcore2
import httpx2
from msgspec import Struct

from trunkline.errors import Unreachable
from trunkline.net.connect import CONNECT_S, Dial, Dialler, dial, distrusted
from trunkline.net.egress import Egress, Target, target

TIMEOUT_S = 15.0
POST_BYTES = 64 * 1024
GET_BYTES = 1 << 20
HOPS = 3
# How long the answer to a POST may go on after its status: that is what it was sent for.
BODY_S = 2.0
# Requests in flight at once, and those to one origin, which is also how many connections it may have: more
# than a courier sends at once, as whoever waits for one loses time to be answered in.
FLIGHTS = 512
LANE_FLIGHTS = 10
# Origins whose connections are kept for the next request, and for how long: most servers close after five
# seconds, and who closes first does not lose a request.
LANES = 256
IDLE_S = 4.0
_REDIRECTS = {301, 302, 303, 307, 308}
_CREDENTIALS = {"authorization", "cookie", "proxy-authorization", "x-api-key"}

Headers = Sequence[tuple[str, str]]


class Answer(Struct, frozen=True):
    """What came back. Header names are in lower case; the body is as it was sent, never unpacked."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Lane:
    """The connections to one origin."""

    __slots__ = ("flights", "pool", "used_at")

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self.pool = pool
        self.flights = 0
        self.used_at = 0.0


class Outbound:
    """Sends requests to wherever the guard lets them go. Knows no proxies and no cookies."""

    def __init__(
        self,
        egress: Egress,
        *,
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
        tls: ssl.SSLContext | None = None,
        dial: Dial = dial,
    ) -> None:
        self._egress = egress
        self._backend = Dialler(egress, dial, connect_s=connect_s)
        self._timeout_s = timeout_s
        self._tls = tls
        self._flights = asyncio.Semaphore(FLIGHTS)
        # Ordered by when they were last asked for.
        self._lanes: dict[str, _Lane] = {}
        self._sweep_at = 0.0

    async def check(self, url: str) -> None:
        """Let an address pass if it could be called now.

        Raises:
            Unreachable: it could not.
        """
        await self._egress.check(url)

    async def post(self, url: str, body: bytes, headers: Headers) -> Answer:
        """Send a body and take the answer, whatever its status; redirects are answers like others.

        Of a body over 64 KiB, or one that goes on for too long, the rest is not read.

        Raises:
            Unreachable: there was no answer, or the URL may not be called.
        """
        at = target(url)
        async with _within(at, self._timeout_s):
            answer, _ = await self._send(at, "POST", headers, body, limit=POST_BYTES, patience_s=BODY_S)
        return answer

    async def get(
        self, url: str, *, headers: Headers = (), hops: int = HOPS, limit: int = GET_BYTES
    ) -> Answer:
        """Fetch a document, over redirects if need be; credentials do not follow to another origin.

        Raises:
            Unreachable: there was no answer, it is too large, or a URL on the way may not be called.
        """
        at = target(url)
        async with _within(at, self._timeout_s):
            for _ in range(hops + 1):
                answer, is_whole = await self._send(at, "GET", headers, None, limit=limit)
                if answer.status not in _REDIRECTS or "location" not in answer.headers:
                    if not is_whole:
                        raise Unreachable(f"{at.host}: the answer is over {limit} bytes", reason="size")
                    return answer
                url, origin = _follow(url, answer.headers["location"]), at
                at = target(url)
                if (origin.scheme, at.scheme) == ("https", "http"):
                    raise Unreachable(f"{origin.host}: redirects from https to http", reason="refused")
                if at.lane != origin.lane:
                    headers = [(name, value) for name, value in headers if name.lower() not in _CREDENTIALS]
        raise Unreachable(f"{at.host}: redirects more than {hops} times", reason="refused")

    async def close(self) -> None:
        """Close all connections."""
        lanes = list(self._lanes.values())
        self._lanes.clear()
        for lane in lanes:
            await lane.pool.aclose()

    async def _send(
        self,
        at: Target,
        method: str,
        headers: Headers,
        body: bytes | None,
        *,
        limit: int,
        patience_s: float | None = None,
    ) -> tuple[Answer, bool]:
        """The answer, and whether that was all of it."""
        url = httpcore2.URL(scheme=at.scheme, host=at.host, port=at.port, target=at.path)
        request = httpcore2.Request(method, url, headers=_fields(at, headers, body), content=body)
        if self._tls is None and at.scheme == "https":
            # It reads all the certificates of the machine.
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        lane, stale = self._take(at)
        try:
            for pool in stale:
                await pool.aclose()
            async with self._flights:
                response = await lane.pool.handle_async_request(request)
                try:
                    return await _read(response, limit, patience_s)
                finally:
                    await response.aclose()
        except httpcore2.NetworkError as error:
            if isinstance(cause := error.args[0], ssl.SSLError):
                raise distrusted(at.host, cause) from error
            raise Unreachable(f"{at.host}: the connection broke off", reason="connect") from error
        except httpcore2.LocalProtocolError as error:
            # Not in their words: they would quote the header, which may be a credential.
            raise Unreachable(f"{at.host}: a header holds what HTTP cannot", reason="protocol") from error
        except httpcore2.ProtocolError as error:
            raise Unreachable(
                f"{at.host}: the answer is not HTTP, or ends too soon", reason="protocol"
            ) from error
        finally:
            lane.flights -= 1
            lane.used_at = asyncio.get_running_loop().time()

    def _take(self, at: Target) -> tuple[_Lane, list[httpcore2.AsyncConnectionPool]]:
        """The lane to an origin, with one more in flight, and the pools that nobody needs any longer."""
        lane = self._lanes.pop(at.lane, None) or _Lane(self._pool())
        lane.flights += 1
        stale = self._stale(asyncio.get_running_loop().time())
        self._lanes[at.lane] = lane
        return lane, stale

    def _stale(self, now: float) -> list[httpcore2.AsyncConnectionPool]:
        surplus = len(self._lanes) - LANES
        if surplus < 0 and now < self._sweep_at:
            return []
        self._sweep_at = now + IDLE_S
        names = [
            name
            for place, (name, lane) in enumerate(self._lanes.items())
            if not lane.flights and (place <= surplus or lane.used_at < now - IDLE_S)
        ]
        return [self._lanes.pop(name).pool for name in names]

    def _pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=LANE_FLIGHTS,
            keepalive_expiry=IDLE_S,
            network_backend=self._backend,
        )


@asynccontextmanager
async def _within(at: Target, seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        message = f"{at.host}: no whole answer within {seconds:g} seconds"
        raise Unreachable(message, reason="timeout") from error


async def _read(response: httpcore2.Response, limit: int, patience_s: float | None) -> tuple[Answer, bool]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    body, is_whole = bytearray(), False
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s), aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    break
            is_whole = len(body) <= limit
    return Answer(response.status, headers, bytes(body[:limit])), is_whole


def _fields(at: Target, headers: Headers, body: bytes | None) -> list[tuple[bytes, bytes]]:
    # What is sent packed would have to be unpacked, and a small answer can unpack to any size.
    fields = [(b"host", at.authority), (b"user-agent", b"trunkline"), (b"accept-encoding", b"identity")]
    if body is not None:
        fields.append((b"content-length", b"%d" % len(body)))
    fields.extend((name.encode(), value.encode()) for name, value in headers)
    return fields


def _follow(url: str, location: str) -> str:
    try:
        return str(httpx2.URL(url).join(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise Unreachable(f"{target(url).host}: redirects to no URL", reason="url") from error
