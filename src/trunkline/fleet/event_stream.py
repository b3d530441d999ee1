"""The events of a task as server-sent events, from any place in its log to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from trunkline.errors import InvalidParams
from trunkline.fleet.call import read_seq
from trunkline.fleet.views import event_row
from trunkline.http.asgi import Receive, Send
from trunkline.http.exchange import EVENTS
from trunkline.log.events import Recorded
from trunkline.run.backlog import pages
from trunkline.run.feed import Feed
from trunkline.store.base import Log
from trunkline.wire import sse

START_EVENTS = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", EVENTS),
        (b"cache-control", b"no-store, no-transform"),
        (b"x-accel-buffering", b"no"),
    ],
}


def place_in(feed: Feed, last_event_id: str | None) -> int:
    """The seq that a reader goes on behind: that of its Last-Event-ID, else the beginning.

    Raises:
        InvalidParams: the task has no such event.
    """
    after = 0 if last_event_id is None else read_seq(last_event_id, "Last-Event-ID")
    if after > feed.state.seq:
        raise InvalidParams(f"Last-Event-ID must be 0 to {feed.state.seq}", field="Last-Event-ID")
    return after


class EventStream:
    """One reader of a task with its place in the log; it keeps no queue."""

    def __init__(self, log: Log, feed: Feed, after: int, keep_alive_s: float) -> None:
        self._log = log
        self._feed = feed
        self._after = after
        self._keep_alive_s = keep_alive_s

    async def serve(self, receive: Receive, send: Send) -> None:
        """Send every event behind the place, until the task has ended or the reader has left."""
        await send(START_EVENTS)
        left = asyncio.ensure_future(until_left(receive))
        try:
            await self._follow(send, left)
        finally:
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)

    async def _follow(self, send: Send, left: asyncio.Future[None]) -> None:
        feed, loop = self._feed, asyncio.get_running_loop()
        # At once, so that a reader of a quiet task knows that it is heard.
        await self._write(send, sse.COMMENT)
        while True:
            async for page in pages(self._log, feed, self._after):
                await self._tell(send, page)
            await self._tell(send, feed.newer(self._after) or ())
            if self._after == feed.state.seq and self._is_over():
                await self._end(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if self._after == feed.state.seq and not await self._wait(send, left, feed.changed(loop)):
                return

    async def _wait(self, send: Send, left: asyncio.Future[None], changed: asyncio.Future[None]) -> bool:
        """Wait for more, with a sign of life from time to time; False if the reader has left."""
        try:
            while not changed.done() and not left.done():
                await asyncio.wait(
                    (left, changed), timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not changed.done() and not left.done():
                    await self._write(send, sse.COMMENT)
            if changed.done():
                # It may say that the log cannot be read any more.
                changed.result()
            return not left.done()
        finally:
            changed.cancel()

    async def _tell(self, send: Send, records: Sequence[Recorded]) -> None:
        # Those that came while a page was written may be in the next one too.
        for recorded in [one for one in records if one.seq > self._after]:
            if told := self._frame(recorded):
                await self._write(send, told)
            self._after = recorded.seq

    # What another kind of reader is told.

    def _is_over(self) -> bool:
        """Whether nothing more is told."""
        return self._feed.state.over

    def _frame(self, recorded: Recorded) -> bytes:
        """The frame of an event; empty for an event that is not told."""
        return sse.frame(recorded.seq, msgspec.json.encode(event_row(recorded)))

    async def _end(self, send: Send) -> None:
        """Tell that nothing more comes; the end of the answer says so."""

    async def _write(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def until_left(receive: Receive) -> None:
    """Wait until the caller has left."""
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass
