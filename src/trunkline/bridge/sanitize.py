"""What a card says, made fit for a model to read.

A card is a stranger's: signs that do not show could tell a model what nobody else sees.
"""

from __future__ import annotations

from typing import Any, cast

# What a person reads of a schema: made legible. The rest is for programs: left as it is, or left out.
_PROSE = frozenset({"description", "title", "$comment"})
_PROSE_LIMIT = 1024
# Python calls them printable, and nobody sees them: fillers, joiners and selectors of variants.
_UNSEEN = dict.fromkeys(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10),
     0xFFA0, *range(0xE0100, 0xE01F0))
)  # fmt: skip
_SPACES = frozenset("\n\r\t")


def sanitize(text: str, limit: int) -> str:
    """A text as a person sees it too, and no longer than this."""
    text = text[: limit * 4].translate(_UNSEEN).strip()
    if not text.isprintable():
        text = "".join([one if one.isprintable() or one == "\n" else " " for one in text]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_legible(text: str) -> bool:
    """Whether a person sees every character of a text."""
    if text.isascii() and text.isprintable():
        return True
    return all([(one.isprintable() or one in _SPACES) and ord(one) not in _UNSEEN for one in text])


def sanitize_schema(value: Any, left_out: list[str], path: str = "") -> Any:
    """A JSON schema that a person could read too.

    Names, values, defaults and patterns mean something to the agent only as they are: one that has
    characters which do not show is left out, and its place is added to `left_out`.
    """
    if isinstance(value, dict):
        return _members(cast("dict[str, Any]", value), left_out, path)
    if isinstance(value, list):
        listed = cast("list[Any]", value)
        kept = [one for one in listed if not isinstance(one, str) or is_legible(one)]
        if len(kept) < len(listed):
            left_out.append(f"{path}[]")
        return [sanitize_schema(one, left_out, f"{path}[]") for one in kept]
    return value


def _members(members: dict[str, Any], left_out: list[str], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in members.items():
        here = f"{path}.{name}" if path else name
        if not is_legible(name):
            left_out.append(ascii(here)[1:-1])
        elif isinstance(one, str):
            if name in _PROSE:
                found[name] = sanitize(one, _PROSE_LIMIT)
            elif is_legible(one):
                found[name] = one
            else:
                left_out.append(here)
        else:
            kept = sanitize_schema(one, left_out, here)
            # A list of values that has become empty would allow none at all.
            if kept or not one or not isinstance(one, list):
                found[name] = kept
    return found
