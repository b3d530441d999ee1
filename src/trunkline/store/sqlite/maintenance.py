"""`Maintenance` of a SQLite file: long work in pages, so that appends go on between two of them.

Compaction works along the log from a saved mark, so it costs what was written since the last time. Long logs
are read and merged beside the writer, which only takes the result.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct

from trunkline.log.compact import Append, compact
from trunkline.log.encoding import DECODE_ERRORS, decode, encode
from trunkline.log.events import Compacted
from trunkline.store.columns import DAY_MS, LARGEST_BYTES, LONG_EVENTS, LONG_ROWS
from trunkline.store.parts import Maintenance
from trunkline.store.records import Fault
from trunkline.store.sqlite.append_plan import Key, RowsStatement
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.statements import Value, json_text, statements

PAGE_TASKS = 100
PAGE_KEYS = 1000
PAGE_ENDED = 5000
PAGE_DROPPED = 20_000
PAGE_ROWS = 2000
PAGE_EVENTS = 2000
# Keys and instants have no index by age, so that writing them stays cheap; they can wait.
KEYS_EVERY = 600_000
FIRES_KEPT = 8 * DAY_MS
KEPT_PAGES = PAGE_SHRUNK = 256

_logger = logging.getLogger("trunkline.store")
_SQL = statements("sqlite")
_DROP_DELIVERIES = RowsStatement(_SQL["drop_deliveries"])
_MARK = "compacted"


class Shorter(Struct, gc=False):
    """A task with its pieces merged: the seqs of the rows that stay, and the bodies that change."""

    num: int
    last: int
    seqs: list[int]
    bodies: list[tuple[int, bytes]]


class SqliteMaintenance(Maintenance):
    """Retention, compaction and checks of one file."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database
        self._keys_at: int | None = None

    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """See `Maintenance`."""
        count, dropped = 0, -1
        while dropped:
            found = await self._database.read(partial(_ended, before=before, agents=agents, tenant=tenant))
            dropped = 0
            for nums in _portions(found):
                dropped += await self._database.change(partial(self._drop, nums=nums, before=before))
            count += dropped
        now = self._database.now_ms()
        if self._keys_at is None or not 0 <= now - self._keys_at < KEYS_EVERY:
            self._keys_at = now
            await self._drop_keys()
            await self._database.change(partial(_drop_old, now=now))
        await self._give_back()
        return count

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        after = saved = await self._database.read(_mark)
        count = 0
        while (
            page := await self._database.read(partial(_long_tasks, after=after, before=before))
        ) is not None:
            after, tasks = page
            while tasks:
                seen, shorter = await self._database.read(partial(_shorten, tasks=tasks))
                tasks = tasks[seen:]
                if shorter:
                    count += await self._database.change(partial(_rewrite, tasks=shorter))
        # Last: after a crash the same pages are looked at once more, and nothing is passed by.
        if after != saved:
            await self._database.change(partial(_put_mark, value=after))
        await self._give_back()
        return count

    async def faults(self) -> list[Fault]:
        """See `Maintenance`."""
        return await self._database.read(_faults)

    async def _give_back(self) -> None:
        # A file made before this was possible stays as large as it is, and uses its free pages again.
        spare = await self._database.read(_spare)
        while spare > 0 and (left := await self._database.change(_shrink)) < spare:
            spare = left

    async def _drop_keys(self) -> None:
        after: Key = ("", "")
        while (
            page := await self._database.read(partial(_stale_keys, after=after, now=self._database.now_ms()))
        ) is not None:
            tenant, key, stale = page
            if stale:
                await self._database.change(
                    partial(_drop_keys, after=after, last=(tenant, key), now=self._database.now_ms())
                )
            after = (tenant, key)

    def _drop(self, connection: sqlite3.Connection, *, nums: Sequence[int], before: int) -> int:
        # What was found by a reader is judged again here, where nobody else writes.
        gone = connection.execute(_SQL["drop_tasks"], (json_text(nums), before)).fetchall()
        connection.execute(_SQL["drop_events"], (json_text([num for num, _, _ in gone]),))
        ids: list[Value] = [value for _, tenant, task_id in gone for value in (tenant, task_id)]
        for step in _DROP_DELIVERIES.steps(ids):
            connection.execute(*step)
        # Else the numbers of the newest could be given again: a tail would skip events, and a dedup
        # key that is still there would stand for another task.
        connection.execute(_SQL["mark_ends"], (self._database.plan.last_num, self._database.plan.last_id))
        self._database.plan.forget(task_id for _, _, task_id in gone)
        return len(gone)


