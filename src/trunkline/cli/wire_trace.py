"""An HTTP client for --debug that shows on standard error what goes over the wire, and never a secret."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping

from trunkline.cli.console import clear_progress, escape_controls
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse

HIDDEN = "***"
_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "idempotency-key"}
)
# Members whose texts are secrets wherever they stand: of tokens, of push configs.
_MEMBERS = re.compile(
    r'("(?:access_token|refresh_token|id_token|client_secret|device_code|token|credentials|password)"\s*:\s*)'
    r'"(?:[^"\\]|\\.)*"'
)
_FORM = re.compile(r"\b(access_token|refresh_token|client_secret|device_code|code|password)=[^&\s]+")
# Shorter values of parameters stand in too many places; as headers they are hidden all the same.
_SHORTEST = 8


class Redaction:
    """Takes out of a text what must not be seen: known secrets, and what looks like one."""

    def __init__(self, secrets: Collection[str], parameters: Mapping[str, str] | None = None) -> None:
        given = parameters or {}
        hidden = {*secrets, *(value for value in given.values() if len(value) >= _SHORTEST)} - {""}
        self._secrets = sorted(hidden, key=len, reverse=True)
        self._names = _HEADERS | {name.lower() for name in given}

    def text(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return _FORM.sub(rf"\1={HIDDEN}", _MEMBERS.sub(rf'\1"{HIDDEN}"', text))

    def header(self, name: str, value: str) -> str:
        """A header's line."""
        return f"{name}: {HIDDEN if name.lower() in self._names else self.text(value)}"


class WireTrace:
    """Sends by another HTTP client, and shows each request and reply; see `net.http`."""

    def __init__(self, http_client: HttpClient, redaction: Redaction) -> None:
        self._http_client = http_client
        self._redaction = redaction

    async def open(self, request: HttpRequest) -> HttpResponse:
        """See `HttpClient`."""
        show = self._redaction
        _say(">", f"{request.method} {show.text(request.url)}")
        for name, value in request.headers:
            _say(">", show.header(name, value))
        if request.body:
            _say(">", show.text(request.body.decode(errors="replace")))
        begun = time.monotonic()
        try:
            reply = await self._http_client.open(request)
        except Exception as error:
            _say("!", show.text(f"{type(error).__name__}: {error}"))
            raise
        _say("<", f"{reply.status} after {(time.monotonic() - begun) * 1000:.0f} ms")
        for name, value in reply.headers.items():
            _say("<", show.header(name, value))
        return _TracedResponse(reply, show)

    async def close(self) -> None:
        """See `HttpClient`."""
        await self._http_client.close()


class _TracedResponse:
    def __init__(self, reply: HttpResponse, redaction: Redaction) -> None:
        self._reply = reply
        self._redaction = redaction
        self.status = reply.status
        self.headers = reply.headers

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        body = await self._reply.read(limit, idle_s=idle_s)
        if body:
            _say("<", self._redaction.text(body.decode(errors="replace")))
        return body

    async def chunks(self, *, idle_s: float | None = None) -> AsyncIterator[bytes]:
        # A secret may lie across two chunks, so whole lines are shown.
        held = b""
        async for chunk in self._reply.chunks(idle_s=idle_s):
            *lines, held = (held + chunk).split(b"\n")
            for each in lines:
                if each.strip():
                    _say("<", self._redaction.text(each.decode(errors="replace")))
            yield chunk
        if held.strip():
            _say("<", self._redaction.text(held.decode(errors="replace")))

    async def close(self) -> None:
        await self._reply.close()


def _say(sign: str, text: str) -> None:
    clear_progress()
    for each in escape_controls(text).split("\n"):
        print(f"{sign} {each}", file=sys.stderr, flush=True)
