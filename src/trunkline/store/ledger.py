"""Judges a group of appends and says which rows to write: SQLite's half of the compare-and-set.

Invariant: this process alone writes the file, from one thread. So the last seqs kept here are
the truth, a conflict needs no constraint to fire, and a group is a handful of statements.
Each statement hands the interpreter lock over twice; that is why rows travel together.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from trunkline.errors import Conflict, Duplicate
from trunkline.store.statements import RowsStatement, statements
from trunkline.store.writer import Entry, Outcome

PLACES = 4_096
_ROWS_AT_ONCE = 128

_PLAIN, _ROWS = statements("sqlite")
_FIND_TASKS = _ROWS["find_tasks"]
_FIND_KEYS = _ROWS["find_keys"]
_ENDS = _PLAIN["ends"]
_ADD_EVENTS = _ROWS["add_events"]
_PUT_TASKS = _ROWS["put_tasks"]
_PUT_KEYS = _ROWS["put_keys"]
_ADD_DELIVERIES = _ROWS["add_deliveries"]
_NO_HEAD = (None, None, None, None, None, None)

Value = int | str | bytes | None
Row = tuple[Value, ...]
Step = tuple[str, Sequence[Value]]
Key = tuple[str, str]


class _Place:
    """Where a task's log stands."""

    __slots__ = ("num", "seq", "tenant")

    def __init__(self, num: int, tenant: str, seq: int) -> None:
        self.num = num
        self.tenant = tenant
        self.seq = seq


class _Draft:
    """The rows that a group will write."""

    __slots__ = ("deliveries", "events", "keys", "tasks")

    def __init__(self) -> None:
        self.events: list[Value] = []
        self.tasks: dict[int, Row] = {}
        self.keys: dict[Key, Row] = {}
        self.deliveries: list[Value] = []

    def steps(self) -> list[Step]:
        tasks = [value for row in self.tasks.values() for value in row]
        keys = [value for row in self.keys.values() for value in row]
        return [
            *over_rows(_PUT_TASKS, tasks),
            *over_rows(_ADD_EVENTS, self.events),
            *over_rows(_PUT_KEYS, keys),
            *over_rows(_ADD_DELIVERIES, self.deliveries),
        ]


class Ledger:
    """The last seq of every task lately written, and the next free numbers."""

    __slots__ = ("_now", "_places", "last_id", "last_num")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now = now_ms
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self.last_id = 0
        self.last_num = 0

    def load(self, connection: sqlite3.Connection) -> None:
        """Forget everything and look where the file stands."""
        self._places.clear()
        self.last_num, self.last_id = connection.execute(_ENDS).fetchone()

    def forget(self, task_ids: Iterable[str]) -> None:
        """Read these from the file next time."""
        for task_id in task_ids:
            self._places.pop(task_id, None)

    def plan(
        self, connection: sqlite3.Connection, group: Sequence[Entry]
    ) -> tuple[list[Outcome], list[Step]]:
        """The outcome of each append if the steps succeed. If they fail, `forget` the group."""
        self._find_places(connection, group)
        keys = self._find_keys(connection, group)
        draft = _Draft()
        outcomes = [self._judge(entry, keys, draft) for entry in group]
        while len(self._places) > PLACES:
            self._places.popitem(last=False)
        return outcomes, draft.steps()

    def _judge(self, entry: Entry, keys: dict[Key, Duplicate], draft: _Draft) -> Outcome:
        dedup = entry.dedup
        if dedup is not None and keys:
            known = keys.get((entry.tenant, dedup.key))
            if known is not None:
                return Duplicate(known.task_id, known.seq, known.digest)
        task_id, expected = entry.task_id, entry.expected
        place = self._places.get(task_id)
        if place is None:
            if expected != 0:
                return Conflict(0)
            place = self._add_place(entry, draft)
        elif place.tenant != entry.tenant:
            # Another tenant's task is not there; the id is taken all the same.
            return Conflict(0)
        elif place.seq != expected:
            return Conflict(place.seq)
        else:
            self._places.move_to_end(task_id)
        num, at, seq, last_id, rows = place.num, entry.at, expected, self.last_id, draft.events
        for body in entry.bodies:
            seq += 1
            last_id += 1
            rows += (last_id, num, seq, at, body)
        self.last_id = last_id
        place.seq = seq
        head = entry.head
        if head is not None:
            draft.tasks[num] = (
                num, entry.tenant, task_id, head.context_id, head.owner,
                head.state.value, head.status_at, head.seq, head.node,
            )  # fmt: skip
        if dedup is not None:
            key = (entry.tenant, dedup.key)
            keys[key] = Duplicate(task_id, seq, dedup.digest)
            draft.keys[key] = (*key, task_id, seq, dedup.digest, dedup.expires_at)
        for one in entry.deliveries:
            draft.deliveries += (entry.tenant, task_id, one.target, one.seq, one.id, one.due)
        return seq

    def _add_place(self, entry: Entry, draft: _Draft) -> _Place:
        self.last_num = num = self.last_num + 1
        place = self._places[entry.task_id] = _Place(num, entry.tenant, 0)
        draft.tasks[num] = (num, entry.tenant, entry.task_id, *_NO_HEAD)
        return place

    def _find_places(self, connection: sqlite3.Connection, group: Sequence[Entry]) -> None:
        places = self._places
        missing: list[Value] = [entry.task_id for entry in group if entry.task_id not in places]
        for step in over_rows(_FIND_TASKS, missing):
            for task_id, num, tenant, seq in connection.execute(*step).fetchall():
                places[task_id] = _Place(num, tenant, seq)

    def _find_keys(self, connection: sqlite3.Connection, group: Sequence[Entry]) -> dict[Key, Duplicate]:
        wanted: list[Value] = []
        for entry in group:
            if entry.dedup is not None:
                wanted += (entry.tenant, entry.dedup.key)
        found: dict[Key, Duplicate] = {}
        for step in over_rows(_FIND_KEYS, wanted):
            for tenant, key, task_id, seq, digest, expires_at in connection.execute(*step).fetchall():
                if expires_at > self._now():
                    found[tenant, key] = Duplicate(task_id, seq, digest)
        return found


def over_rows(statement: RowsStatement, values: list[Value]) -> list[Step]:
    """The statements that carry these rows, of which each has as many values as the statement takes."""
    width = statement.width
    size = _ROWS_AT_ONCE * width
    if 0 < len(values) <= size:
        return [(statement.rows(len(values) // width), values)]
    chunks = (values[start : start + size] for start in range(0, len(values), size))
    return [(statement.rows(len(chunk) // width), chunk) for chunk in chunks]
