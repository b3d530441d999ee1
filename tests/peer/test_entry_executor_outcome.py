"""Which ends of remote tasks speak for or against the agent that did them."""

from __future__ import annotations

import pytest

from trunkline.log.events import Status
from trunkline.peer.entry_executor import is_success
from trunkline.peer.failure import UNANSWERED
from trunkline.peer.remote import REASON_KEY
from trunkline.wire.types import Message, TaskState


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (TaskState.COMPLETED, True),
        (TaskState.FAILED, False),
        (TaskState.CANCELED, None),
        (TaskState.REJECTED, None),
        (TaskState.INPUT_REQUIRED, None),
    ],
)
def test_ends(state: TaskState, wanted: bool | None) -> None:
    assert is_success(Status(state)) is wanted


@pytest.mark.parametrize(("reason", "wanted"), [(UNANSWERED, None), ("silent", False)])
def test_that_nobody_answers_speaks_against_no_agent(reason: str, wanted: bool | None) -> None:
    said = Message("m", metadata={REASON_KEY: reason})
    assert is_success(Status(TaskState.FAILED, said)) is wanted
