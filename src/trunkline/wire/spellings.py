"""Ids and enum names as callers spell them. Pure."""

from __future__ import annotations

from trunkline.errors import InvalidParams
from trunkline.wire.types import STATES, Role, TaskState

_LIMIT = 256
_ROLES = {role.name: role for role in Role}
_STATES = {state.name: state for state in STATES} | {"CANCELLED": TaskState.CANCELED}
# 1.0 and 0.3 call it by different names.
_TOLD = _STATES | {"UNSPECIFIED": TaskState.UNSPECIFIED, "UNKNOWN": TaskState.UNSPECIFIED}


def check_foreign(text: str, field: str) -> str:
    """A caller's own id: 1 to 256 printable characters.

    Raises:
        InvalidParams: it is empty, too long or holds control characters.
    """
    if is_foreign(text):
        return text
    raise InvalidParams(f"{field} must be 1 to {_LIMIT} printable characters", field=field)


def is_foreign(text: str) -> bool:
    """Whether an id may be a caller's."""
    return 0 < len(text) <= _LIMIT and text.isprintable()


def role_named(text: str) -> Role | None:
    """The role behind `user`, `ROLE_USER` and their like, or None."""
    return _ROLES.get(text.upper().removeprefix("ROLE_"))


def state_named(text: str) -> TaskState | None:
    """The state behind `input-required`, `TASK_STATE_INPUT_REQUIRED` and their like, or None."""
    return _STATES.get(_bare(text))


def state_told(text: str) -> TaskState | None:
    """The same for what an agent says, who may also say that it does not know."""
    return _TOLD.get(_bare(text))


def _bare(state: str) -> str:
    return state.upper().replace("-", "_").removeprefix("TASK_STATE_")


def plain_task_id(name: str) -> str:
    """The id in a resource name such as `tasks/{id}`, which 0.3's proto uses; a bare id as it is."""
    return name.removeprefix("tasks/")
