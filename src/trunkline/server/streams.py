"""Server-sent events: what a subscription shall tell, and a reader with a place in a feed, nothing else.

A stream keeps no queue. It sends what is newer than its place, then waits for the feed; if its
socket does not take a write for too long it is cut, and the ids it got let it resume.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from trunkline import errors
from trunkline.clock import random_bits
from trunkline.errors import StoreError
from trunkline.http.exchange import EVENTS, Exchange
from trunkline.log.events import Chunk, Compacted, Delta, Recorded, Replied, Status, Submitted
from trunkline.log.fold import State, fold
from trunkline.run.backlog import pages
from trunkline.run.feed import Feed
from trunkline.store.base import Log
from trunkline.wire import sse
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import (
    RESTING,
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from trunkline.wire.v03 import V03_FLAT
from trunkline.wire.writer import WRITERS, Dialect, Writer

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
NOTHING = b""
# A written answer that is longer closes with its last piece: readers have had all of it.
WHOLE_LIMIT = 256 << 10
NO_WHOLE = -1
# More events than any log holds.
MAX_SEQ = 10**9


class Subscription(Struct):
    """What a stream shall tell: the task or message it opens with, then the events after a seq until an end.

    Without `after` there is nothing to follow: it is over with its opening.
    """

    feed: Feed
    after: int | None
    through_questions: bool = False
    opening: Task | Message | None = None
    # The seq at which the opening stands; a reader resumes from it.
    opening_seq: int | None = None


def resume(feed: Feed, last_event_id: str | None, *, through_questions: bool) -> Subscription:
    """Follow a task from the last event that its reader saw, else from now."""
    state = feed.state
    if last_event_id is not None:
        return Subscription(feed, read_place(last_event_id, state.seq), through_questions)
    after = None if state.over else state.seq
    return Subscription(feed, after, through_questions, state.task(), state.seq)


def direct_answer(feed: Feed) -> Message | None:
    """The message that answers in the place of a task, if the feed holds nothing else beyond its opening."""
    # The clients of flat tasks read tasks and their updates only.
    records = None if feed.state.flat else feed.newer(0)
    last = records[-1].event if records and len(records) == feed.state.opened + 1 else None
    return last.message if isinstance(last, Replied) else None


def read_place(text: str, newest: int = MAX_SEQ) -> int:
    """The seq in a Last-Event-ID.

    Raises:
        InvalidParams: it is no number, or larger than the newest one.
    """
    if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= newest:
        return int(text)
    raise errors.InvalidParams(
        f"Last-Event-ID must be the id of an event of this task, 0 to {newest}; "
        "subscribe without it to start over",
        field="Last-Event-ID",
    )


class StreamEncoding(Struct, frozen=True):
    """How a binding writes the frames of a stream: the dialect, and what stands around each of them.

    A written answer of at most `whole_limit` characters closes with the whole of it.
    """

    dialect: Dialect
    before: bytes = b""
    behind: bytes = b""
    whole_limit: int = WHOLE_LIMIT


class OpenStream(Struct, eq=False):
    """One open response."""

    _streams: Streams
    _exchange: Exchange
    _subscription: Subscription
    _encoding: StreamEncoding
    _lasting: Lasting | None
    _gone: bool = False
    beat: bool = False
    # When a write began that its reader has not taken, and when the last one was taken.
    blocked_at: float = 0.0
    sent_at: float = 0.0
    task: asyncio.Task[object] | None = None

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
        # The clients of flat tasks concatenate the pieces of an artifact.
        limit = NO_WHOLE if subscription.feed.state.flat else self._encoding.whole_limit
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


def range_frames(feed: Feed, event: Compacted, dialect: Dialect) -> list[bytes]:
    """What stands for the pieces of artifacts that are no longer kept: the artifacts themselves."""
    writer = _writer(feed.state, dialect)
    frames = [whole(feed.state, artifact.artifact_id, writer) for artifact in event.artifacts]
    return [made for made in frames if made]


def frame(feed: Feed, recorded: Recorded, dialect: Dialect, whole_limit: int = WHOLE_LIMIT) -> bytes:
    """The frame of one event; empty for events that are not on the wire.

    The end of a written answer tells all of it, if that has at most `whole_limit` characters: some clients
    keep nothing but the frame with `lastChunk`.
    """
    key = (dialect, recorded.seq)
    made = feed.frames.get(key)
    if made is None:
        made = _encode(feed.state, recorded, dialect, whole_limit)
        if feed.readers > 1 and recorded.seq > feed.base:
            feed.frames[key] = made
    return made


def _encode(state: State, recorded: Recorded, dialect: Dialect, whole_limit: int) -> bytes:
    writer = _writer(state, dialect)
    match recorded.event:
        case Chunk() as event:
            if event.closes and _length(state, event.artifact.artifact_id) <= whole_limit:
                return whole(state, event.artifact.artifact_id, writer)
            update = ArtifactUpdate(state.task_id, state.context_id, event.artifact, event.append, event.last)
            return writer.artifact_frame(update)
        case Delta() as event:
            if event.last and _length(state, event.artifact_id) <= whole_limit:
                return whole(state, event.artifact_id, writer)
            artifact = Artifact(event.artifact_id, event.name, parts=(Part(text=event.text),))
            return writer.artifact_frame(
                ArtifactUpdate(state.task_id, state.context_id, artifact, event.append, event.last)
            )
        case Status() as event:
            status = TaskStatus(event.state, event.message, timestamp(recorded.at))
            return _status(state, status, writer, event.metadata)
        case Replied(message=message):
            return _status(state, TaskStatus(TaskState.COMPLETED, message, timestamp(recorded.at)), writer)
        case Submitted() if writer is V03_FLAT:
            return _status(state, TaskStatus(TaskState.SUBMITTED, None, timestamp(recorded.at)), writer)
        case Submitted():
            return writer.task_frame(writer.task(fold(state.task_id, (recorded,)).task()))
        case _:
            return NOTHING


def _writer(state: State, dialect: Dialect) -> Writer:
    return V03_FLAT if state.flat and dialect is Dialect.V03 else WRITERS[dialect]


def _length(state: State, artifact_id: str) -> int:
    return sum([len(part.text or "") for part in state.artifacts.whole(artifact_id).parts])


def _status(state: State, status: TaskStatus, writer: Writer, metadata: Metadata | None = None) -> bytes:
    if (
        status.state in TERMINAL
        and writer is WRITERS[Dialect.V1]
        and (reports := state.artifacts.bare_reports())
    ):
        # Nothing in 1.0 holds them but the task, and of that a stream tells its status alone.
        metadata = {**(metadata or {}), **reports}
    update = StatusUpdate(state.task_id, state.context_id, status, metadata)
    return writer.status_frame(update, final=status.state in RESTING)


def whole(state: State, artifact_id: str, writer: Writer, *, last: bool = True) -> bytes:
    """Return a whole artifact in one frame."""
    artifact = state.artifacts.whole(artifact_id)
    return writer.artifact_frame(ArtifactUpdate(state.task_id, state.context_id, artifact, last_chunk=last))


def opening_frames(given: Subscription, dialect: Dialect) -> Iterator[tuple[int | None, bytes]]:
    """What a stream opens with, and the seq that a reader resumes from; each is made when it is its turn.

    A task that has ended is followed by the frames that end its stream: artifacts and the last status. A flat
    task has only these, because its clients read no tasks in a stream.
    """
    opening, state = given.opening, given.feed.state
    writer = _writer(state, dialect)
    if isinstance(opening, Message):
        yield None, writer.message_frame(opening)
    elif opening is not None:
        is_flat = writer is V03_FLAT
        if not is_flat:
            yield given.opening_seq, writer.task_frame(writer.task(opening))
        if is_flat or given.after is None:
            for artifact in opening.artifacts:
                if made := whole(state, artifact.artifact_id, writer, last=given.after is None):
                    yield None, made
            yield given.opening_seq if is_flat else None, _status(state, opening.status, writer)
