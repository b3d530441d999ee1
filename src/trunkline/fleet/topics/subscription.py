"""Topics as they happen, from any position in the log, until the subscriber leaves."""

from __future__ import annotations

import asyncio
import logging
from asyncio import sleep
from collections.abc import Awaitable, Sequence

from trunkline.fleet.event_stream import until_left
from trunkline.fleet.topics.frame_writers import FrameWriter
from trunkline.fleet.topics.place import FeedPlace
from trunkline.fleet.topics.reader import TopicFrame, TopicReader
from trunkline.http.asgi import Receive
from trunkline.store.base import Log

log = logging.getLogger("trunkline.fleet")
PAGE = 200
# Events within this time after a read are found by the next one. Text is joined for longer, because an agent
# writes many small pieces.
PAUSE_S, TEXT_PAUSE_S = 0.05, 0.25
# The first may begin earlier than the one in which a subscriber was left, and must hold what was told last.
_FIRST_PAGE = 1000
# Who does not take a frame in this time is cut off; it can go on where it was.
SLOW_S = 30.0


class TopicSubscription:
    """One subscriber with its place in the log; it keeps no queue."""

    def __init__(
        self,
        events: Log,
        reader: TopicReader,
        tenant: str,
        place: FeedPlace,
        keep_alive_s: float,
        *,
        gap: TopicFrame | None = None,
        slow_s: float = SLOW_S,
    ) -> None:
        """Take where the subscriber goes on, and the frame that says that something before is missing."""
        self._log = events
        self._reader = reader
        self._tenant = tenant
        self._place = place
        self._keep_alive_s = keep_alive_s
        self._gap = gap
        self._slow_s = slow_s
        self._written_at = 0.0
        self._page = _FIRST_PAGE
        self._pause_s = PAUSE_S

    async def serve(self, receive: Receive, writer: FrameWriter) -> None:
        """Send every frame behind the place, until the subscriber has left, is too slow, or the store closes.

        Raises:
            StoreError: the store does not answer.
        """
        await writer.begin()
        left = asyncio.ensure_future(until_left(receive))
        work = asyncio.ensure_future(self._follow(writer))
        try:
            await asyncio.wait((left, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        except TimeoutError:
            log.info("topics.slow tenant=%s place=%s", self._tenant, self._place)
        finally:
            for each in (left, work):
                each.cancel()
            await asyncio.gather(left, work, return_exceptions=True)

    async def _follow(self, writer: FrameWriter) -> None:
        # Before the reading, so that nothing is appended unheard between the two.
        hints = self._log.hints()
        loop = asyncio.get_running_loop()
        # At once, so that a subscriber that has heard nothing yet can come back too.
        place = self._place
        await self._write(writer.tell([self._gap], place) if self._gap else writer.mark(place))
        while True:
            while await self._read(writer):
                pass
            if loop.time() - self._written_at >= self._keep_alive_s:
                await self._write(writer.mark(self._place))
            if await anext(hints, None) is None:
                await writer.end()
                return
            await sleep(self._pause_s)

    async def _read(self, writer: FrameWriter) -> bool:
        """Send the frames of the next page of the log; return whether there was a page."""
        begin = self._place.cursor
        page, cursor = await self._log.tail(begin, self._page)
        self._page = PAGE
        if not page:
            return False
        place = self._place
        for one in self._place.rest(self._tenant, page):
            if one.tenant == self._tenant:
                place = FeedPlace(begin, one.task_id, one.recorded.seq)
                await self._send(writer, await self._reader.frames(one.task_id, one.recorded), place)
        texts = self._reader.flush()
        self._pause_s = TEXT_PAUSE_S if texts else PAUSE_S
        await self._send(writer, texts, place)
        # With the last event that was told, as a text of this cursor may stand for a place before it.
        self._place = FeedPlace(cursor, self._place.task_id, self._place.seq)
        return True

    async def _send(self, writer: FrameWriter, frames: Sequence[TopicFrame], place: FeedPlace) -> None:
        if frames:
            await self._write(writer.tell(frames, place))
            self._place = place

    async def _write(self, written: Awaitable[None]) -> None:
        async with asyncio.timeout(self._slow_s):
            await written
        self._written_at = asyncio.get_running_loop().time()