def _ended(
    connection: sqlite3.Connection, *, before: int, agents: Sequence[str] | None, tenant: str | None
) -> list[tuple[int, int]]:
    wanted = None if agents is None else json_text(agents)
    values = {"before": before, "agents": wanted, "tenant": tenant, "limit": PAGE_ENDED}
    return connection.execute(_SQL["ended_tasks"], values).fetchall()


def _portions(found: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Tasks to be dropped together, by how many events they have: appends wait for one portion at most."""
    portions: list[list[int]] = []
    size = 0
    for num, seq in found:
        size += seq
        if not portions or size > PAGE_DROPPED or len(portions[-1]) == PAGE_TASKS:
            portions.append([])
            size = seq
        portions[-1].append(num)
    return portions


def _spare(connection: sqlite3.Connection) -> int:
    """How many free pages there are beyond those that will soon be needed again: a quarter of the file."""
    pages, free = connection.execute(_SQL["pages"]).fetchone()
    return free - max(pages // 4, KEPT_PAGES)


def _shrink(connection: sqlite3.Connection) -> int:
    # One at a time: the driver takes a single step of a statement that gives no rows.
    for _ in range(PAGE_SHRUNK):
        connection.execute(_SQL["give_back"])
    return _spare(connection)


def _drop_old(connection: sqlite3.Connection, *, now: int) -> None:
    connection.execute(_SQL["drop_fires"], (now - FIRES_KEPT,))
    connection.execute(_SQL["drop_gone_docs"], (now - DAY_MS,))


def _stale_keys(connection: sqlite3.Connection, *, after: Key, now: int) -> tuple[str, str, int] | None:
    values = {"tenant": after[0], "key": after[1], "now": now, "limit": PAGE_KEYS}
    return connection.execute(_SQL["stale_keys"], values).fetchone()


def _drop_keys(connection: sqlite3.Connection, *, after: Key, last: Key, now: int) -> None:
    values = {"tenant": after[0], "key": after[1], "last_tenant": last[0], "last_key": last[1], "now": now}
    connection.execute(_SQL["drop_keys"], values)


def _faults(connection: sqlite3.Connection) -> list[Fault]:
    broken = [text for (text,) in connection.execute(_SQL["quick_check"]).fetchall() if text != "ok"]
    lost = connection.execute(_SQL["faults"]).fetchall()
    return [*(Fault("", text) for text in broken), *(Fault(*row) for row in lost)]


def _mark(connection: sqlite3.Connection) -> int:
    """Up to which event everything has been looked at."""
    row = connection.execute(_SQL["mark"], (_MARK,)).fetchone()
    return 0 if row is None else int(row[0])


def _put_mark(connection: sqlite3.Connection, *, value: int) -> None:
    """Note that everything up to this event has been looked at."""
    connection.execute(_SQL["put_mark"], (_MARK, value))


def _long_tasks(
    connection: sqlite3.Connection, *, after: int, before: int
) -> tuple[int, list[tuple[int, str]]] | None:
    """Where the next page of old events ends, and which long tasks ended in it; None if there is none."""
    values = {"after": after, "before": before, "limit": PAGE_ROWS}
    (last,) = connection.execute(_SQL["page_end"], values).fetchone()
    if last is None:
        return None
    values = {"after": after, "last": last, "rows": LONG_ROWS, "events": LONG_EVENTS, "bytes": LARGEST_BYTES}
    return last, connection.execute(_SQL["long_tasks"], values).fetchall()


def _shorten(
    connection: sqlite3.Connection, *, tasks: Sequence[tuple[int, str]]
) -> tuple[int, list[Shorter]]:
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


def _rewrite(connection: sqlite3.Connection, *, tasks: Sequence[Shorter]) -> int:
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
