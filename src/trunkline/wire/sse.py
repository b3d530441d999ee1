"""Server-sent events: encode one, parse a stream by the rules of the WHATWG."""

from __future__ import annotations

import re

from msgspec import Struct

from trunkline.errors import TooLarge

COMMENT = b": keep-alive\n\n"

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


def frame(seq: int | None, data: bytes) -> bytes:
    """One event. A synthetic one, which nobody can resume after, has no seq and no `id:`."""
    # JSON has no raw line ends; but a line end let through would let its writer forge events.
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    if seq is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (seq, data)


class Event(Struct, frozen=True):
    """One event as received; `id` is the newest id seen so far, as the rules say."""

    data: str
    id: str = ""
    event: str = "message"
    retry: int | None = None


class Parser:
    """Turns chunks of bytes, cut anywhere, into events."""

    def __init__(self, *, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._id = ""
        self._retry: int | None = None
        self._after_cr = False
        self._first_line = True

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes.

        Raises:
            TooLarge: an unfinished event holds more than the limit.
        """
        if not chunk:
            return []
        if self._after_cr and chunk[:1] == b"\n":
            # A CRLF cut in two is still one line end.
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        events: list[Event] = []
        for piece in ended:
            self._pending.append(piece)
            line = b"".join(self._pending)
            self._pending.clear()
            self._pending_size = 0
            self._line(line, events)
        if rest:
            self._pending.append(rest)
            self._pending_size += len(rest)
        if self._pending_size + self._data_size > self._limit:
            raise TooLarge(f"an event of the stream is over {self._limit} bytes")
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        self._field(name, value.removeprefix(b" "))

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        # Longer numbers are nobody's reconnection time, and int() of them may fail.
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            text = b"\n".join(self._data).decode(errors="replace")
            events.append(Event(text, self._id, self._event or "message", self._retry))
        self._data.clear()
        self._data_size = 0
        self._event = ""
