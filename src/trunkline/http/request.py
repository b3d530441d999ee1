"""One request on a connection of `trunkline serve`: the server's exchange, right on the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

import httptools
from msgspec import Struct

from trunkline.http.connections import LARGE_BYTES
from trunkline.http.exchange import JSON, Disconnected, Headers, check_announced, too_large, too_late

if TYPE_CHECKING:
    from trunkline.http.connection import ServerConnection

# What is read of a body before somebody asks for it.
READ_AHEAD = 64 << 10
_STATUS = {each.value: b"HTTP/1.1 %d %b\r\n" % (each, each.phrase.encode()) for each in HTTPStatus}
_KEPT = b"\r\n"
_LAST = b"connection: close\r\n\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Such an answer is over after its head, whatever that says of a length.
_HEADS_ONLY = (204, 304)
_COME_AGAIN = 429
# As numbers: a `bytes` is taken for one first, and the error that this gives costs more than the search.
_PERCENT, _QUESTION, _HASH = b"%?#"


class ConnectionRequest(Struct, eq=False):
    """A request as it arrives and is answered; made when its head is complete.

    Its target, which is given as `raw_path`, may have a query.
    """

    _connection: ServerConnection
    method: str
    raw_path: bytes
    headers: dict[bytes, bytes]
    path: str = ""
    query_string: bytes = b""
    base: str = ""
    prefix: str = ""
    also: Headers = ()
    reader: Hashable = None
    # Whether the connection outlives the answer; whether the caller speaks HTTP/1.0.
    keep: bool = True
    old: bool = False
    # The request's way in: all of it is here; its caller has left.
    whole: bool = False
    gone: bool = False
    # The answer's way out: a first piece is on it; all of it is.
    begun: bool = False
    answered: bool = False
    size: int = 0
    _pieces: list[bytes] = []
    _limit: int = 0
    _waiter: asyncio.Future[None] | None = None
    _left: Callable[[], None] | None = None
    _head: bytes = b""

    def __post_init__(self) -> None:
        """Take the target apart.

        Raises:
            ValueError: it is no path.
        """
        url = self.raw_path
        if _PERCENT in url or _QUESTION in url or _HASH in url or url[:1] != b"/":
            self.path, self.raw_path, self.query_string = _taken_apart(url)
        else:
            self.path = url.decode("ascii")

    def __repr__(self) -> str:
        # Headers and query stay unsaid: they may hold credentials.
        return f"ConnectionRequest({self.method} {self.path!a})"

    def peer(self) -> str:
        """The address of the caller."""
        return self._connection.peer()

    def address(self) -> tuple[str, str, int | None]:
        """Scheme, host and port at which the request came in."""
        transport = self._connection.transport
        scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        name = cast("tuple[str, int] | str | None", transport.get_extra_info("sockname"))
        if isinstance(name, tuple):
            return scheme, name[0], name[1]
        return scheme, "127.0.0.1", None

    def take(self, piece: bytes) -> bool:
        """Keep a piece of the body; True if that is enough for now."""
        self.size += len(piece)
        self._pieces.append(piece)
        if self._waiter is None:
            return self.size > READ_AHEAD
        if self.size > self._limit:
            self.wake()
            return True
        return False

    def wake(self) -> None:
        """Nothing more is to be waited for."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def lose(self) -> None:
        """The caller has left."""
        self.gone = True
        self.wake()
        if self._left is not None:
            self._left()

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body."""
        # Of what is all here nothing needs to be announced but how to read it.
        if not self.whole or b"content-encoding" in self.headers:
            check_announced(self.headers, limit)
        if not self.whole and self.size <= limit:
            await self._arrive(limit, timeout_s)
        if self.size > limit:
            raise too_large(limit)
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def _arrive(self, limit: int, timeout_s: float) -> None:
        if self.gone:
            raise Disconnected
        connection = self._connection
        if self.headers.get(b"expect", b"").lower() == b"100-continue" and not (self.size or self.old):
            connection.transport.write(_CONTINUE)
        self._limit = limit
        self._waiter = asyncio.get_running_loop().create_future()
        connection.read_on()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            raise too_late(timeout_s) from None
        finally:
            self._waiter = None
        if self.gone:
            raise Disconnected

    async def respond(
        self, status: int, body: bytes, media_type: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Send a whole answer, at once."""
        connection = self._connection
        if connection.blocked:
            await connection.drained()
        if self.gone:
            return
        if self.also:
            headers = (*headers, *self.also)
        more = _lines(headers) if headers else b""
        end = self._end(status)
        # What is large goes out beside its head: joined, it would be in memory twice.
        large = body if len(body) > LARGE_BYTES and self.method != "HEAD" else b""
        if body:
            answer = b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b" % (
                _STATUS.get(status) or _status_line(status),
                connection.date(),
                media_type,
                len(body),
                more,
                end,
                b"" if large or self.method == "HEAD" else body,
            )
        else:
            bare = status in _HEADS_ONLY or b"content-length:" in more
            length = b"" if bare else b"content-length: 0\r\n"
            answer = b"".join((_status_line(status), connection.date(), more, length, end))
        connection.reader = self.reader
        if large:
            connection.transport.writelines((answer, large))
        else:
            connection.transport.write(answer)
        self.answered = True

    def _end(self, status: int = 200) -> bytes:
        if self._pieces or not self.whole:
            # Nobody read its body. Else we would go on taking in, and throwing away, whatever comes. But who
            # is told to come again later, and has sent all of it, need not connect anew for that.
            self.keep = self.keep and self.whole and status == _COME_AGAIN
        return _KEPT if self.keep else _LAST

    async def begin(self, headers: Headers, status: int = 200) -> None:
        """Begin an answer whose length nobody knows yet; its head goes out with its first piece."""
        # HTTP/1.0 knows no chunks: there the end of the connection is the end of the answer.
        framing = b"" if self.old or status in _HEADS_ONLY else _CHUNKED
        lines = _lines((*headers, *self.also))
        self._head = b"".join((_status_line(status), self._connection.date(), lines, framing, self._end()))
        self._pieces.clear()
        self.begun = True

    async def write(self, body: bytes, *, more: bool) -> None:
        """Send a piece of it; waits while the caller does not read."""
        connection = self._connection
        if connection.blocked:
            await connection.drained()
        if self.gone:
            return
        head, self._head = self._head, b""
        if not self.old:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = chunk if more else chunk + b"0\r\n\r\n"
        connection.reader = self.reader
        connection.transport.write(head + body)
        self.answered = not more

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        """Have it called when the caller leaves; None when nobody wants to hear of it any more."""
        self._left = left
        if left is not None and self.gone:
            left()


def _taken_apart(url: bytes) -> tuple[str, bytes, bytes]:
    """The path, the same as it was sent, and the query."""
    parsed = httptools.parse_url(url)
    raw = cast("bytes | None", parsed.path)
    if raw is None:
        raise ValueError("a target without a path")
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, raw, parsed.query or b""


def _status_line(status: int) -> bytes:
    return _STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status


def _lines(headers: Headers) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    # They are all our own. Should one ever repeat a caller's line end, better no answer than two.
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError("a header holds the end of a line")
    return lines
