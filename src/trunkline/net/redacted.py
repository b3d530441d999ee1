"""The answers of those who were shown a credential, without it: answers go into logs, and on to callers."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from urllib.parse import quote, quote_plus

from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse

HIDDEN = "***"
# Anything shorter may be a word that anybody says.
_SHORTEST = 8
# How headers are named that hold credentials; those of an author or a keyword do not, nor those that say of
# whom or which kind one is, and answers may say the same words.
_NAMES = re.compile(
    r"(auth(ori[sz]ation|entication)?|cookie|credential|key|passw(or)?d|secret|session|token)"
    r"(s|id|\d+)?(?![a-z])(?!.*(user|name|mail|type)$)",
    re.IGNORECASE,
)
# The value of this one comes back in every answer.
_HARMLESS = frozenset({"idempotency-key"})
# Whoever follows it has to find the place.
_KEPT = "location"


class CredentialRedaction:
    """Says `***` where a text would repeat a credential: as it is, or as JSON, URLs and forms spell it."""

    __slots__ = ("_forms", "_plain")

    def __init__(self, *credentials: str) -> None:
        # One that is no text is never sent.
        texts = [one.encode(errors="ignore").decode() for one in credentials]
        spelt = [form for one in texts if len(one) >= _SHORTEST for form in _spellings(one)]
        # The longest first: one may hold another.
        self._plain = tuple(sorted(dict.fromkeys(spelt), key=len, reverse=True))
        self._forms = tuple([form.encode() for form in self._plain])

    def of(self, reply: HttpResponse) -> HttpResponse:
        """An answer, without the credentials that it would repeat."""
        return RedactedResponse(reply, self) if self._forms else reply

    def text(self, text: str) -> str:
        """A text, without the credentials in it."""
        for form in self._plain:
            text = text.replace(form, HIDDEN)
        return text

    def body(self, body: bytes) -> bytes:
        """Bytes of an answer, without the credentials in them."""
        for form in self._forms:
            if form in body:
                body = body.replace(form, HIDDEN.encode())
        return body

    def begun(self, body: bytes) -> int:
        """How many bytes at the end of a piece may be the beginning of a credential."""
        longest, last = 0, body[-1:]
        for form in self._forms:
            # Events end with what no credential holds: nothing of them is kept waiting.
            if last in form:
                sizes = range(min(len(form) - 1, len(body)), longest, -1)
                longest = next((size for size in sizes if body.endswith(form[:size])), longest)
        return longest


def credentials_in(headers: Headers) -> list[str]:
    """The credentials that a request shows in headers that are named like ones that hold them."""
    return [one for name, value in headers if _is_secret(name) for one in _shown(name, value)]


def _is_secret(name: str) -> bool:
    return _NAMES.search(name) is not None and name.lower() not in _HARMLESS


def _shown(name: str, value: str) -> list[str]:
    if "cookie" in name.lower():
        return [pair.partition("=")[2].strip() for pair in value.split(";")]
    scheme, _, credential = value.rpartition(" ")
    if scheme.lower() != "basic":
        return [credential]
    try:
        return [credential, b64decode(credential).decode().partition(":")[2]]
    except ValueError:
        return [credential]


def _spellings(credential: str) -> list[str]:
    escaped = [json.dumps(credential, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
    in_urls = quote(credential, safe=""), quote_plus(credential), quote(credential)
    return [credential, *escaped, *[one.replace("/", "\\/") for one in escaped], *in_urls]


class RedactingHttpClient:
    """Sends requests by another client. No response repeats a credential of its request."""

    def __init__(self, http_client: HttpClient) -> None:
        self._http_client = http_client

    async def open(self, request: HttpRequest) -> HttpResponse:
        """See `HttpClient`."""
        return CredentialRedaction(*credentials_in(request.headers)).of(await self._http_client.open(request))

    async def close(self) -> None:
        """See `HttpClient`."""
        await self._http_client.close()


class RedactedResponse:
    """An answer that says `***` where it would repeat a credential."""

    __slots__ = ("_redaction", "_reply")

    def __init__(self, reply: HttpResponse, redaction: CredentialRedaction) -> None:
        self._reply = reply
        self._redaction = redaction

    @property
    def status(self) -> int:
        """See `HttpResponse`."""
        return self._reply.status

    @property
    def headers(self) -> dict[str, str]:
        """See `HttpResponse`."""
        hide = self._redaction.text
        return {name: value if name == _KEPT else hide(value) for name, value in self._reply.headers.items()}

    @property
    def is_read(self) -> bool:
        """Whether all of it has come, and was read."""
        return getattr(self._reply, "is_read", False)

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        """See `HttpResponse`."""
        return self._redaction.body(await self._reply.read(limit, idle_s=idle_s))

    def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
        """See `HttpResponse`."""
        return RedactedPieces(self._reply.chunks(idle_s=idle_s), self._redaction)

    async def close(self) -> None:
        """See `HttpResponse`."""
        await self._reply.close()


class RedactedPieces:
    """The pieces of an answer without credentials; what may be the beginning of one waits for the next piece.

    No generator: most streams are left where their task ends, and asyncio makes a task to close each one.
    """

    __slots__ = ("_held", "_pieces", "_redaction")

    def __init__(self, pieces: AsyncIterator[bytes], redaction: CredentialRedaction) -> None:
        self._pieces = pieces
        self._redaction = redaction
        self._held = b""

    def __aiter__(self) -> RedactedPieces:
        return self

    async def __anext__(self) -> bytes:
        redaction = self._redaction
        while True:
            try:
                piece = redaction.body(self._held + await self._pieces.__anext__())
            except StopAsyncIteration:
                rest, self._held = self._held, b""
                if rest:
                    return rest
                raise
            size = len(piece) - redaction.begun(piece)
            self._held = piece[size:]
            if size:
                return piece[:size]
