"""Judges a group of appends and says which rows to write: SQLite's half of the compare-and-set.

Invariant: this process alone writes the file, from one thread. So the last seqs kept here are
the truth, and a group is a handful of statements. Each statement hands the interpreter lock
over twice; that is why rows travel together, and why nothing is looked up that is surely new:
if it is there all the same, its insertion fails and the group is planned again from `known`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from msgspec import Struct

from trunkline.errors import Conflict, Duplicate
from trunkline.log.head import Head
from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.statements import NUMBERS, Value, statements

PLACES = 4_096
_HALF = PLACES // 2

_ROW = re.compile(r"(\((?:\?|''|, |NULLIF\(\?, -1\))+\))")

Step = tuple[str, Sequence[Value]]


class RowsStatement:
    """A statement over any number of rows.

    Its rows travel by powers of two and one and a half times those, so that most groups are two statements.
    A text for each number of rows would make hundreds of prepared ones, which take 25 MiB, and each is parsed
    when it is first needed.
    """

    __slots__ = ("_sizes", "_texts")

    def __init__(self, text: str) -> None:
        start, row, end = _ROW.split(text)
        width = row.count("?")
        counts = sorted({1, *(many << power for power in range(5) for many in (2, 3, 4))}, reverse=True)
        # Largest first: how many values, and the text that takes them.
        self._sizes = [(rows * width, start + ", ".join([row] * rows) + end) for rows in counts]
        self._texts = dict(self._sizes)

    def steps(self, values: list[Value]) -> list[Step]:
        """What to execute, given the values of all rows one after the other."""
        left = len(values)
        if (whole := self._texts.get(left)) is not None:
            return [(whole, values)]
        steps: list[Step] = []
        start = 0
        for size, text in self._sizes:
            while size <= left:
                steps.append((text, values[start : start + size]))
                start += size
                left -= size
        return steps


_SQL = statements("sqlite")
_FIND_TASKS = RowsStatement(_SQL["find_tasks"])
_FIND_KEYS = RowsStatement(_SQL["find_keys"])
_ENDS = _SQL["ends"]
_ADD_EVENTS = RowsStatement(_SQL["add_events"])
_ADD_TASKS = RowsStatement(_SQL["add_tasks"])
_PUT_TASKS = RowsStatement(_SQL["put_tasks"])
_PUT_HEADS = RowsStatement(_SQL["put_heads"])
_ADD_KEYS = RowsStatement(_SQL["add_keys"])
_PUT_KEYS = RowsStatement(_SQL["put_keys"])
_ADD_DELIVERIES = RowsStatement(_SQL["add_deliveries"])
# Stands for NULL, where the statements say so: of `None`, and of `bytes`, the driver first asks whether there
# is an adapter, which costs as much as the row itself.
_NULL = -1
# The columns of a task that has no head yet.
NO_HEAD = (_NULL, None, "", "", None, None, None, None, "", _NULL)

Row = tuple[Value, ...]
Key = tuple[str, str]
# What a dedup key stands for: task id (empty if the task is forgotten), seq, digest.
Keys = dict[Key, tuple[str, int, bytes]]


class _Place(Struct, gc=False, eq=False):
    """Where a task's log stands, and the part of its head that rarely changes, if it is known."""

    num: int
    tenant: str
    seq: int
    context_id: str | None = None
    principal: str | None = None


class _GroupRows:
    """The rows that a group will write."""

    __slots__ = ("added", "deliveries", "doubtful", "events", "heads", "keys", "tasks")

    def __init__(self) -> None:
        self.added: dict[int, Row] = {}
        self.heads: dict[int, Row] = {}
        self.tasks: dict[int, Row] = {}
        self.events: list[Value] = []
        self.keys: list[Value] = []
        self.deliveries: list[Value] = []
        self.doubtful = False

    def conflict(self, entry: Entry, actual: int) -> Conflict:
        """Refuse an append; doubtful if a key that nobody looked up could make it a duplicate."""
        self.doubtful |= bool(entry.keys)
        return Conflict(actual)

    def list(self, place: _Place, task_id: str, head: Head) -> None:
        """Add the row of a head: all of it, or what has changed if the rest is known to be in the file."""
        num, context_id, principal = place.num, head.context_id, head.principal
        state = NUMBERS[head.state]
        # Agent and parent are as old as the log, so they are there where the principal is.
        if principal == place.principal and context_id == place.context_id and num not in self.tasks:
            wake_at = _NULL if head.wake_at is None else head.wake_at
            self.heads[num] = (num, state, head.status_at, head.seq, head.node, head.child, wake_at)
            return
        place.principal, place.context_id = principal, context_id
        # Nothing is written yet of a task that stands at 0.
        rows = self.added if place.seq == 0 or num in self.added else self.tasks
        rows[num] = (num, place.tenant, task_id, *listed(head))

    def steps(self, keys: RowsStatement) -> list[Step]:
        """What to execute; heads before tasks, which may hold a later head of the same task."""
        steps: list[Step] = []
        for statement, rows in ((_ADD_TASKS, self.added), (_PUT_HEADS, self.heads), (_PUT_TASKS, self.tasks)):
            if rows:
                steps += statement.steps([*chain.from_iterable(rows.values())])
        steps += _ADD_EVENTS.steps(self.events)
        if self.keys:
            steps += keys.steps(self.keys)
        if self.deliveries:
            steps += _ADD_DELIVERIES.steps(self.deliveries)
        return steps


