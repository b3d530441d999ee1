"""One HTTP request and its answer: what whoever answers needs of it, and what is asked of every body.

There are two kinds: `ConnectionRequest` on a connection of our own server, `AsgiExchange` under any other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol
from urllib.parse import parse_qsl

from trunkline.errors import ContentTypeNotSupported, InvalidParams, InvalidRequest, TooLarge

Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
EVENTS = b"text/event-stream"
_LISTS = (b"-extensions", b"-protocol")


class Disconnected(Exception):  # noqa: N818 - not an error: the caller went away
    """The caller left before its request was whole."""


def is_list(name: bytes) -> bool:
    """Whether a header holds a list, so that two of them are one list; of any other the last counts."""
    return name.endswith(_LISTS)


class Exchange(Protocol):
    """A request as it is read, and the way its answer goes.

    `path` is relative to `base`, where somebody else's server has mounted us, and to `prefix`, which is what
    our own routing has taken off.
    """

    method: str
    path: str
    raw_path: bytes
    query_string: bytes
    base: str
    prefix: str
    headers: dict[bytes, bytes]
    # Headers that go with whatever is answered.
    also: Headers
    # For whom the answer is, where that is known: what one reader leaves unread is counted together.
    reader: Hashable

    def peer(self) -> str:
        """The address of the caller, or of the proxy before it; empty if nobody knows."""
        ...

    def address(self) -> tuple[str, str, int | None]:
        """Scheme, host and port at which the request came in."""
        ...

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body.

        Raises:
            TooLarge: it is over the limit; the rest is not read.
            ContentTypeNotSupported: it is compressed.
            InvalidRequest: it did not arrive in time.
            Disconnected: the caller left.
        """
        ...

    async def respond(
        self, status: int, body: bytes, media_type: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Send a whole answer."""
        ...

    async def begin(self, headers: Headers, status: int = 200) -> None:
        """Begin an answer whose length nobody knows yet."""
        ...

    async def write(self, body: bytes, *, more: bool) -> None:
        """Send a piece of it; waits while the caller does not read."""
        ...

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        """Have it called when the caller leaves; None when nobody wants to hear of it any more."""
        ...


def read_query(raw: bytes) -> dict[str, str]:
    """The members of a query string; the last of several values counts.

    Raises:
        InvalidParams: it is not UTF-8, or has too many members.
    """
    if not raw:
        return {}
    try:
        return dict(
            parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
        )
    except ValueError:
        raise InvalidParams("the query string cannot be read", field="query") from None


def text(exchange: Exchange, header: bytes) -> str | None:
    """A header's text, if it is there."""
    value = exchange.headers.get(header)
    return None if value is None else value.decode("latin-1")


def too_large(limit: int) -> TooLarge:
    """The refusal of a body over the limit."""
    return TooLarge(f"the body may have {limit} bytes at the most")


def too_late(timeout_s: float) -> InvalidRequest:
    """The refusal of a body that does not come."""
    return InvalidRequest(f"the body did not arrive within {timeout_s:g} s")


def check_announced(headers: Mapping[bytes, bytes], limit: int) -> None:
    """What can be said of a body before it is read.

    Raises:
        TooLarge: it says that it is over the limit.
        ContentTypeNotSupported: it is compressed.
    """
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise ContentTypeNotSupported("send the body uncompressed", field="Content-Encoding")
    length = headers.get(b"content-length")
    # Where it is no number, which other servers may let pass, the body is measured as it is read.
    if length is not None and length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise too_large(limit)
