"""Rule H5 notices what it should: each broken history is one violation, a sound one is none."""

from __future__ import annotations

import pytest

from tests.chaos.history import Logged
from tests.chaos.hooks import Arrival, check_hooks
from trunkline.log import events as ev
from trunkline.wire.types import Message, TaskState

TASK = "t"
TARGET = ev.PushTarget("c", "http://x", "1.0")
WORKING, ASKING, DONE = TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED


def logged(*, push: ev.PushTarget | None = TARGET) -> Logged:
    events = [
        ev.Submitted(Message("m"), "c", "me", "n", push=push),
        ev.Status(WORKING),
        ev.Status(WORKING, Message("progress is no change")),
        ev.Status(ASKING),
        ev.Status(WORKING),
        ev.Status(DONE),
    ]
    return Logged("default", TASK, [ev.Recorded(seq, 0, event) for seq, event in enumerate(events, 1)], None)


def told(seq: int, state: TaskState, name: str = "") -> Arrival:
    return Arrival(name or f"{TASK}_{seq}", TASK, seq, state.value)


SOUND = [told(2, WORKING), told(4, ASKING), told(5, WORKING), told(6, DONE)]


def test_a_sound_history_and_one_with_repeats() -> None:
    assert check_hooks([logged()], SOUND) == []
    assert check_hooks([logged()], [SOUND[0], SOUND[0], *SOUND[1:], SOUND[0], SOUND[3]]) == []
    assert check_hooks([logged(push=None)], []) == []


@pytest.mark.parametrize(
    ("arrivals", "what"),
    [
        (SOUND[:-1], "nobody was told of [6]"),
        ([SOUND[1], SOUND[0], *SOUND[2:]], "told in the order"),
        ([*SOUND[:3], told(6, TaskState.FAILED)], "TASK_STATE_FAILED told of 6"),
        ([*SOUND, told(6, DONE, "another")], "under two ids"),
        ([*SOUND, told(3, WORKING)], "told of 3"),
        ([*SOUND, Arrival("x_2", "x", 2, WORKING.value)], "a task that is not there"),
    ],
)
def test_what_is_broken(arrivals: list[Arrival], what: str) -> None:
    found = check_hooks([logged()], arrivals)
    assert any(what in str(one) for one in found), found
    assert {one.rule for one in found} == {"H5"}


def test_who_did_not_ask_is_told_nothing() -> None:
    assert check_hooks([logged(push=None)], SOUND)
