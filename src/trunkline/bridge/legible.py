"""What a card says, made fit for a model to read.

A card is a stranger's: signs that do not show could tell a model what nobody else sees.
"""

from __future__ import annotations

from typing import Any, cast

# What a person reads of a schema; the rest is for programs and stays as it is.
_WORDS = frozenset({"description", "title", "$comment"})
_SCHEMA_WORDS = 1024


def legible(text: str, limit: int) -> str:
    """A text as a person sees it too, and no longer than this."""
    text = text[: limit * 4].strip()
    if not text.isprintable():
        text = "".join([one if one.isprintable() or one == "\n" else " " for one in text]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def legible_schema(value: Any) -> Any:
    """A JSON schema whose descriptions are legible."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {
            name: legible(one, _SCHEMA_WORDS)
            if name in _WORDS and isinstance(one, str)
            else legible_schema(one)
            for name, one in members
        }
    if isinstance(value, list):
        return [legible_schema(one) for one in cast("list[Any]", value)]
    return value
