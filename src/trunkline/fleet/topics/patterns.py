"""Patterns over the names of topics. Pure.

Names are segments with dots between them. `*` stands for exactly one segment, `#` at the end for any number
of them, also for none.
"""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.errors import InvalidParams

ONE, REST = "*", "#"
_LENGTH = 512
_SEGMENTS = 16


def read_pattern(text: str, field: str = "topic") -> tuple[str, ...]:
    """The segments of a pattern.

    Raises:
        InvalidParams: it could never match, or is too long.
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
    """Whether a pattern stands for a topic; one with `#` before its end stands for none."""
    *before, last = pattern
    if REST in before:
        return False
    segments = topic.split(".")
    if last != REST:
        before = pattern
        if len(segments) != len(before):
            return False
    return len(segments) >= len(before) and all(
        [wanted in (ONE, found) for wanted, found in zip(before, segments, strict=False)]
    )
