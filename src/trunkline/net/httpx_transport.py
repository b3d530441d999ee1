"""The client of httpx2 for libraries that call by one: it sends everything by an HTTP client of ours.

Loaded by whoever uses such a library: httpx2 comes with the extras `model` and `mcp`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import cast

import httpx2

from trunkline.errors import TimedOut, Unreachable
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.net.redacted import CredentialRedaction, credentials_in

log = logging.getLogger("trunkline.net")
ANSWER_BYTES = 64 << 20
# Models think for long before their first word.
READ_S = 600.0
GuardedClient = httpx2.AsyncClient
# What our client writes itself; it asks for nothing packed, as that could unpack to any size.
_WRITTEN = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "transfer-encoding", "upgrade"}
)


class HttpxTransport(httpx2.AsyncBaseTransport):
    """Sends what a library asks for by an HTTP client of ours."""

    def __init__(self, client: HttpClient, answer_bytes: int) -> None:
        self._client = client
        self._answer_bytes = answer_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response, whose body is still to come.

        Raises:
            RequestError: there is none; the log says why, as libraries keep that to themselves.
        """
        body = await request.aread()
        headers = tuple(
            [(name, value) for name, value in request.headers.multi_items() if name not in _WRITTEN]
        )
        url, read_s = str(request.url), _read_s(request)
        try:
            async with asyncio.timeout(read_s):
                response = await self._client.open(HttpRequest(request.method, url, headers, body or None))
        except (TimeoutError, Unreachable) as error:
            raise _failure(error, request) from error
        # What a provider says of a key that it refuses goes into the log.
        response = CredentialRedaction(*credentials_in(headers)).of(response)
        stream = BoundedStream(response, request, read_s, self._answer_bytes)
        return httpx2.Response(response.status, headers=response.headers, stream=stream, request=request)

    async def aclose(self) -> None:
        """Let go of every connection."""
        await self._client.close()


class BoundedStream(httpx2.AsyncByteStream):
    """The body of a response as it comes, which breaks off where it is too long."""

    def __init__(
        self, response: HttpResponse, request: httpx2.Request, read_s: float | None, limit: int
    ) -> None:
        self._response = response
        self._request = request
        self._read_s = read_s
        self._limit = limit

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        """Give the pieces of the body.

        Raises:
            Unreachable: it is over the limit (`size`). No error of httpx2, which libraries take for a
                connection that broke off.
            RequestError: it broke off, or nothing came for long.
        """
        left = self._limit
        try:
            async for piece in self._response.chunks(idle_s=self._read_s):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        except Unreachable as error:
            raise _failure(error, self._request) from error
        if left < 0:
            host = self._request.url.host
            raise Unreachable(f"{host}: the answer is over {self._limit} bytes", reason="size")

    async def aclose(self) -> None:
        """Let go of the response, read or not."""
        await self._response.close()


def guarded_client(client: HttpClient, *, answer_bytes: int | None = None) -> GuardedClient:
    """A client for a library: no redirects, no proxies or logins of the environment; closes ours with it."""
    return GuardedClient(
        transport=HttpxTransport(client, answer_bytes or ANSWER_BYTES),
        timeout=httpx2.Timeout(READ_S),
        follow_redirects=False,
        trust_env=False,
    )


def _read_s(request: httpx2.Request) -> float | None:
    """How long a library waits for the next piece of an answer."""
    given = cast("dict[str, float | None]", request.extensions.get("timeout", {}))
    return given.get("read")


def _failure(error: TimeoutError | Unreachable, request: httpx2.Request) -> httpx2.RequestError:
    reason = error.reason if isinstance(error, Unreachable) else "timeout"
    log.warning("request.failed url=%a reason=%s error=%a", shown(str(request.url)), reason, str(error))
    if isinstance(error, TimeoutError) or reason == "idle":
        return httpx2.ReadTimeout("no answer in time", request=request)
    if isinstance(error, TimedOut):
        return httpx2.ConnectTimeout(str(error), request=request)
    if reason in ("sent", "protocol"):
        return httpx2.RemoteProtocolError(str(error), request=request)
    return httpx2.ConnectError(str(error), request=request)
