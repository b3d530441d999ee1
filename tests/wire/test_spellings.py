from __future__ import annotations

import pytest

from trunkline.errors import InvalidParams
from trunkline.wire.spellings import check_foreign, plain_task_id, role_named, state_named
from trunkline.wire.types import STATES, Role, TaskState


@pytest.mark.parametrize("state", STATES)
def test_every_spelling_of_a_state(state: TaskState) -> None:
    for text in (state.value, state.name, state.name.lower(), state.name.lower().replace("_", "-")):
        assert state_named(text) is state


def test_canceled_with_two_l() -> None:
    assert state_named("TASK_STATE_CANCELLED") is state_named("cancelled") is TaskState.CANCELED
    assert state_named("unknown") is None


def test_roles() -> None:
    assert role_named("user") is role_named("ROLE_USER") is Role.USER
    assert role_named("agent") is Role.AGENT
    assert role_named("system") is None


def test_foreign_ids() -> None:
    assert check_foreign("é 1", "id") == "é 1"
    for text in ("", "x" * 257, "a\x7f", "a\u2028", "\ud800"):
        with pytest.raises(InvalidParams):
            check_foreign(text, "id")


def test_resource_names() -> None:
    assert plain_task_id("tasks/t1") == plain_task_id("t1") == "t1"
