"""Server-sent events: encode one, parse a stream by the rules of the WHATWG."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from trunkline.errors import TooLarge

COMMENT = b": keep-alive\n\n"

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
# As numbers: `bytes` are taken for one first, and the error that this gives costs more than the search.
_LF, _CR, _NUL = b"\n\r\0"
# How many bytes of an unfinished event are kept before its lines are read.
_MAX_PENDING = 256 << 10


def frame(seq: int | None, data: bytes) -> bytes:
    """One event. A synthetic one, which nobody can resume after, has no seq and no `id:`."""
    # JSON has no raw line ends; but a line end let through would let its writer forge events.
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    if seq is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (seq, data)


def _is_one_line(head: bytes) -> bool:
    return _LF not in head and _NUL not in head


class SseEvent(Struct, frozen=True):
    """One event as received; `id` is the newest id seen so far, as the rules say."""

    data: str
    id: str = ""
    event: str = "message"
    retry: int | None = None


class SsePiece(Struct, frozen=True, gc=False):
    """An event with its data as it came: bytes that a JSON reader takes as they are."""

    data: bytes
    id: str = ""
    event: str = "message"
    retry: int | None = None
    # The id if the event has one of its own; by the rules `id` is that of an earlier one where it has none.
    own_id: str = ""


# Is offered whole events as they stand, with blank lines between them and an id as the first line;
# it takes all, and gives the id of the last, or none.
Take = Callable[[bytes], str]


class SseParser:
    """Turns chunks of bytes, cut anywhere, into events.

    What stands between blank lines is taken whole while lines end with a line feed or a CRLF. Lone carriage
    returns, an event that began with one and a first chunk of a byte or two are read line by line.
    """

    def __init__(self, *, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._id = ""
        self._own_id = ""
        self._retry: int | None = None
        self._after_cr = False
        self._first_line = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes.

        Raises:
            TooLarge: an unfinished event holds more than the limit.
        """
        return [
            SseEvent(piece.data.decode(errors="replace"), piece.id, piece.event, piece.retry)
            for piece in self.pieces(chunk)
        ]

    def pieces(self, chunk: bytes, take: Take | None = None) -> list[SsePiece]:
        """The events that this chunk completes, as bytes. What `take` took came before, and is left out.

        Raises:
            TooLarge: an unfinished event holds more than the limit.
        """
        if self._after_cr and chunk:
            # A CRLF cut in two is still one line end.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if self._first_line and not self._pending and len(chunk) >= len(_BOM):
            self._first_line = False
            chunk = chunk.removeprefix(_BOM)
        if not chunk:
            return []
        if self._first_line or self._data or self._event or self._own_id:
            return self._by_lines(chunk)
        if _CR in chunk:
            plain = chunk.replace(b"\r\n", b"\n")
            if _CR in plain:
                return self._by_lines(chunk)
            chunk = plain
        return self._by_blocks(chunk, take)

    def _by_blocks(self, chunk: bytes, take: Take | None) -> list[SsePiece]:
        if self._pending:
            if b"\n\n" not in self._pending[-1][-1:] + chunk:
                return self._keep(chunk)
            chunk = self._taken() + chunk
        whole, end, rest = chunk.rpartition(b"\n\n")
        found: list[SsePiece] = []
        if end and take is not None and whole.startswith(b"id: ") and (last := take(whole)):
            self._id = last
        elif end:
            # Nearly all are an id and one line of data.
            blocks = (b"\n\n" + whole).split(b"\n\nid: ")
            for block in blocks[0][2:].split(b"\n\n") if blocks[0] else ():
                self._block(block, found)
            for block in blocks[1:]:
                head, _, data = block.partition(b"\ndata: ")
                if data and _LF not in data and (head.isdigit() or _is_one_line(head)):
                    self._id = own = head.decode("utf-8", "replace")
                    found.append(SsePiece(data, own, "message", self._retry, own))
                else:
                    for each in (b"id: " + block).split(b"\n\n"):
                        self._block(each, found)
        if rest:
            found += self._keep(rest)
        return found

    def _block(self, block: bytes, found: list[SsePiece]) -> None:
        if block[:6] == b"data: " and _LF not in block:
            found.append(SsePiece(block[6:], self._id, "message", self._retry))
            return
        for line in block.split(b"\n"):
            self._field(line)
        if self._data or self._event or self._own_id:
            self._dispatch(found)

    def _keep(self, rest: bytes) -> list[SsePiece]:
        self._pending.append(rest)
        self._pending_size += len(rest)
        # Comments between two events count for nothing; line by line they are dropped, a few at a time.
        many = self._pending_size > _MAX_PENDING and _LF in rest
        return self._by_lines(b"") if many or self._pending_size > self._limit else []

    def _taken(self) -> bytes:
        taken = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        return taken

    def _by_lines(self, chunk: bytes) -> list[SsePiece]:
        self._after_cr = chunk.endswith(b"\r")
        found: list[SsePiece] = []
        if chunk and _LF not in chunk and _CR not in chunk:
            rest = chunk
        else:
            whole, begin = self._taken() + chunk, 0
            # One at a time: a list of all of them may be twenty times as large as they are.
            for end in _LINE_END.finditer(whole):
                self._line(whole[begin : end.start()], found)
                begin = end.end()
            rest = whole[begin:]
        if rest:
            self._pending.append(rest)
            self._pending_size += len(rest)
        if self._pending_size + self._data_size > self._limit:
            raise TooLarge(f"an event of the stream is over {self._limit} bytes")
        return found

    def _line(self, line: bytes, found: list[SsePiece]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(found)
            return
        self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id" and _NUL not in value:
            self._id = self._own_id = value.decode(errors="replace")
        # Longer numbers are nobody's reconnection time, and int() of them may fail.
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)

    def _dispatch(self, found: list[SsePiece]) -> None:
        if self._data:
            data, event = b"\n".join(self._data), self._event or "message"
            found.append(SsePiece(data, self._id, event, self._retry, self._own_id))
        self._data.clear()
        self._data_size = 0
        self._event = self._own_id = ""
