"""Server-sent events: a reader with a place in a feed, and nothing else.

A stream keeps no queue. It sends what is newer than its place, then waits for the feed; if its
socket does not take a write for too long it is cut, and the ids it got let it resume.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trunkline.clock import random_bits
from trunkline.errors import StoreError
from trunkline.log.events import Compacted, Recorded
from trunkline.run.feed import Feed, pages
from trunkline.server.frames import frame, range_frames
from trunkline.server.request import EVENTS, Exchange
from trunkline.store.base import Log
from trunkline.wire import sse
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
TICK_S = 1.0
HEADERS = [
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_Place = tuple[int | None, bytes]
# Whether the reader is still let in.
Lasting = Callable[[], bool]


class Plan:
    """What a stream shall send: some frames at once, then the events after a seq until an end."""

    __slots__ = ("after", "dialect", "feed", "opening", "through_questions")

    def __init__(
        self,
        feed: Feed,
        dialect: Dialect,
        opening: list[_Place],
        after: int | None,
        *,
        through_questions: bool,
    ) -> None:
        self.feed = feed
        self.dialect = dialect
        self.opening = opening
        self.after = after
        self.through_questions = through_questions


class Stream:
    """One open response."""

    __slots__ = (
        "_around",
        "_exchange",
        "_gone",
        "_lasting",
        "_plan",
        "_streams",
        "beat",
        "blocked_at",
        "sent_at",
        "task",
    )

    def __init__(
        self,
        streams: Streams,
        exchange: Exchange,
        plan: Plan,
        around: tuple[bytes, bytes],
        lasting: Lasting | None,
    ) -> None:
        self._streams = streams
        self._exchange = exchange
        self._plan = plan
        self._around = around
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
            log.warning("stream.cut task=%s after=%s", self._plan.feed.state.task_id, self._plan.after)
        except StoreError as error:
            # Cut, not ended: its reader comes back with the last id it got, here or elsewhere.
            task_id, after = self._plan.feed.state.task_id, self._plan.after
            log.warning("stream.cut task=%s after=%s error=%s", task_id, after, error)
        finally:
            self._exchange.on_disconnect(None)

    def _left(self) -> None:
        self._gone = True
        self._plan.feed.nudge()

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._exchange.begin(HEADERS)
        # A spread of reconnects keeps a restart from being a stampede.
        body = b"retry: %d\n\n" % (1000 + random_bits(11)) + b"".join(map(self._wrap, self._plan.opening))
        await self._write(loop, body, more=self._plan.after is not None)

    async def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        plan = self._plan
        feed = plan.feed
        while plan.after is not None:
            if plan.after < feed.base:
                await self._catch_up(loop, plan.after)
            if self._is_shut_out():
                log.info("stream.ended task=%s after=%s reason=key", feed.state.task_id, plan.after)
                await self._write(loop, b"", more=False)
                return
            records = feed.newer(plan.after)
            body = self._render(records) if records else b""
            done = self._at_end() or self._streams.closing or self._gone
            if body or done:
                await self._write(loop, body, more=not done)
            elif self.beat:
                await self._write(loop, sse.COMMENT, more=True)
            if done:
                return
            # The word to end may have come while we wrote; nobody would say it again.
            if feed.state.seq == plan.after and not (self._gone or self._streams.closing):
                await feed.changed(loop)

    async def _catch_up(self, loop: asyncio.AbstractEventLoop, after: int) -> None:
        # Page by page: however far behind a reader is, the server holds one page for it and can cut it.
        async for page in pages(self._streams.log, self._plan.feed, after):
            await self._write(loop, self._render(page), more=True)
            if self._gone or self._streams.closing or self._is_shut_out():
                return

    def _is_shut_out(self) -> bool:
        """Whether its reader would not be let in any more: the key was revoked, or is over."""
        return self._lasting is not None and not self._lasting()

    def _render(self, records: list[Recorded]) -> bytes:
        plan = self._plan
        pieces: list[bytes] = []
        for recorded in records:
            if isinstance(recorded.event, Compacted):
                frames = range_frames(plan.feed, recorded.event, plan.dialect)
                places = [None] * (len(frames) - 1) + [recorded.seq]
                pieces += [self._wrap(one) for one in zip(places, frames, strict=False)]
                continue
            made = frame(plan.feed, recorded, plan.dialect)
            if made:
                pieces.append(self._wrap((recorded.seq, made)))
        plan.after = records[-1].seq
        return b"".join(pieces)

    def _wrap(self, place: _Place) -> bytes:
        before, behind = self._around
        return sse.frame(place[0], before + place[1] + behind)

    def _at_end(self) -> bool:
        plan = self._plan
        state = plan.feed.state
        if plan.after != state.seq:
            return False
        return state.over or (state.interrupted and not plan.through_questions)

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
            self._plan.feed.nudge()

    def wake(self) -> None:
        """Look up from waiting."""
        self._plan.feed.nudge()


class Streams:
    """All open streams of the server, and the one clock they share."""

    def __init__(self, log: Log, keep_alive_s: float, write_limit_s: float) -> None:
        self.log = log
        self.closing = False
        self._keep_alive_s = keep_alive_s
        self._write_limit_s = write_limit_s
        self._open: set[Stream] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self, exchange: Exchange, plan: Plan, around: tuple[bytes, bytes], lasting: Lasting | None = None
    ) -> None:
        """Answer an exchange with a stream, for as long as its reader is let in."""
        stream = Stream(self, exchange, plan, around, lasting)
        self._open.add(stream)
        plan.feed.readers += 1
        try:
            await stream.run()
        finally:
            plan.feed.readers -= 1
            self._open.discard(stream)

    async def watch(self) -> None:
        """Tick every stream each second; owned by the application."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(TICK_S, self._keep_alive_s))
            now = loop.time()
            for stream in list(self._open):
                stream.tick(now, self._keep_alive_s, self._write_limit_s)

    def close(self) -> None:
        """End every stream cleanly at its next breath."""
        self.closing = True
        for stream in list(self._open):
            stream.wake()
