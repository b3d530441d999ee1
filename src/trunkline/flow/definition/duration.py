"""Durations as definitions write them: `500ms`, `30s`, `5 m`, `24h`, or a number of milliseconds."""

from __future__ import annotations

import re

_FORM = re.compile(r"([0-9]{1,15}) ?(ms|s|m|h)?", re.IGNORECASE | re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def duration_ms(text: str) -> int | None:
    """The milliseconds that a text stands for, or None where it is no duration."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    return int(found[1]) * _UNITS[(found[2] or "ms").lower()]
