"""States as the numbers a file holds: a tenth of their names' size in every row and index."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.wire.types import TaskState

# Invariant: the statements compare these: up to 2 a task is running, from 5 on it has ended.
NUMBERS: Mapping[TaskState, int] = {
    TaskState.SUBMITTED: 1,
    TaskState.WORKING: 2,
    TaskState.INPUT_REQUIRED: 3,
    TaskState.AUTH_REQUIRED: 4,
    TaskState.COMPLETED: 5,
    TaskState.FAILED: 6,
    TaskState.CANCELED: 7,
    TaskState.REJECTED: 8,
}
STATES: Mapping[int, TaskState] = {number: state for state, number in NUMBERS.items()}
