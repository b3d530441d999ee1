"""The answers of those who were shown a credential, without it: answers go into logs, and on to callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from trunkline.net.http import Headers, HttpResponse

HIDDEN = "***"
# Anything shorter may be a word that anybody says.
_SHORTEST = 8
_SHOWN_IN = frozenset(
    {"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"}
)
# Whoever follows it has to find the place.
_KEPT = "location"


def redacted(reply: HttpResponse, *credentials: str) -> HttpResponse:
    """The same answer, which does not repeat these credentials."""
    for one in credentials:
        if len(one) >= _SHORTEST:
            reply = RedactedResponse(reply, one)
    return reply


def credentials_in(headers: Headers) -> list[str]:
    """The credentials that a request shows in headers that are known to hold them."""
    return [value.rpartition(" ")[2] for name, value in headers if name.lower() in _SHOWN_IN]


class RedactedResponse:
    """An answer that says `***` where it would repeat a credential.

    In a stream one that comes in two pieces is passed by.
    """

    __slots__ = ("_reply", "_text")

    def __init__(self, reply: HttpResponse, credential: str) -> None:
        self._reply = reply
        self._text = credential

    @property
    def status(self) -> int:
        """See `HttpResponse`."""
        return self._reply.status

    @property
    def headers(self) -> dict[str, str]:
        """See `HttpResponse`."""
        found, text = self._reply.headers, self._text
        if not any([text in value for value in found.values()]):
            return found
        return {
            name: value if name == _KEPT else value.replace(text, HIDDEN) for name, value in found.items()
        }

    @property
    def is_read(self) -> bool:
        """Whether all of it has come, and was read."""
        return getattr(self._reply, "is_read", False)

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        """See `HttpResponse`."""
        return self._without(await self._reply.read(limit, idle_s=idle_s))

    def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
        """See `HttpResponse`."""
        return RedactedPieces(self._reply.chunks(idle_s=idle_s), self._without)

    async def close(self) -> None:
        """See `HttpResponse`."""
        await self._reply.close()

    def _without(self, body: bytes) -> bytes:
        text = self._text.encode()
        return body.replace(text, HIDDEN.encode()) if text in body else body


class RedactedPieces:
    """The pieces of such an answer.

    No generator: most streams are left where their task ends, and asyncio makes a task to close each one.
    """

    __slots__ = ("_pieces", "_without")

    def __init__(self, pieces: AsyncIterator[bytes], without: Callable[[bytes], bytes]) -> None:
        self._pieces = pieces
        self._without = without

    def __aiter__(self) -> RedactedPieces:
        return self

    async def __anext__(self) -> bytes:
        return self._without(await self._pieces.__anext__())
