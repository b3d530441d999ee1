"""Reads the frames of one stream: one that differs from the last only in its text is not decoded again.

In JSON one string may stand for another: what lies before and after it keeps its meaning. So a frame that
begins and ends with the same bytes as one that was read, and has a string between them, says the same of
another text. Whatever the dialect, and with the same result as reading it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from trunkline.errors import Refused, Unreadable
from trunkline.wire.answers import Notice
from trunkline.wire.decode import DECODE_ERRORS
from trunkline.wire.types import Artifact, ArtifactUpdate, Part

# The text of a part; the rest of the expression is a string of JSON.
_TEXT = re.compile(rb'"text"\s*:\s*("(?:[^"\\]|\\.)*")')
_OTHER = "another text"
# No JSON begins with it: a template that fits nothing.
_NONE = b"\0"
_NO_UPDATE = ArtifactUpdate("", "", Artifact(""))
# In a longer frame the text is most of it, so a template would save little.
_MAX_FRAME = 32 << 10
# How many templates in a row may fit no frame before no more are made: the stream is of another kind.
_MAX_UNUSED = 4

_string = msgspec.json.Decoder(str).decode

F = TypeVar("F")


class FrameTemplate:
    """The bytes around the newest text, and the reader for every frame that does not fit them."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_update", "_read", "_unused")

    def __init__(self, read: Callable[[bytes], Notice]) -> None:
        self._read = read
        self._before = self._after = _NONE
        self._begin = self._end = 0
        self._update = _NO_UPDATE
        self._unused = 0

    def read(self, data: bytes) -> Notice:
        """The notice in a frame. Raises as the reader does that it was made with."""
        if data.startswith(self._before) and data.endswith(self._after):
            try:
                text = _string(data[self._begin : self._end])
            except DECODE_ERRORS:
                # It has more than a string there, or none that can be read.
                pass
            else:
                self._unused = 0
                return _with_text(self._update, text)
        notice = self._read(data)
        # Where nothing is learned any more the last template stays: the frames may come back to it.
        if self._unused < _MAX_UNUSED and len(data) < _MAX_FRAME:
            self._before = _NONE
            update = notice.answer
            # A first piece is like no other, and promises none.
            if type(update) is ArtifactUpdate and update.append:
                self._learn(data, notice, update)
        return notice

    def run(self, events: bytes, made: Callable[[Notice, str], F]) -> list[F]:
        """Many events at once: what `made` gives for each and its id, if all fit the template; else nothing.

        Between them are blank lines, each has a number for an id, and the first begins with it.
        """
        before, after, begin, update = self._before, self._after, self._begin, self._update
        if not events.endswith(after):
            return []
        found: list[F] = []
        try:
            for event in events[4 : -len(after)].split(after + b"\n\nid: "):
                number, _, data = event.partition(b"\ndata: ")
                # To a reader of JSON a line end around a string is nothing, in a stream it ends the data.
                if b"\n" in data or not number.isdigit() or not data.startswith(before):
                    return []
                found.append(made(_with_text(update, _string(data[begin:])), number.decode()))
        except DECODE_ERRORS:
            return []
        return found

    def _learn(self, data: bytes, notice: Notice, update: ArtifactUpdate) -> None:
        """Make a template of a frame: another text is put in its place, to see that only the text changes."""
        if notice != _with_text(update, _only_text(update)):
            return
        found = _TEXT.search(data)
        if found is None:
            return
        self._unused += 1
        before, after = data[: found.start(1)], data[found.end(1) :]
        try:
            other = self._read(b'%b"%b"%b' % (before, _OTHER.encode(), after))
        except (Refused, Unreadable):
            return
        if other == _with_text(update, _OTHER):
            self._before, self._after, self._update = before, after, update
            self._begin, self._end = len(before), -len(after)


def _only_text(update: ArtifactUpdate) -> str:
    parts = update.artifact.parts
    return (parts[0].text or "") if len(parts) == 1 else ""


def _with_text(update: ArtifactUpdate, text: str) -> Notice:
    """The notice of an update with another text; metadata, which its reader could change, is left out."""
    old = update.artifact
    artifact = Artifact(old.artifact_id, old.name, old.description, (Part(text),), None, old.extensions)
    told = ArtifactUpdate(update.task_id, update.context_id, artifact, update.append, update.last_chunk)
    return Notice(told, (artifact,))
