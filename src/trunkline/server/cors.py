"""Cross-origin requests: which pages may read what the agent answers. Without a setting, none.

No cookies and no logins of the browser: such a page sends a key or a token. Sessions are for our own pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trunkline.errors import Misuse
from trunkline.http.exchange import Exchange, Headers

ANY = "*"
MAX_AGE_S = 7200
_VARY = (b"vary", b"Origin")
_EXPOSED = (
    b"access-control-expose-headers",
    b"a2a-version, a2a-extensions, etag, retry-after, www-authenticate",
)
PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE"),
    (
        b"access-control-allow-headers",
        b"content-type, authorization, x-api-key, a2a-version, a2a-extensions, x-a2a-extensions, "
        b"last-event-id, idempotency-key, traceparent, tracestate",
    ),
    (b"access-control-max-age", b"%d" % MAX_AGE_S),
)
_ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_PORTS = {"http": "80", "https": "443"}
_LAST_PORT = 65535


def _answer(origin: str) -> Headers:
    return ((b"access-control-allow-origin", origin.encode()), _EXPOSED, _VARY)


_EVERYBODY = _answer(ANY)


class Cors:
    """The origins whose pages may call, and what their browsers have to be told."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Take origins such as https://app.example, or `*` for all of them.

        Raises:
            Misuse: one of them is no origin; a browser would never send it.
        """
        listed = {_origin(one) for one in origins}
        self._any = ANY in listed
        self._answers: dict[bytes, Headers] = {origin.encode(): _answer(origin) for origin in listed - {ANY}}

    def allows(self, origin: bytes) -> bool:
        """Whether pages of this origin may call."""
        return self._any or origin in self._answers

    def mark(self, exchange: Exchange) -> None:
        """Whatever is answered, the browser is told who may read it."""
        origin = exchange.headers.get(b"origin")
        if origin is not None and self.allows(origin):
            answer = self._answers.get(origin) or _EVERYBODY
        else:
            # What a cache keeps of this answer must not be given to a page, which needs other headers.
            answer = (_VARY,)
        exchange.also = (*exchange.also, *answer)

    def is_preflight(self, exchange: Exchange) -> bool:
        """Whether a browser asks if a page that is listed may send something."""
        if exchange.method != "OPTIONS":
            return False
        headers = exchange.headers
        asked = b"access-control-request-method" in headers
        return asked and b"origin" in headers and self.allows(headers[b"origin"])


def _origin(given: str) -> str:
    if given == ANY:
        return ANY
    found = _ORIGIN.fullmatch(given.lower())
    if found is None or int(found[3] or 0) > _LAST_PORT:
        raise Misuse(
            f"cors_origins: {given!r} is no origin; give one like https://app.example, without a path, or *"
        )
    scheme, host, port = found.groups()
    if port == _PORTS[scheme]:
        raise Misuse(f"cors_origins: a browser leaves the usual port out; give {scheme}://{host}")
    return found[0]
