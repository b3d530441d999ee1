"""Requests with a deadline, and the record of each: what was sent and what came back.

Nothing here raises for what an agent does: silence, a cut connection and nonsense are things to record.
Where the doctor's own rules keep it from calling, `Undecided` says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from trunkline.doctor.json_access import parsed
from trunkline.errors import TooLarge, TrunklineError, Unreachable
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.wire import sse

# Whether a stream need not be read beyond this event.
Enough = Callable[[sse.SseEvent], bool]
AT_ONCE = 8
EVENTS = "text/event-stream"
_LIMIT = 8 * 1024 * 1024
_SHOWN = 400
_LEAST_S = 0.05
_SECRET_HEADERS = frozenset(("authorization", "x-api-key", "cookie", "proxy-authorization"))


class NotPossible(Exception):  # noqa: N818 - it is no error: what a check needs is not there
    """A check cannot be done; the text says why. It becomes a skipped one."""


class Undecided(NotPossible):
    """Whether the agent does it right cannot be found out; the text says why. The outcome stays unknown."""


class Evidence(Struct, frozen=True):
    """A request and the beginning of its answer as text, without secrets."""

    request: str
    response: str


class ProbeExchange(Struct, kw_only=True):
    """A request and its answer. `trouble` says why nothing, or not everything, came."""

    request: HttpRequest
    label: str = ""
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""
    events: list[sse.SseEvent] = []
    # Of a stream: the agent closed it by itself.
    closed: bool = False
    trouble: str = ""

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        return parsed(self.body)

    @property
    def media_type(self) -> str:
        """Its content type without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def excerpt(self, size: int) -> str:
        """The beginning of the body as text."""
        return self.body[:size].decode(errors="replace").strip()

    def summary(self) -> str:
        """The answer in a few words."""
        if not self.status:
            return self.trouble
        text = " ".join(self.excerpt(160).split())
        if self.events:
            text = f"{len(self.events)} events"
        if 300 <= self.status < 400:
            return f"HTTP {self.status}, a redirect to {self.headers.get('location', 'nowhere')}"
        end = f"; {self.trouble}" if self.trouble else ""
        return f"HTTP {self.status} {self.media_type or 'without a content type'}: {text or 'empty'}{end}"


class ProbeClient:
    """Sends requests and keeps a journal of all exchanges. At most `AT_ONCE` are under way."""

    def __init__(
        self, http_client: HttpClient, *, secrets: Sequence[str] = (), timeout_s: float = 4.0
    ) -> None:
        self.journal: list[ProbeExchange] = []
        self.timeout_s = timeout_s
        # The end of the time for everything, by the loop's clock; it comes before any other limit.
        self.deadline = math.inf
        self._http_client = http_client
        self._secrets = sorted((one for one in secrets if one), key=len, reverse=True)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch(
        self,
        request: HttpRequest,
        label: str = "",
        timeout_s: float | None = None,
        enough: Enough | None = None,
    ) -> ProbeExchange:
        """Send a request, and read the answer whole; a stream, if asked for, until an event is enough."""
        exchange = ProbeExchange(request=request, label=label, events=[])
        async with self._slots:
            self.journal.append(exchange)
            limit_s = self.timeout_s if timeout_s is None else timeout_s
            left_s = self.deadline - asyncio.get_running_loop().time()
            limit_s = round(max(min(limit_s, left_s), _LEAST_S), 2)
            try:
                async with asyncio.timeout(limit_s):
                    await self._read(exchange, enough)
            except TimeoutError:
                what = "the answer did not end" if exchange.status else "no answer"
                exchange.trouble = f"{what} within {limit_s:g} s"
            except TooLarge as error:
                exchange.trouble = str(error)
            except TrunklineError as error:
                if isinstance(error, Unreachable) and error.reason == "refused":
                    host = urlsplit(request.url).hostname
                    raise Undecided(
                        f"the doctor does not follow the card into a private network, to {host}; "
                        "if that is the agent, examine it at that address"
                    ) from None
                exchange.trouble = f"the connection failed: {error}"
        return exchange

    async def _read(self, exchange: ProbeExchange, enough: Enough | None) -> None:
        try:
            response = await self._http_client.open(exchange.request)
        except Unreachable as error:
            if error.reason != "sent":
                raise
            # An agent that has broken may close a connection after its answer without saying so; whoever
            # comes next on it must not be taken for refused.
            response = await self._http_client.open(exchange.request)
        try:
            exchange.status, exchange.headers = response.status, response.headers
            if enough is None or exchange.media_type != EVENTS:
                exchange.body = await response.read(_LIMIT)
            else:
                await _read_events(exchange, response, enough)
        finally:
            await response.close()

    def evidence(self, exchange: ProbeExchange) -> Evidence:
        """The part of an exchange that a report shows."""
        request = exchange.request
        shown = [f"{request.method} {request.url}"]
        shown += [
            f"{name}: {'***' if name.lower() in _SECRET_HEADERS else value}"
            for name, value in request.headers
        ]
        if request.body:
            shown.append(_cut(request.body))
        answer = exchange.summary()
        if exchange.events:
            answer = "\n".join([answer, *(_cut(event.data.encode()) for event in exchange.events[:3])])
        elif exchange.status:
            answer = (
                f"HTTP {exchange.status} {exchange.headers.get('content-type', '')}\n{_cut(exchange.body)}"
            )
            answer += f"\n({exchange.trouble})" if exchange.trouble else ""
        return Evidence(self.redacted("\n".join(shown)), self.redacted(answer.strip()))

    def redacted(self, text: str) -> str:
        """The text without any of the credentials."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def _read_events(exchange: ProbeExchange, response: HttpResponse, enough: Enough) -> None:
    parser = sse.SseParser(limit=_LIMIT)
    size = 0
    async for chunk in response.chunks():
        size += len(chunk)
        if size > _LIMIT:
            raise TooLarge(f"the stream is over {_LIMIT} bytes")
        exchange.body = exchange.body or chunk[:_SHOWN]
        for event in parser.feed(chunk):
            exchange.events.append(event)
            if enough(event):
                return
    exchange.closed = True


def _cut(body: bytes) -> str:
    text = body[:_SHOWN].decode(errors="replace")
    return text if len(body) <= _SHOWN else f"{text}… ({len(body)} bytes)"
