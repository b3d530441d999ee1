from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams
from trunkline.wire.spellings import (
    check_id,
    milliseconds,
    plain_state,
    plain_task_id,
    role_named,
    state_named,
    timestamp,
)
from trunkline.wire.types import STATES, Role, TaskState


@pytest.mark.parametrize("state", STATES)
def test_every_spelling_of_a_state(state: TaskState) -> None:
    for text in (state.value, state.name, state.name.lower(), state.name.lower().replace("_", "-")):
        assert state_named(text) is state


def test_canceled_with_two_l() -> None:
    assert state_named("TASK_STATE_CANCELLED") is state_named("cancelled") is TaskState.CANCELED
    assert state_named("nowhere") is None


def test_a_state_that_an_agent_does_not_know() -> None:
    assert state_named("unknown") is state_named("TASK_STATE_UNSPECIFIED") is TaskState.UNSPECIFIED


def test_the_plain_form_of_a_state() -> None:
    assert plain_state(TaskState.INPUT_REQUIRED) == "input-required"
    assert all(state_named(plain_state(state)) is state for state in TaskState)


def test_roles() -> None:
    assert role_named("user") is role_named("ROLE_USER") is Role.USER
    assert role_named("agent") is Role.AGENT
    assert role_named("system") is None


def test_foreign_ids() -> None:
    assert check_id("é 1", "id") == "é 1"
    for text in ("", "x" * 257, "a\x7f", "a\u2028", "\ud800"):
        with pytest.raises(InvalidParams):
            check_id(text, "id")


def test_resource_names() -> None:
    assert plain_task_id("tasks/t1") == plain_task_id("t1") == "t1"


def test_DAT_03_timestamps_end_in_z_with_milliseconds() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_769_860_800_007) == "2026-01-31T12:00:00.007Z"
    assert timestamp(1_769_860_800_999) == "2026-01-31T12:00:00.999Z"
    # Of a damaged document.
    assert timestamp(1 << 62)[:20] == "9999-12-31T23:59:59."
    assert timestamp(-(1 << 62))[:20] == "1000-01-01T00:00:00."


@given(st.integers(0, 253_402_300_799_999))
def test_round_trip(ms: int) -> None:
    assert milliseconds(timestamp(ms), "t") == ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0001Z", 1),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1970-01-01T00:00:00.123456789Z", 124),
    ],
)
def test_any_rfc_3339_time(text: str, expected: int) -> None:
    assert milliseconds(text, "t") == expected


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-W05-6T12:00:00Z", "2026-13-01T00:00:00Z", "1e9"],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        milliseconds(text, "since")
    assert caught.value.field == "since"
