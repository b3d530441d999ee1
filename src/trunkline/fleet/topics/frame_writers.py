"""How frames get to a subscriber: as server-sent events, or over a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from trunkline.fleet.event_stream import START_EVENTS
from trunkline.fleet.topics.place import FeedPlace
from trunkline.fleet.topics.reader import TopicFrame
from trunkline.http.asgi import Receive, Send
from trunkline.wire import sse

_GOING_AWAY = 1001


class FrameWriter(Protocol):
    """The way to one subscriber; it waits while that one does not read."""

    async def begin(self) -> None:
        """Say that the subscriber is heard."""
        ...

    async def tell(self, frames: Sequence[TopicFrame], place: FeedPlace) -> None:
        """Tell the frames of an event.

        The last of them has the place, so that who resumes misses none of them.
        """
        ...

    async def mark(self, place: FeedPlace) -> None:
        """Tell a place without a frame, also as a sign of life."""
        ...

    async def end(self) -> None:
        """End the stream: nothing more comes from here."""
        ...


class SseWriter:
    """Server-sent events."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self) -> None:
        """See `FrameWriter`."""
        await self._send(START_EVENTS)

    async def tell(self, frames: Sequence[TopicFrame], place: FeedPlace) -> None:
        """See `FrameWriter`."""
        events = [sse.frame(None, msgspec.json.encode(frame)) for frame in frames]
        await self._write(b"".join([*events[:-1], b"id: %b\n" % str(place).encode(), events[-1]]))

    async def mark(self, place: FeedPlace) -> None:
        """See `FrameWriter`; a reader keeps it as the last id, and dispatches nothing."""
        await self._write(b"id: %b\n\n" % str(place).encode())

    async def end(self) -> None:
        """See `FrameWriter`."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


class WebSocketWriter:
    """A WebSocket; a place is the member `id` of a frame, or the only member of a message."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def begin(self) -> None:
        """See `FrameWriter`."""
        await self._receive()
        await self._send({"type": "websocket.accept"})

    async def tell(self, frames: Sequence[TopicFrame], place: FeedPlace) -> None:
        """See `FrameWriter`."""
        *others, last = [msgspec.to_builtins(frame) for frame in frames]
        for message in (*others, {**last, "id": str(place)}):
            await self._write(message)

    async def mark(self, place: FeedPlace) -> None:
        """See `FrameWriter`."""
        await self._write({"id": str(place)})

    async def end(self) -> None:
        """See `FrameWriter`."""
        await self._send({"type": "websocket.close", "code": _GOING_AWAY})

    async def _write(self, message: object) -> None:
        await self._send({"type": "websocket.send", "text": msgspec.json.encode(message).decode()})
