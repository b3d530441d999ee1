"""Which ends of remote tasks speak for or against the agent that did them."""

from __future__ import annotations

import pytest

from trunkline.log.events import Status
from trunkline.peer.entry_executor import is_success
from trunkline.wire.types import TaskState


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