class AppendPlan:
    """The last seq of every task lately written, and the next free numbers."""

    __slots__ = ("_earlier", "_now", "_places", "last_id", "last_num")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now = now_ms
        # Two halves: what is used moves to the newer one, and when that is full the older is dropped.
        self._places: dict[str, _Place] = {}
        self._earlier: dict[str, _Place] = {}
        self.last_id = 0
        self.last_num = 0

    def load(self, connection: sqlite3.Connection) -> None:
        """Forget everything and look where the file stands."""
        self._places, self._earlier = {}, {}
        self.last_num, self.last_id = connection.execute(_ENDS).fetchone()

    def forget(self, task_ids: Iterable[str]) -> None:
        """Read these from the file next time."""
        for task_id in task_ids:
            self._places.pop(task_id, None)
            self._earlier.pop(task_id, None)

    def known(self, connection: sqlite3.Connection, group: Sequence[Entry]) -> Keys:
        """Look everything up that a group names; gives the keys that are recorded and alive."""
        self._find_places(connection, [entry.task_id for entry in group])
        wanted: list[Value] = []
        for entry in group:
            for one in entry.keys:
                wanted += (entry.tenant, one.key)
        found: Keys = {}
        for step in _FIND_KEYS.steps(wanted):
            for tenant, key, task_id, seq, digest, expires_at in connection.execute(*step).fetchall():
                if expires_at > self._now():
                    found[tenant, key] = (task_id, seq, digest)
        return found

    def plan(
        self, connection: sqlite3.Connection, group: Sequence[Entry], known: Keys | None = None
    ) -> tuple[list[Outcome], list[Step]]:
        """The outcome of each append if the steps succeed. If they fail, `forget` the group.

        Without `known`, a task or key that is not as new as it seems fails with an IntegrityError.
        """
        places, earlier = self._places, self._earlier
        self._find_places(
            connection,
            [
                entry.task_id
                for entry in group
                if entry.expected and entry.task_id not in places and entry.task_id not in earlier
            ],
        )
        rows = _GroupRows()
        keys: Keys = {} if known is None else known
        outcomes = [self._judge(entry, keys, rows) for entry in group]
        if rows.doubtful and known is None:
            self.forget(entry.task_id for entry in group)
            return self.plan(connection, group, self.known(connection, group))
        if len(places) > _HALF:
            self._places, self._earlier = {}, places
        return outcomes, rows.steps(_ADD_KEYS if known is None else _PUT_KEYS)

    def _judge(self, entry: Entry, keys: Keys, rows: _GroupRows) -> Outcome:
        tenant, task_id, expected, last = entry.tenant, entry.task_id, entry.expected, entry.last
        head = entry.head
        for key in entry.keys:
            if (recorded := keys.get((tenant, key.key))) is not None and recorded[2] != key.over:
                return Duplicate(*recorded, key.key)
        place = self._places.get(task_id) or self._earlier.get(task_id)
        if place is None:
            if expected != 0:
                return rows.conflict(entry, 0)
            self.last_num = num = self.last_num + 1
            place = _Place(num, tenant, 0)
            if head is None:
                rows.added[num] = (num, tenant, task_id, *NO_HEAD)
        elif place.tenant != tenant:
            # Another tenant's task is not there; the id is taken all the same.
            return rows.conflict(entry, 0)
        elif place.seq != expected:
            return rows.conflict(entry, place.seq)
        num = place.num
        # Invariant: every event has a number of its own, so a tail can stop inside an append.
        self.last_id = entry.id = last_id = self.last_id + last - expected
        rows.events += (last_id, num, last, entry.at, bytearray(entry.body))
        if head is not None:
            rows.list(place, task_id, head)
        place.seq = last
        self._places[task_id] = place
        for key in entry.keys:
            keys[tenant, key.key] = (task_id, last, key.digest)
            rows.keys += (
                tenant, key.key, num, last, bytearray(key.digest), self._now() + key.kept_ms
            )  # fmt: skip
        for one in entry.deliveries:
            rows.deliveries += (tenant, task_id, one.target, one.seq, one.id, one.due, one.lane)
        return last

    def _find_places(self, connection: sqlite3.Connection, task_ids: list[Value]) -> None:
        for step in _FIND_TASKS.steps(task_ids):
            for task_id, num, tenant, seq in connection.execute(*step).fetchall():
                self._places[task_id] = _Place(num, tenant, seq)


def listed(head: Head) -> Row:
    """The columns of a head, as the statements take them."""
    # A context named after its task is left out, and so is its entry in the index of contexts.
    context_id = _NULL if head.context_id == head.task_id else head.context_id
    return (
        context_id, head.principal, head.agent, head.parent,
        NUMBERS[head.state], head.status_at, head.seq, head.node, head.child,
        _NULL if head.wake_at is None else head.wake_at,
    )  # fmt: skip
