"""RFC 3339 times on the wire ⇄ milliseconds since the epoch. Pure; nobody asks for "now" here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from trunkline.errors import InvalidParams

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# fromisoformat also reads week dates and bare days, which are no RFC 3339.
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)

_second: tuple[int, str] = (-1, "")


def timestamp(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    global _second
    seconds, rest = divmod(ms, 1000)
    # Formatting a date costs more than the rest of a small event; most events share their second.
    # One read of the pair and one write keep this right when several threads come by.
    known = _second
    if known[0] != seconds:
        known = _second = (seconds, datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    return f"{known[1]}.{rest:03d}Z"


def milliseconds(text: str, field: str) -> int:
    """The inverse of `timestamp`, for any RFC 3339 time; a fraction of a millisecond counts as a whole one.

    Raises:
        InvalidParams: it is not a time with a zone.
    """
    try:
        if _RFC_3339.match(text) is None:
            raise ValueError
        # Whole microseconds, not float seconds: a float would move some times by a millisecond.
        return -((_EPOCH - datetime.fromisoformat(text.upper())) // _MICROSECOND // 1000)
    except (ValueError, OverflowError):
        raise InvalidParams(f"{field} must be a time such as 2026-01-31T12:00:00Z", field=field) from None
