"""Every state has its number, and the numbers stand in the order that the statements rely on."""

from __future__ import annotations

from trunkline.store.statements import NUMBERS
from trunkline.store.statements import STATES as BY_NUMBER
from trunkline.wire.types import STATES, TERMINAL, TaskState


def test_every_state_has_a_number_of_its_own():
    assert set(NUMBERS) == set(STATES)
    assert {BY_NUMBER[NUMBERS[state]] for state in STATES} == set(STATES)


def test_running_ones_come_first_and_ended_ones_last():
    assert {state for state in STATES if NUMBERS[state] <= 2} == {TaskState.SUBMITTED, TaskState.WORKING}
    assert {state for state in STATES if NUMBERS[state] >= 5} == TERMINAL
