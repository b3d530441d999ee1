"""One request and what came of it; the line that takes requests out, each with a deadline, and keeps them.

A line never raises for what an agent does: silence, a cut connection and nonsense are things seen.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.doctor.json_access import parsed
from trunkline.errors import TooLarge, TrunklineError, Unreachable
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.wire import sse

AT_ONCE = 8
_LIMIT = 8 * 1024 * 1024
_SHOWN = 400
_LEAST_S = 0.05
_QUIET = frozenset(("authorization", "x-api-key", "cookie", "proxy-authorization"))


class Evidence(Struct, frozen=True):
    """A request and the telling bit of its answer, as text, without secrets."""

    request: str
    response: str


class ProbeExchange(Struct, kw_only=True):
    """What was asked and what came back. `trouble` says why nothing, or not everything, came."""

    request: HttpRequest
    label: str = ""
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""
    events: list[sse.SseEvent] = []
    # Of a stream: the agent closed it by itself.
    closed: bool = False
    trouble: str = ""
    took_s: float = 0.0

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        return parsed(self.body)

    @property
    def media_type(self) -> str:
        """Its content type without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def told(self) -> str:
        """In a few words what came back."""
        if not self.status:
            return self.trouble
        text = " ".join(self.body[:160].decode(errors="replace").split())
        if self.events:
            text = f"{len(self.events)} events"
        if 300 <= self.status < 400:
            return f"HTTP {self.status}, a redirect to {self.headers.get('location', 'nowhere')}"
        end = f"; {self.trouble}" if self.trouble else ""
        return f"HTTP {self.status} {self.media_type or 'without a content type'}: {text or 'empty'}{end}"


class ProbeClient:
    """Takes requests out and writes everything down. At most `AT_ONCE` are under way."""

    def __init__(self, carrier: HttpClient, *, secrets: Sequence[str] = (), timeout_s: float = 4.0) -> None:
        self.journal: list[ProbeExchange] = []
        self.timeout_s = timeout_s
        # When everything must have been said, by the loop's clock.
        self.until = math.inf
        self._carrier = carrier
        self._secrets = sorted((one for one in secrets if one), key=len, reverse=True)
        self._room = asyncio.Semaphore(AT_ONCE)

    async def fetch(
        self, request: HttpRequest, label: str = "", timeout_s: float | None = None
    ) -> ProbeExchange:
        """Ask, and read the whole answer."""
        seen = ProbeExchange(request=request, label=label)

        async def read(reply: HttpResponse) -> None:
            seen.body = await reply.read(_LIMIT)

        await self._ask(seen, read, timeout_s)
        return seen

    async def follow(
        self,
        request: HttpRequest,
        label: str = "",
        timeout_s: float | None = None,
        enough: Callable[[sse.SseEvent], bool] | None = None,
    ) -> ProbeExchange:
        """Ask for a stream and read it to its end, or until an event is enough."""
        seen = ProbeExchange(request=request, label=label, events=[])

        async def read(reply: HttpResponse) -> None:
            if seen.media_type != "text/event-stream":
                seen.body = await reply.read(_LIMIT)
                return
            parser = sse.SseParser(limit=_LIMIT)
            size = 0
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > _LIMIT:
                    raise TooLarge(f"the stream is over {_LIMIT} bytes")
                seen.body = seen.body or chunk[:_SHOWN]
                for event in parser.feed(chunk):
                    seen.events.append(event)
                    if enough is not None and enough(event):
                        return
            seen.closed = True

        await self._ask(seen, read, timeout_s)
        return seen

    async def _ask(
        self, seen: ProbeExchange, read: Callable[[HttpResponse], Any], timeout_s: float | None
    ) -> None:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        async with self._room:
            self.journal.append(seen)
            loop = asyncio.get_running_loop()
            began = loop.time()
            limit_s = round(max(min(limit_s, self.until - began), _LEAST_S), 2)
            try:
                async with asyncio.timeout(limit_s):
                    await self._read(seen, read)
            except TimeoutError:
                what = "the answer did not end" if seen.status else "no answer"
                seen.trouble = f"{what} within {limit_s:g} s"
            except TooLarge as error:
                seen.trouble = str(error)
            except TrunklineError as error:
                seen.trouble = f"the connection failed: {error}"
            seen.took_s = loop.time() - began

    async def _read(self, seen: ProbeExchange, read: Callable[[HttpResponse], Any]) -> None:
        try:
            reply = await self._carrier.open(seen.request)
        except Unreachable as error:
            if error.reason != "sent":
                raise
            # An agent that has broken may close a connection after its answer without saying so; whoever
            # comes next on it must not be taken for refused.
            reply = await self._carrier.open(seen.request)
        try:
            seen.status, seen.headers = reply.status, reply.headers
            await read(reply)
        finally:
            await reply.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._carrier.close()

    def evidence(self, seen: ProbeExchange) -> Evidence:
        """What can be shown of an exchange."""
        request = seen.request
        shown = [f"{request.method} {request.url}"]
        shown += [f"{name}: {value}" for name, value in _plain(request.headers)]
        if request.body:
            shown.append(_cut(request.body))
        told = seen.told()
        if seen.events:
            told = "\n".join([told, *(_cut(event.data.encode()) for event in seen.events[:3])])
        elif seen.status:
            told = f"HTTP {seen.status} {seen.headers.get('content-type', '')}\n{_cut(seen.body)}"
            told += f"\n({seen.trouble})" if seen.trouble else ""
        return Evidence(self.redacted("\n".join(shown)), self.redacted(told.strip()))

    def redacted(self, text: str) -> str:
        """The text without any of the credentials."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _plain(headers: Headers) -> list[tuple[str, str]]:
    return [(name, "***" if name.lower() in _QUIET else value) for name, value in headers]


def _cut(body: bytes) -> str:
    text = body[:_SHOWN].decode(errors="replace")
    return text if len(body) <= _SHOWN else f"{text}… ({len(body)} bytes)"


def encoded(value: object) -> bytes:
    """JSON bytes."""
    return msgspec.json.encode(value)
