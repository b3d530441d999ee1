"""Reads the frames of one stream: those that are like the last one but for their text are not decoded again.

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
from trunkline.wire.decode_errors import DECODE_ERRORS
from trunkline.wire.types import Artifact, ArtifactUpdate, Part

# The text of a part; the rest of the expression is a string of JSON.
_TEXT = re.compile(rb'"text"\s*:\s*("(?:[^"\\]|\\.)*")')
_OTHER = "another text"
# Begins no JSON.
_NONE = b"\0"
# Of a longer frame, what lies around its text is the smaller part.
_LONG = 32 << 10
# How many stencils in a row may fit nothing before no more are cut.
_VAIN = 4

_string = msgspec.json.Decoder(str).decode

F = TypeVar("F")


class FrameTemplate:
    """What the newest piece of text had around it, and how anything else is read."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_like", "_read", "_vain")

    def __init__(self, read: Callable[[bytes], Notice]) -> None:
        self._read = read
        self._before = self._after = _NONE
        self._begin = self._end = 0
        self._like = ArtifactUpdate("", "", Artifact(""))
        self._vain = 0

    def read(self, data: bytes) -> Notice:
        """What a frame says. Raises as the other reader does."""
        if data.startswith(self._before) and data.endswith(self._after):
            try:
                text = _string(data[self._begin : self._end])
            except DECODE_ERRORS:
                # It has more than a string there, or none that can be read.
                pass
            else:
                self._vain = 0
                return _saying(self._like, text)
        notice = self._read(data)
        if self._vain < _VAIN and len(data) < _LONG:
            self._cut(data, notice)
        return notice

    def run(self, events: bytes, made: Callable[[Notice, str], F]) -> list[F]:
        """What is made of each of many events and its id, if all are like the newest piece; else nothing.

        Between them are blank lines, and each has a number for an id.
        """
        before, after, begin, like = self._before, self._after, self._begin, self._like
        if not (events.startswith(b"id: ") and events.endswith(after)):
            return []
        found: list[F] = []
        try:
            for event in events[4 : -len(after)].split(after + b"\n\nid: "):
                number, _, data = event.partition(b"\ndata: ")
                # To a reader of JSON a line end around a string is nothing, in a stream it ends the data.
                if b"\n" in data or not number.isdigit() or not data.startswith(before):
                    return []
                found.append(made(_saying(like, _string(data[begin:])), number.decode()))
        except DECODE_ERRORS:
            return []
        return found

    def _cut(self, data: bytes, notice: Notice) -> None:
        """Look where the text is. Another one is put there, to see that nothing else comes of it."""
        self._before = _NONE
        update = notice.answer
        if type(update) is not ArtifactUpdate or notice != _saying(update, _only_text(update)):
            return
        found = _TEXT.search(data)
        if found is None:
            return
        self._vain += 1
        before, after = data[: found.start(1)], data[found.end(1) :]
        try:
            other = self._read(b'%b"%b"%b' % (before, _OTHER.encode(), after))
        except (Refused, Unreadable):
            return
        if other == _saying(update, _OTHER):
            self._before, self._after, self._like = before, after, update
            self._begin, self._end = len(before), -len(after)


def _only_text(update: ArtifactUpdate) -> str:
    parts = update.artifact.parts
    return (parts[0].text or "") if len(parts) == 1 else ""


def _saying(update: ArtifactUpdate, text: str) -> Notice:
    """The same of another text, and without what a reader could change."""
    like = update.artifact
    artifact = Artifact(like.artifact_id, like.name, like.description, (Part(text),), None, like.extensions)
    told = ArtifactUpdate(update.task_id, update.context_id, artifact, update.append, update.last_chunk)
    return Notice(told, (artifact,))
