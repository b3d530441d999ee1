"""Compaction in a SQLite file: finds tasks that ended, and puts their merged events in place.

Works along the log from a saved mark, so it costs what was written since the last time. Long logs
are read and merged beside the writer, which only takes the result.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trunkline.log.compact import Append, compact
from trunkline.log.events import DECODE_ERRORS, Compacted, decode, encode
from trunkline.store.statements import statements

PAGE_ROWS = 2000
PAGE_EVENTS = 2000
# A task of fewer rows and events has too little to merge.
LONG_ROWS = 8
LONG_EVENTS = 64
# One that is larger stays in pieces: as a single value it could not be read page by page.
LARGEST_BYTES = 4 << 20

_logger = logging.getLogger("trunkline.store")
_SQL, _ = statements("sqlite")
_MARK = "compacted"


class Shorter(Struct, gc=False):
    """A task with its pieces merged: the seqs of the rows that stay, and the bodies that change."""

    num: int
    last: int
    seqs: list[int]
    bodies: list[tuple[int, bytes]]


def mark(connection: sqlite3.Connection) -> int:
    """Up to which event everything has been looked at."""
    row = connection.execute(_SQL["mark"], (_MARK,)).fetchone()
    return 0 if row is None else int(row[0])


def put_mark(connection: sqlite3.Connection, *, value: int) -> None:
    """Note that everything up to this event has been looked at."""
    connection.execute(_SQL["put_mark"], (_MARK, value))


def long_tasks(
    connection: sqlite3.Connection, *, after: int, before: int
) -> tuple[int, list[tuple[int, str]]] | None:
    """Where the next page of old events ends, and which long tasks ended in it; None if there is none."""
    values = {"after": after, "before": before, "limit": PAGE_ROWS}
    (last,) = connection.execute(_SQL["page_end"], values).fetchone()
    if last is None:
        return None
    values = {"after": after, "last": last, "rows": LONG_ROWS, "events": LONG_EVENTS, "bytes": LARGEST_BYTES}
    return last, connection.execute(_SQL["long_tasks"], values).fetchall()


def shorten(connection: sqlite3.Connection, *, tasks: Sequence[tuple[int, str]]) -> tuple[int, list[Shorter]]:
    """How many of these tasks were looked at, and those of them that get shorter."""
    events = seen = 0
    shorter: list[Shorter] = []
    for num, task_id in tasks:
        rows_of = connection.execute(_SQL["task_rows"], (num,)).fetchall()
        try:
            appends = [Append(seq, at, decode(body)) for seq, at, body in rows_of]
            kept = compact(task_id, appends)
        except DECODE_ERRORS as error:
            # One that is damaged must not keep the others long; `trunkline store check` names it too.
            _logger.error("store.damaged task=%s reason=%s: %s", task_id, type(error).__name__, error)
            appends, kept = [], None
        if kept is not None:
            shorter.append(_shorter(num, kept))
        seen += 1
        events += sum(len(append.events) for append in appends)
        if events > PAGE_EVENTS:
            break
    return seen, shorter


def _shorter(num: int, kept: Sequence[Append]) -> Shorter:
    changed = [append for append in kept if any(type(event) is Compacted for event in append.events)]
    bodies = [(append.last, encode(append.events)) for append in changed]
    return Shorter(num, kept[-1].last, [append.last for append in kept], bodies)


def rewrite(connection: sqlite3.Connection, *, tasks: Sequence[Shorter]) -> int:
    """Put shorter logs in the place of long ones; gives how many."""
    count = 0
    for task in tasks:
        # What was read by a reader is judged again here: it may have been pruned meanwhile.
        if connection.execute(_SQL["last_seq"], (task.num,)).fetchone() != (task.last,):
            continue
        connection.execute(_SQL["keep_rows"], (task.num, msgspec.json.encode(task.seqs).decode()))
        # A row keeps its id, and with it every event its place in a tail.
        for seq, body in task.bodies:
            connection.execute(_SQL["put_body"], (body, task.num, seq))
        count += 1
    return count
