"""What a card says, made fit for a model to read.

A card is a stranger's: signs that do not show could tell a model what nobody else sees.
"""

from __future__ import annotations

from typing import Any, cast

# What a person reads of a schema; the rest is for programs and stays as it is.
_PROSE = frozenset({"description", "title", "$comment"})
_PROSE_LIMIT = 1024


def sanitize(text: str, limit: int) -> str:
    """A text as a person sees it too, and no longer than this."""
    text = text[: limit * 4].strip()
    if not text.isprintable():
        text = "".join([one if one.isprintable() or one == "\n" else " " for one in text]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def sanitize_schema(value: Any) -> Any:
    """A JSON schema whose descriptions are legible."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {
            name: sanitize(one, _PROSE_LIMIT)
            if name in _PROSE and isinstance(one, str)
            else sanitize_schema(one)
            for name, one in members
        }
    if isinstance(value, list):
        return [sanitize_schema(one) for one in cast("list[Any]", value)]
    return value
