"""What both databases keep of a head, and how: states as numbers, columns, filters of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.base import HeadPage, Where
from trunkline.wire.types import TaskState

# A tenth of their names' size in every row and index.
# Invariant: the statements compare these: up to 2 a task is running, from 5 on it has ended, 7 is canceled.
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


class HeadRow(Struct, array_like=True, gc=False):
    """The columns of a head as the statements `head` and `heads` select them."""

    task_id: str
    context_id: str
    principal: str
    state: int
    status_at: int
    seq: int
    node: str
    agent: str
    parent: str
    child: str
    wake_at: int | None

    def head(self) -> Head:
        """The head that these columns hold."""
        task_id, context_id, principal, state, *rest = msgspec.structs.astuple(self)
        return Head(task_id, context_id, principal, STATES[state], *rest)


def filters(where: Where) -> dict[str, object]:
    """What a list is filtered by: the value for each statement `filter_NAME` that it needs."""
    given: dict[str, object] = {
        "context_id": where.context_id,
        "principal": where.principal,
        "agents": where.agents,
        "parent": where.parent,
        "state": None if where.state is None else NUMBERS[where.state],
        "status_from": where.status_from,
    }
    return {name: value for name, value in given.items() if value is not None}


def head_page(rows: Sequence[HeadRow], size: int, total: int) -> HeadPage:
    """A page of `size` heads; a row more than that tells that another page follows."""
    heads = [row.head() for row in rows[:size]]
    if len(rows) <= size:
        return HeadPage(heads, None, total)
    last = heads[-1]
    return HeadPage(heads, Position(last.status_at, last.task_id), total)
