"""One HTTP/1.1 connection of `trunkline serve`.

Each request has one task; those that come before their turn wait in the order they came. All that
a stranger can make long has a bound: heads, bodies nobody asked for, silence, and standing still.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable, Hashable
from typing import cast

import httptools

from trunkline.http.connections import LARGE_BYTES, ServerState
from trunkline.http.exchange import is_list
from trunkline.http.request import ConnectionRequest

log = logging.getLogger("trunkline.server")
HEAD_LIMIT = 64 << 10
UNSENT_BYTES = 16 << 10
KERNEL_BYTES = 128 << 10
_UNSENT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
# Bytes a second that a reader who is behind has to take.
MIN_RATE = 4 << 10
HEAD_S = 10.0
IDLE_S = 75.0
# A caller whose next request was already on its way when the end began is told so instead of cut off.
LINGER_S = 0.5
# Requests that wait for their turn: ten thousand fit into one read, and each is far larger than its bytes.
WAITING = 128
# Chunks of one byte are six on the wire; beyond this it is not about the body any more.
OVERHEAD = 16
_CLOSE = b"content-length: 0\r\nconnection: close\r\n\r\n"
MALFORMED = b"HTTP/1.1 400 Bad Request\r\n" + _CLOSE
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSE


class _Nowhere(dict[bytes, bytes]):
    """Takes what comes behind a body: such a header has missed every check of the head."""

    def __setitem__(self, name: bytes, value: bytes) -> None:
        pass


_NOWHERE = _Nowhere()


class ServerConnection(asyncio.Protocol):
    """Bytes in, requests in turn, answers out."""

    __slots__ = (
        "_active",
        "_arriving",
        "_drain",
        "_headers",
        "_loop",
        "_parser",
        "_paused",
        "_peer",
        "_queue",
        "_read",
        "_refusal",
        "_state",
        "_stuck",
        "_taken",
        "_task",
        "_unread_by",
        "_until",
        "_upgrading",
        "_url",
        "blocked",
        "reader",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self.blocked = False
        self._paused = False
        self._peer: str | None = None
        # The request whose turn it is, with its task; the one whose body is on its way; those who wait.
        self._active: ConnectionRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._arriving: ConnectionRequest | None = None
        self._queue: deque[ConnectionRequest] | None = None
        # Said when all of these have been answered, and nothing after it.
        self._refusal: bytes | None = None
        self._url = b""
        self._headers: dict[bytes, bytes] = _NOWHERE
        # The head that asks for a WebSocket, as it is told to who speaks it.
        self._upgrading = b""
        # How much came since the last head or body ended, and in the last read; when silence gets too long.
        self._taken = 0
        self._read = 0
        self._until = state.now + (LINGER_S if state.draining else IDLE_S)
        self._drain: asyncio.Future[None] | None = None
        # Whose the last answer was, as the loop may say only after it that its reader is behind.
        self.reader: Hashable = None
        # By whom a large answer is counted as unread.
        self._unread_by: Hashable | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def peer(self) -> str:
        """Where the caller is."""
        if self._peer is None:
            name = cast("tuple[str, int] | str | None", self.transport.get_extra_info("peername"))
            self._peer = name[0] if isinstance(name, tuple) else ""
        return self._peer

    def date(self) -> bytes:
        """The header line that says when."""
        return self._state.date

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast("asyncio.Transport", transport)
        if not self._state.enter(self, self.transport):
            return
        # What a slow reader has not taken lies here; the usual 64 KiB would be most of what a stream costs.
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and _UNSENT is not None:
            # And in the kernel, which would take 4 MiB for each before anybody notices that it is slow.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _UNSENT, KERNEL_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller has left: whoever waits for it hears so, and nothing holds on to its last request."""
        self._state.connections.discard(self)
        self._look_away()
        self._parser = None
        self._arriving = self._queue = None
        if self._active is not None:
            self._hand_over()
            self._active.lose()
        self._wake()

    def _hand_over(self) -> None:
        """Uvicorn waits for the task, and cancels it when that takes too long."""
        if self._task is not None:
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._state.tasks.discard)

    def shutdown(self) -> None:
        """The server goes down: an answer that is on its way gets there; whoever asks now hears why not."""
        if self._active is None:
            self._until = self._state.now + LINGER_S
        else:
            self._active.keep = False
            self._hand_over()

    def tick(self, now: float) -> None:
        """Once a second: whoever owes us a head, or has nothing to say, does not keep its place for ever."""
        if self._active is None and now > self._until:
            self.transport.close()

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Bytes of the client have come."""
        self._read = len(data)
        self._taken += self._read
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgrading:
                self._upgrade(rest)
                return
            self._stay(rest)
        except httptools.HttpParserError as error:
            log.info("request.malformed")
            self._refuse(TOO_LONG if isinstance(error.__context__, OverflowError) else MALFORMED)
        if self._taken > HEAD_LIMIT:
            self._weigh()

    def _weigh(self) -> None:
        arriving = self._arriving
        if arriving is None:
            self._refuse(TOO_LONG)
        elif self._taken > HEAD_LIMIT + OVERHEAD * arriving.size:
            # Chunk extensions or trailers without end.
            self._refuse(MALFORMED)

    def eof_received(self) -> bool:
        """The caller says no more, but may still read: what it has asked for is answered; a stream is not."""
        active = self._active
        if active is None or active.begun or not active.whole:
            return False
        self._refuse(b"")
        return True

    def on_message_begin(self) -> None:
        """A head begins."""
        self._headers = {}
        self._url = b""
        self._until = self._state.now + HEAD_S

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; of several the last counts unless they are a list, as everywhere in the server."""
        headers = self._headers
        name = name.lower()
        if name in headers:
            if name == b"host" and headers[name] != value:
                # One of the two is what a proxy before us has judged, and nobody knows which.
                raise ValueError("two hosts")
            if is_list(name):
                value = headers[name] + b"," + value
        if name == b"transfer-encoding" and (name in headers or value.lower() != b"chunked"):
            # Nobody here would decode another coding; the parser takes what it wraps for the body.
            raise ValueError("a transfer coding that is not chunked")
        headers[name] = value

    def on_headers_complete(self) -> None:
        """A head is complete: its request starts, or waits for its turn."""
        if self._queue and len(self._queue) >= WAITING:
            raise ValueError("too many at once")
        if (self._taken > HEAD_LIMIT or self._read > HEAD_LIMIT) and self._head_size() > HEAD_LIMIT:
            # It came to its end within one read, before anybody could cut it short.
            raise OverflowError("a long head")
        parser = cast("httptools.HttpRequestParser", self._parser)
        headers, self._headers = self._headers, _NOWHERE
        if b"upgrade" in headers and self._takes_websocket(parser, headers):
            self._upgrading = b"GET %b HTTP/1.1\r\n%b\r\n" % (
                self._url,
                b"".join([b"%b: %b\r\n" % header for header in headers.items()]),
            )
            return
        request = ConnectionRequest(self, parser.get_method().decode("ascii"), self._url, headers)
        request.keep = parser.should_keep_alive() and not self._state.draining
        if not request.keep or b"connection" in headers:
            request.old = parser.get_http_version() < "1.1"
            request.keep = request.keep and not request.old
        self._taken = 0
        self._arriving = request
        if self._active is None:
            self._active = request
            self._task = self._loop.create_task(self._serve(request))
        else:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(request)
            self._pause()

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        if self._arriving is not None and self._arriving.take(body):
            self._pause()

    def on_message_complete(self) -> None:
        """A request is whole."""
        request = self._arriving
        if request is None:
            # It became another protocol.
            return
        self._arriving = None
        self._taken = 0
        request.whole = True
        request.wake()
        if self._paused and not self._queue:
            # A disconnect is heard only by who reads.
            self.read_on()

    def _takes_websocket(self, parser: httptools.HttpRequestParser, headers: dict[bytes, bytes]) -> bool:
        """Whether this head makes the connection a WebSocket: somebody speaks it, and nothing is owed."""
        return (
            self._state.websocket is not None
            and self._active is None
            and headers[b"upgrade"].lower() == b"websocket"
            and parser.get_method() == b"GET"
            and parser.should_upgrade()
        )

    def _upgrade(self, rest: bytes) -> None:
        """Hand the connection over, with all that came behind the head."""
        make = cast("Callable[[], asyncio.Protocol]", self._state.websocket)
        self._state.connections.discard(self)
        self._parser = None
        following = make()
        following.connection_made(self.transport)
        self.transport.set_protocol(following)
        following.data_received(self._upgrading + rest)

    def _stay(self, rest: bytes) -> None:
        """Somebody would like another protocol: it is answered in this one, and then let go.

        The parser takes everything behind such a head for the other protocol; if there is a body, it is
        read by a parser that knows nothing but how long it is.
        """
        request = cast("ConnectionRequest", self._queue[-1] if self._queue else self._active)
        request.keep = False
        self._parser = None
        headers = request.headers
        for name in (b"content-length", b"transfer-encoding"):
            if name in headers and headers[name] != b"0":
                request.whole = False
                self._arriving = request
                self._parser = httptools.HttpRequestParser(_Body(self))
                self.data_received(b"POST / HTTP/1.1\r\n%b: %b\r\n\r\n" % (name, headers[name]) + rest)
                return

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Somebody wants what comes next."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    # Answering.

    async def _serve(self, request: ConnectionRequest | None) -> None:
        while request is not None:
            try:
                await self._state.answer(request)
            except asyncio.CancelledError:
                self.transport.close()
                raise
            except Exception as error:  # noqa: BLE001 - logged; the caller hears that it was our fault
                log.error("request.broke", exc_info=error)
                await self._apologize(request)
            request = self._turn(request)
        self._task = None

    async def _apologize(self, request: ConnectionRequest) -> None:
        if not request.begun and not request.answered:
            request.keep = False
            await request.respond(500, b"")

    def _turn(self, request: ConnectionRequest) -> ConnectionRequest | None:
        """After an answer: the next request that waits, if the connection lasts."""
        self._active = None
        if request.gone:
            return None
        if not request.keep or not request.answered:
            # One that has begun and not ended was cut: the missing end says so.
            self.transport.close()
            return None
        if self._queue:
            following = self._active = self._queue.popleft()
            if not self._queue and self._refusal is None:
                self.read_on()
            return following
        if self._refusal is not None:
            self._refuse(self._refusal)
        self._until = self._state.now + (IDLE_S if self._headers is _NOWHERE else HEAD_S)
        return None

    def _refuse(self, answer: bytes) -> None:
        """Say this in its turn, then close; nothing that came after the fault is read."""
        arriving, self._arriving = self._arriving, None
        if arriving is not None and arriving is not self._active and self._queue:
            self._queue.remove(arriving)
        if self._active is not None and arriving is not self._active:
            self._refusal = self._refusal or answer
            self._parser = None
            self._pause()
            return
        begun = False
        if arriving is not None:
            begun = arriving.begun
            arriving.lose()
        if not self.transport.is_closing():
            if answer and not begun:
                self.transport.write(answer)
            self.transport.close()

    # Writing.

    def drained(self) -> asyncio.Future[None]:
        """Done when the reader has caught up, or has gone."""
        self._drain = self._loop.create_future()
        return self._drain

    def _wake(self) -> None:
        self.blocked = False
        if self._unread_by is not None:
            self._state.unread.remove(self._unread_by, self)
            self._unread_by = None
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None

    def pause_writing(self) -> None:
        """The reader is behind; from now on it has to keep up a rate."""
        self.blocked = True
        self._look_again()
        size = self.transport.get_write_buffer_size()
        if size > LARGE_BYTES:
            reader = self._unread_by = self.reader or self.peer()
            self._state.unread.add(reader, self, size)

    def drop(self) -> None:
        """Let go of a reader for whom too much is held."""
        self._unread_by = None
        self.transport.abort()

    def resume_writing(self) -> None:
        """The reader has caught up."""
        self._look_away()
        self._wake()

    def _look_again(self) -> None:
        self._look_away()
        self._stuck = self._loop.call_later(
            self._state.write_limit_s, self._judge, self.transport.get_write_buffer_size()
        )

    def _look_away(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _judge(self, before: int) -> None:
        # A close would wait for the reader to take the rest, and one that stands still never does. One that
        # takes a byte now and then would hold a large answer for days.
        taken = before - self.transport.get_write_buffer_size()
        if taken < min(before, MIN_RATE * self._state.write_limit_s):
            self.transport.abort()
        else:
            self._look_again()


class _Body:
    """The body of a request whose head was read by another parser."""

    def __init__(self, connection: ServerConnection) -> None:
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete
