"""The names of history rows, and which of them are commands. What a stored row leaves out is told in `view`.

A member whose name begins with `_` is for the engine alone and is never shown.
"""

from __future__ import annotations

from trunkline.log.events import FlowRow
from trunkline.wire.types import Metadata

COMMANDS = frozenset(
    {
        "ScheduleNode", "CompleteNode", "FailNode", "RaiseInterrupt", "ResumeInterrupt", "StartParallel",
        "JoinParallel", "CancelParallelBranch", "StartTimer", "StartSignalWait", "DeliverSignal",
        "StartSubworkflow", "CompleteSubworkflow", "CancelExecution",
    }
)  # fmt: skip
# The event that records the ID of an external task while the delegation is still under way.
SUBMITTED = "DelegateSubmitted"
# The event of a question that a delegated agent asks. It is read from the question in the log, not stored.
ASKED = "DelegateInputRequired"
# The version of the rows. A run whose first row says a later one is left to processes that know it.
VERSION = 1


def is_command(name: str) -> bool:
    """Whether a row of this name is a command; all others are events."""
    return name in COMMANDS


def node_of(row: FlowRow) -> str | None:
    """The node that a row is about, if it is about one."""
    return row.payload.get("nodeId")


def shown(payload: Metadata) -> Metadata:
    """A payload without what is for the engine alone."""
    if any(name[0] == "_" for name in payload if name):
        return {name: value for name, value in payload.items() if name[:1] != "_"}
    return payload
