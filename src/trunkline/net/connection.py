"""One HTTP/1.1 connection to a server: a request out, its answer in, and then the next.

It belongs to a pool, which has all connections to one origin. All that a stranger can make long is bounded.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import httptools

from trunkline.errors import Unreachable
from trunkline.net.http import Body

if TYPE_CHECKING:
    from trunkline.net.pool import ConnectionPool

HEAD_LIMIT = 64 << 10
# Chunks of one byte are six on the wire; beyond this it is not about the body any more.
OVERHEAD = 16
_EMPTY = frozenset({204, 304})


def refuse_packed(host: str, headers: Mapping[str, str]) -> None:
    """Let an answer of a host pass that is as it was asked for.

    Raises:
        Unreachable: it is packed. Unpacked it could have any size, and taken as it is it would be nonsense.
    """
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Unreachable(f"{host}: the answer is packed, though nobody asked for that", reason="protocol")


class SocketResponse:
    """A response over a connection, which may serve somebody else as soon as all of the response has come."""

    __slots__ = ("_connection", "body", "headers", "status")

    def __init__(
        self, connection: ClientConnection, status: int, headers: dict[str, str], body: Body
    ) -> None:
        self._connection = connection
        # As it was sent, packed or not.
        self.body = body
        self.status = status
        self.headers = headers

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        """See `HttpResponse`."""
        self._refuse_packed()
        return await self.body.read(limit, idle_s)

    def chunks(self, *, idle_s: float | None = None) -> Body:
        """See `HttpResponse`."""
        self._refuse_packed()
        return self.body.chunks(idle_s)

    @property
    def is_read(self) -> bool:
        """Whether all of the body has come, and was read."""
        return self.body.is_read

    def _refuse_packed(self) -> None:
        if not self.body.is_empty:
            refuse_packed(self._connection.host, self.headers)

    async def close(self) -> None:
        """See `HttpResponse`. A body that is not read costs the connection: the rest may be endless."""
        if not self.body.whole:
            self._connection.abort()
        self.body.drop()


class ClientConnection(asyncio.Protocol):
    """A connection to a server, fed by the event loop and read by the parser."""

    __slots__ = (
        "_blocked",
        "_body",
        "_carried",
        "_done",
        "_endless",
        "_headers",
        "_interim",
        "_is_head",
        "_keep",
        "_loop",
        "_parser",
        "_paused",
        "_poll",
        "_pool",
        "_since",
        "_taken",
        "_transport",
        "_waiter",
        "busy",
        "gone",
        "host",
        "idle_at",
        "spoke",
    )

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.host = pool.host
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._waiter: asyncio.Future[SocketResponse] | None = None
        self._body: Body | None = None
        self._headers: dict[str, str] | None = None
        # What came since the request, how much of it was body, and what came since the last of the body.
        self._taken = self._carried = self._since = 0
        self._blocked = self._paused = False
        self._interim = self._done = self._keep = self._endless = self._is_head = False
        # Between a request and the end of its answer; whether any of the answer has come.
        self.busy = self.spoke = False
        self.idle_at = 0.0
        self.gone: asyncio.Future[None] = self._loop.create_future()

    # What the pool and the HTTP client do.

    async def ask(self, head: bytes, body: bytes | None, is_head: bool) -> SocketResponse:
        """Send a request; gives its answer when the head of that is there.

        Whoever does not wait for it costs the connection, unless it came after all: then others are served.
        """
        self._taken = self._carried = self._since = 0
        self._interim = self._done = self._keep = self._endless = self.spoke = False
        self._is_head = is_head
        self.busy = True
        waiter = self._waiter = self._loop.create_future()
        transport = self._transport
        if transport is None or transport.is_closing():
            self._fail(Unreachable(f"{self.host}: hangs up on every connection", reason="connect"))
        elif not body:
            transport.write(head)
        elif len(body) < HEAD_LIMIT:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        try:
            return await waiter
        except BaseException:
            if self._waiter is waiter:
                self.abort()
            raise

    def is_fresh(self) -> bool:
        """Whether it can still be used, as far as the kernel knows: the event loop may not have heard yet."""
        if self._transport is None or self._transport.is_closing():
            return False
        return not self._poll.poll(0)

    def abort(self) -> None:
        """Close at once: whatever was still to be sent or read is of no use to anybody."""
        if self.busy:
            reason = "sent" if self._body is None else "connect"
            self._fail(Unreachable(f"{self.host}: the connection was closed here", reason=reason))
            self._settle(False)
        elif self._transport is not None:
            self._transport.abort()

    # What the event loop does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        # So that anything unsent counts as blocked; TLS counts from its limit on, the others beyond it.
        self._transport.set_write_buffer_limits(high=1 if transport.get_extra_info("sslcontext") else 0)
        self._pool.add(self)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Feed the parser with what came."""
        if not self.busy:
            # Nobody has asked: whatever it is, it must not become the answer to the next request.
            self.abort()
            return
        self.spoke = True
        size = len(data)
        self._taken += size
        self._since += size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("the server changed the protocol")
        except httptools.HttpParserError as error:
            long = isinstance(error.__context__, OverflowError)
            self._break(f"the answer's head is over {HEAD_LIMIT} bytes" if long else "the answer is not HTTP")
        else:
            if self._done:
                self._settle(self._keep)
            elif self._taken > HEAD_LIMIT + OVERHEAD * self._carried:
                self._break(f"the answer's head is over {HEAD_LIMIT} bytes")
            elif self._since > HEAD_LIMIT + size:
                # The parser gathers a trailer whole, however long the body before it was.
                self._break(f"what follows the answer's body is over {HEAD_LIMIT} bytes")

    def eof_received(self) -> None:
        """Nothing more will come. Where nothing else says so, that is the end of a body."""
        if self._endless and self._body is not None:
            self._body.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; whoever waits hears why."""
        self._transport = None
        if self.busy:
            host = self.host
            if self._body is None:
                error = Unreachable(f"{host}: the connection broke off before an answer", reason="sent")
                # Whoever must tell a reset from a polite end finds it there.
                error.__cause__ = exc
                self._fail(error)
            elif exc is not None:
                self._fail(Unreachable(f"{host}: the connection broke off", reason="connect"))
            else:
                self._fail(Unreachable(f"{host}: the answer ends too soon", reason="protocol"))
            self._settle(False)
        # The parser holds on to this connection.
        self._parser = cast("httptools.HttpResponseParser", None)
        self._pool.remove(self)
        # Whoever waited for it may have given up.
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        """Note that something is not sent yet."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Note that all is sent."""
        self._blocked = False

    # What the parser does.

    def on_message_begin(self) -> None:
        """Begin a head."""
        if self._done:
            raise ValueError("an answer that nobody asked for")
        self._headers = {}

    def on_header(self, raw_name: bytes, raw_value: bytes) -> None:
        """Note a header. Those behind a body have missed every check of the head, and are left out."""
        headers = self._headers
        if headers is None:
            return
        name = _name(raw_name)
        value = raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value

    def on_headers_complete(self) -> None:
        """A head is complete: whoever waits has its response."""
        headers, self._headers = self._headers, None
        assert headers is not None
        if self._taken > HEAD_LIMIT and sum(len(n) + len(v) + 4 for n, v in headers.items()) > HEAD_LIMIT:
            # It came to its end within one read, before anybody could cut it short.
            raise OverflowError("a long head")
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            return
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise ValueError("a body in an unknown coding")
        self._endless = coding is None and "content-length" not in headers and status not in _EMPTY
        body = self._body = Body(self._loop, self.host, self._read_on)
        if self._is_head:
            body.end()
            # The parser would take what follows for a body: this is the last answer of the connection.
            self._done = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(SocketResponse(self, status, headers, body))

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body."""
        body = self._body
        assert body is not None
        self._carried += len(piece)
        self._since = 0
        if not body.whole and body.feed(piece) and not self._paused:
            self._paused = True
            cast("asyncio.Transport", self._transport).pause_reading()

    def on_message_complete(self) -> None:
        """The response has come to its end."""
        if self._interim:
            self._interim = False
            return
        if not self._done:
            self._done = True
            self._keep = self._parser.should_keep_alive()
            if self._body is not None:
                self._body.end()

    def _read_on(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # The end of an exchange.

    def _break(self, why: str) -> None:
        """End the answer with an error, because bytes came that are wrong; what came before them stays."""
        reason = "sent" if self._body is None else "protocol"
        self._fail(Unreachable(f"{self.host}: {why}", reason=reason))
        self.abort()

    def _fail(self, error: Unreachable) -> None:
        if self._body is not None:
            self._body.end(error)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _settle(self, keep: bool) -> None:
        self.busy = False
        self._waiter = self._body = None
        # An answer that came before all of the request was sent says that the rest is not wanted.
        if keep and not self._blocked and self._transport is not None and not self._transport.is_closing():
            if self._paused:
                self._read_on()
            self._pool.settle(self, True)
            return
        if self._transport is not None:
            self._transport.abort()
        self._pool.settle(self, False)


@lru_cache(maxsize=512)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()
