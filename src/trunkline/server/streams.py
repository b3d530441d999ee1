"""Server-sent events: a reader with a place in a feed, and nothing else.

A stream keeps no queue. It sends what is newer than its place, then waits for the feed; if its
socket does not take a write for too long it is cut, and the ids it got let it resume.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from trunkline.clock import random_bits
from trunkline.errors import StoreError
from trunkline.http.exchange import EVENTS, Exchange
from trunkline.log.events import Compacted, Recorded
from trunkline.run.backlog import pages
from trunkline.server.frames import WHOLE_LIMIT, frame, opening_frames, range_frames
from trunkline.server.subscription import Subscription
from trunkline.store.base import Log
from trunkline.wire import sse
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
TICK_S = 1.0
# What is written at once, as far as frames allow: it is held for a reader until that has taken it.
PIECE_BYTES = 64 << 10
HEADERS = [
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]
# Whether the reader is still let in.
Lasting = Callable[[], bool]


class StreamEncoding(Struct, frozen=True):
    """How a binding writes the frames of a stream: the dialect, and what stands around each of them.

    A written answer of at most `whole_limit` characters closes with the whole of it.
    """

    dialect: Dialect
    before: bytes = b""
    behind: bytes = b""
    whole_limit: int = WHOLE_LIMIT


class OpenStream:
    """One open response."""

    __slots__ = (
        "_encoding",
        "_exchange",
        "_gone",
        "_lasting",
        "_streams",
        "_subscription",
        "beat",
        "blocked_at",
        "sent_at",
        "task",
    )

    def __init__(
        self,
        streams: Streams,
        exchange: Exchange,
        subscription: Subscription,
        encoding: StreamEncoding,
        lasting: Lasting | None,
    ) -> None:
        self._streams = streams
        self._exchange = exchange
        self._subscription = subscription
        self._encoding = encoding
        self._lasting = lasting
        self._gone = False
        self.beat = False
        self.blocked_at = 0.0
        self.sent_at = 0.0
        self.task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Send until the end of the task, of the caller's interest or of the server."""
        loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        # Without listening for the disconnect, a stream that is silent would never end.
        self._exchange.on_disconnect(self._left)
        try:
            await self._start(loop)
            await self._follow(loop)
        except asyncio.CancelledError:
            if not self.blocked_at:
                raise
            log.warning("stream.cut task=%s after=%s", *self._place())
        except StoreError as error:
            # Cut, not ended: its reader comes back with the last id it got, here or elsewhere.
            log.warning("stream.cut task=%s after=%s error=%s", *self._place(), error)
        finally:
            self._exchange.on_disconnect(None)

    def _place(self) -> tuple[str, int | None]:
        return self._subscription.feed.state.task_id, self._subscription.after

    def _left(self) -> None:
        self._gone = True
        self._subscription.feed.nudge()

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._exchange.begin(HEADERS)
        subscription = self._subscription
        # A spread of reconnects keeps a restart from being a stampede.
        body = b"retry: %d\n\n" % (1000 + random_bits(11))
        for each in opening_frames(subscription, self._encoding.dialect):
            if len(body) > PIECE_BYTES:
                await self._write(loop, body, more=True)
                body = b""
            body += self._wrap(*each)
        # A stream may stay for days; the task that it began with should not stay in memory with it.
        subscription.opening = None
        await self._write(loop, body, more=subscription.after is not None)

    async def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        subscription = self._subscription
        feed = subscription.feed
        while subscription.after is not None:
            if subscription.after < feed.base:
                await self._catch_up(loop, subscription.after)
            if self._is_shut_out():
                log.info("stream.ended task=%s after=%s reason=key", *self._place())
                await self._write(loop, b"", more=False)
                return
            body = self._render(feed.newer(subscription.after) or ())
            done = self._at_end() or self._streams.closing or self._gone
            if body or done:
                await self._write(loop, body, more=not done)
            elif self.beat:
                await self._write(loop, sse.COMMENT, more=True)
            if done:
                return
            # The word to end may have come while we wrote; nobody would say it again.
            if feed.state.seq == subscription.after and not (self._gone or self._streams.closing):
                await feed.changed(loop)

    async def _catch_up(self, loop: asyncio.AbstractEventLoop, after: int) -> None:
        # Page by page: however far behind a reader is, the server holds one page for it and can cut it.
        subscription = self._subscription
        async for page in pages(self._streams.log, subscription.feed, after):
            while page:
                await self._write(loop, self._render(page), more=True)
                if self._gone or self._streams.closing or self._is_shut_out():
                    return
                page = [recorded for recorded in page if recorded.seq > (subscription.after or 0)]

    def _is_shut_out(self) -> bool:
        """Whether its reader would not be let in any more: the key was revoked, or is over."""
        return self._lasting is not None and not self._lasting()

    def _render(self, records: Sequence[Recorded]) -> bytes:
        """The frames of the first of these events, as many as make a piece; they are behind us then."""
        subscription, dialect = self._subscription, self._encoding.dialect
        limit = self._encoding.whole_limit
        pieces: list[bytes] = []
        size = 0
        for recorded in records:
            if isinstance(recorded.event, Compacted):
                frames = range_frames(subscription.feed, recorded.event, dialect)
                seqs = [None] * (len(frames) - 1) + [recorded.seq]
                pieces += [self._wrap(*one) for one in zip(seqs, frames, strict=False)]
                size += sum(map(len, frames))
            elif made := frame(subscription.feed, recorded, dialect, limit):
                pieces.append(self._wrap(recorded.seq, made))
                size += len(made)
            subscription.after = recorded.seq
            if size > PIECE_BYTES:
                break
        return b"".join(pieces)

    def _wrap(self, seq: int | None, body: bytes) -> bytes:
        encoding = self._encoding
        return sse.frame(seq, encoding.before + body + encoding.behind)

    def _at_end(self) -> bool:
        subscription = self._subscription
        state = subscription.feed.state
        if subscription.after != state.seq:
            return False
        return state.over or (state.interrupted and not subscription.through_questions)

    async def _write(self, loop: asyncio.AbstractEventLoop, body: bytes, *, more: bool) -> None:
        self.blocked_at = loop.time()
        await self._exchange.write(body, more=more)
        self.sent_at = self.blocked_at
        self.blocked_at = 0.0
        self.beat = False

    def tick(self, now: float, keep_alive_s: float, write_limit_s: float) -> None:
        """Once a second: is it time for a sign of life, or has the reader stopped reading?"""
        if self.blocked_at:
            if now - self.blocked_at > write_limit_s and self.task is not None:
                self.task.cancel()
        elif now - self.sent_at >= keep_alive_s:
            self.beat = True
            self._subscription.feed.nudge()

    def wake(self) -> None:
        """Look up from waiting."""
        self._subscription.feed.nudge()


class Streams:
    """All open streams of the server, and the one clock they share."""

    def __init__(self, log: Log, keep_alive_s: float, write_limit_s: float) -> None:
        self.log = log
        self.closing = False
        self._keep_alive_s = keep_alive_s
        self._write_limit_s = write_limit_s
        self._open: set[OpenStream] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self,
        exchange: Exchange,
        subscription: Subscription,
        encoding: StreamEncoding,
        lasting: Lasting | None = None,
    ) -> None:
        """Answer an exchange with a stream, for as long as its reader is let in."""
        stream = OpenStream(self, exchange, subscription, encoding, lasting)
        self._open.add(stream)
        subscription.feed.readers += 1
        try:
            await stream.run()
        finally:
            subscription.feed.readers -= 1
            self._open.discard(stream)

    async def watch(self) -> None:
        """Tick every stream each second; owned by the application."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(TICK_S, self._keep_alive_s))
            now = loop.time()
            for stream in list(self._open):
                stream.tick(now, self._keep_alive_s, self._write_limit_s)

    def look(self) -> None:
        """Have every stream see now whether its reader is still let in."""
        for stream in list(self._open):
            stream.wake()

    def close(self) -> None:
        """End every stream cleanly at its next breath."""
        self.closing = True
        self.look()
