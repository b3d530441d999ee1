"""Patterns over the names of topics. Pure.

Names are segments with dots between them. `*` matches exactly one segment, and `#` at the end matches any
number of segments, also none. A dot inside a segment is sent escaped, and a pattern may spell it either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from trunkline.errors import InvalidParams

ONE, REST = "*", "#"
_LENGTH = 512
_SEGMENTS = 16


def read_pattern(text: str, field: str = "topic") -> tuple[str, ...]:
    """Return the segments of a pattern.

    Raises:
        InvalidParams: the pattern can never match, or it is too long.
    """
    segments = text.split(".")
    if len(text) > _LENGTH or len(segments) > _SEGMENTS:
        raise InvalidParams(
            f"{field} has at most {_LENGTH} characters and {_SEGMENTS} segments; shorten it", field=field
        )
    if "" in segments:
        raise InvalidParams(
            f"{field} has an empty segment; give a pattern such as agent.skill.#", field=field
        )
    if REST in segments[:-1]:
        raise InvalidParams(f"{field} has # before its end; use * for one segment there", field=field)
    return tuple(segments)


def matches(pattern: Sequence[str], topic: str) -> bool:
    """Return whether a pattern matches a topic as it is sent, or the topic without its escapes.

    A pattern with `#` before its end matches no topic.
    """
    if REST in pattern[:-1]:
        return False
    return _fits(pattern, topic.split(".")) or ("%" in topic and _fits(pattern, unquote(topic).split(".")))


def _fits(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    *before, last = pattern
    if last != REST:
        before = pattern
        if len(segments) != len(before):
            return False
    return len(segments) >= len(before) and all(
        [wanted in (ONE, found) for wanted, found in zip(before, segments, strict=False)]
    )
