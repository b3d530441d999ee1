"""How ids, roles, states and times are spelled on the wire: text ⇄ value. Pure: "now" is not asked here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from trunkline.errors import InvalidParams
from trunkline.wire.types import Role, TaskState

ID_LIMIT = 256
_ROLES = {role.name: role for role in Role}
# Some agents write the British way; 0.3 calls a state unknown that 1.0 leaves unspecified.
_STATES = {state.name: state for state in TaskState} | {
    "CANCELLED": TaskState.CANCELED,
    "UNKNOWN": TaskState.UNSPECIFIED,
}
# As nearly everybody spells them, so that one look is enough.
_USUAL_ROLES = {role.value: role for role in Role} | {role.name.lower(): role for role in Role}
_PLAIN = {state: state.name.lower().replace("_", "-") for state in TaskState}
_USUAL_STATES = {state.value: state for state in TaskState} | {text: state for state, text in _PLAIN.items()}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# fromisoformat also reads week dates and bare days, which are no RFC 3339.
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)

_second: tuple[int, str] = (-1, "")
# The years 1000 to 9999, which are written with four digits.
_FIRST_S, _LAST_S = -30_610_224_000, 253_402_300_799


def check_id(text: str, field: str) -> str:
    """An id that a caller chose: 1 to 256 printable characters.

    Raises:
        InvalidParams: it is empty, too long or holds control characters.
    """
    if 0 < len(text) <= ID_LIMIT and text.isprintable():
        return text
    raise InvalidParams(f"{field} must be 1 to {ID_LIMIT} printable characters", field=field)


def plain_task_id(name: str) -> str:
    """The id in a resource name such as `tasks/{id}`, which 0.3's proto uses; a bare id as it is."""
    return name.removeprefix("tasks/")


def role_named(text: str) -> Role | None:
    """The role behind `user`, `ROLE_USER` and their like, or None."""
    return _USUAL_ROLES.get(text) or _ROLES.get(text.upper().removeprefix("ROLE_"))


def state_named(text: str) -> TaskState | None:
    """The state behind `input-required`, `TASK_STATE_INPUT_REQUIRED` and their like, or None.

    Only another agent may say UNSPECIFIED: who reads what a caller says looks whether it is in `STATES`.
    """
    usual = _USUAL_STATES.get(text)
    return usual or _STATES.get(text.upper().replace("-", "_").removeprefix("TASK_STATE_"))


def plain_state(state: TaskState) -> str:
    """A state in lower case with hyphens, as 0.3, logs and people spell it: `input-required`."""
    return _PLAIN[state]


def timestamp(ms: int) -> str:
    """Return milliseconds since the epoch as RFC 3339 in UTC, at most the end of the year 9999."""
    global _second
    seconds, rest = divmod(ms, 1000)
    # Formatting a date costs more than the rest of a small event; most events share their second.
    # One read of the pair and one write keep this right when several threads come by.
    known = _second
    if known[0] != seconds:
        # A damaged document may have any number here, and must not keep others from being listed.
        shown = datetime.fromtimestamp(min(max(seconds, _FIRST_S), _LAST_S), UTC)
        known = _second = (seconds, shown.strftime("%Y-%m-%dT%H:%M:%S"))
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
