"""SQL lives in `.sql` files; this reads them, and has what the statements of both databases rely on.

Named statements follow a line `-- name: …`; migrations are `NNN_*.sql` in the same folder. Both databases
keep a head in columns, its state as a number, and find lists by filters that are statements too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.log.head import Head
from trunkline.store.records import Orphan, Where
from trunkline.wire.types import TaskState

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"\d{3}_\w+\.sql\Z")


class Migration(Struct, frozen=True):
    """One step of the schema; `version` is the schema's after it."""

    version: int
    script: str


Value = int | str | bytes | bytearray | None


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """The named statements of a dialect."""
    text = (_FOLDER / dialect / "statements.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    # What follows the semicolon is a comment on the next statement.
    return {name: body.rpartition(";")[0].strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations(dialect: str) -> tuple[Migration, ...]:
    """All steps of a dialect's schema, oldest first."""
    files = sorted(path for path in (_FOLDER / dialect).iterdir() if _MIGRATION.match(path.name))
    return tuple(Migration(int(path.name[:3]), path.read_text(encoding="utf-8")) for path in files)


# A tenth of their names' size in every row and index.
# Invariant: the statements compare these: up to 2 a task is running, 3 and 4 ask, from 5 on it has ended.
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
LAST_OPEN = NUMBERS[TaskState.AUTH_REQUIRED]
STATES: Mapping[int, TaskState] = {number: state for state, number in NUMBERS.items()}

# The columns of a head as the statements select them: its fields in their order, the state as its number.
HeadRow = tuple[str, str, str, int, int, int, str, str, str, str, int | None]


def head_of(task_id: str, context_id: str, principal: str, state: int, *rest: Any) -> Head:
    """The head that the columns of a `HeadRow` hold."""
    return Head(task_id, context_id, principal, STATES[state], *rest)


def head_columns(head: Head) -> HeadRow:
    """The columns that hold a head."""
    # One by one: on the path of every send, where `astuple` and its unpacking take four times as long.
    return (
        head.task_id, head.context_id, head.principal, NUMBERS[head.state], head.status_at, head.seq,
        head.node, head.agent, head.parent, head.child, head.wake_at,
    )  # fmt: skip


def orphan(tenant: str, *row: Any) -> Orphan:
    """The row of a task that nobody runs."""
    head = head_of(*row)
    released = head if not head.node and head.wake_at is None else None
    return Orphan(tenant, head.task_id, head.node, head.agent, released=released)


def filters(where: Where) -> dict[str, object]:
    """The filters of a list: the value for each statement `filter_NAME` that it needs."""
    given: dict[str, object] = {
        name: value for name, value in msgspec.structs.asdict(where).items() if value is not None
    }
    if where.state is not None:
        del given["state"]
        if isinstance(where.state, tuple):
            given["open_states"] = [NUMBERS[state] for state in where.state]
        else:
            number = NUMBERS[where.state]
            given["open_state" if number <= LAST_OPEN else "state"] = number
    return given


# Compaction: a task of fewer rows and events has too little to merge.
LONG_ROWS = 8
LONG_EVENTS = 64
# One that is larger stays in pieces: as a single value it could not be read page by page.
LARGEST_BYTES = 4 << 20
DAY_MS = 86_400_000
