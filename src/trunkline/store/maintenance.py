"""Long work over the whole SQLite file, in pages, so that appends go on between two of them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from trunkline.errors import StoreError
from trunkline.log.fold import Head, State
from trunkline.store import compaction, rows
from trunkline.store.append_plan import NO_HEAD, AppendPlan, Key, listed
from trunkline.store.statements import Value, statements

T = TypeVar("T")
_logger = logging.getLogger("trunkline.store")
PAGE_TASKS = 100
PAGE_EVENTS = 2000
PAGE_KEYS = 1000
PAGE_ENDED = 5000
PAGE_DROPPED = 20_000
# Keys and instants have no index by age, so that writing them stays cheap; they can wait.
KEYS_EVERY = 600_000
FIRES_KEPT = 8 * 86_400_000
KEPT_PAGES = PAGE_SHRUNK = 256

_SQL, _ROWS = statements("sqlite")


class Run(Protocol):
    """Runs a call with a connection, elsewhere."""

    def __call__(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """The call's result."""
        ...


class SqliteMaintenance:
    """Rebuild, prune and compact."""

    def __init__(self, change: Run, look: Run, ledger: AppendPlan, now_ms: Callable[[], int]) -> None:
        self._change = change
        self._look = look
        self._ledger = ledger
        self._now = now_ms
        self._keys_at: int | None = None

    async def rebuild(self, tenant: str | None) -> int:
        """Fold every head again."""
        after, count = 0, 0
        while True:
            last, written = await self._change(partial(self._refold, tenant=tenant, after=after))
            if last == after:
                return count
            after = last
            count += written

    async def prune(self, before: int, agents: Sequence[str] | None) -> int:
        """Drop what ended before, then now and then the keys and instants that nothing needs any more."""
        count, dropped = 0, -1
        while dropped:
            found = await self._look(partial(_ended, before=before, agents=agents))
            dropped = 0
            for nums in _portions(found):
                dropped += await self._change(partial(self._drop, nums=nums, before=before))
            count += dropped
        now = self._now()
        if self._keys_at is None or not 0 <= now - self._keys_at < KEYS_EVERY:
            self._keys_at = now
            await self._drop_keys()
            await self._change(partial(_drop_fires, before=now - FIRES_KEPT))
        await self._give_back()
        return count

    async def compact(self, before: int) -> int:
        """Merge the pieces of tasks that ended in what was written since the last time."""
        after = saved = await self._look(compaction.mark)
        count = 0
        while (
            page := await self._look(partial(compaction.long_tasks, after=after, before=before))
        ) is not None:
            after, tasks = page
            while tasks:
                seen, shorter = await self._look(partial(compaction.shorten, tasks=tasks))
                tasks = tasks[seen:]
                if shorter:
                    count += await self._change(partial(compaction.rewrite, tasks=shorter))
        # Last: after a crash the same pages are looked at once more, and nothing is passed by.
        if after != saved:
            await self._change(partial(compaction.put_mark, value=after))
        await self._give_back()
        return count

    async def _give_back(self) -> None:
        # A file made before this was possible stays as large as it is, and uses its free pages again.
        spare = await self._look(_spare)
        while spare > 0 and (left := await self._change(_shrink)) < spare:
            spare = left

    async def _drop_keys(self) -> None:
        after: Key = ("", "")
        while (page := await self._look(partial(_stale_keys, after=after, now=self._now()))) is not None:
            tenant, key, stale = page
            if stale:
                await self._change(partial(_drop_keys, after=after, last=(tenant, key), now=self._now()))
            after = (tenant, key)

    def _drop(self, connection: sqlite3.Connection, *, nums: Sequence[int], before: int) -> int:
        # What was found by a reader is judged again here, where nobody else writes.
        gone = connection.execute(_SQL["drop_tasks"], (rows.json_text(nums), before)).fetchall()
        connection.execute(_SQL["drop_events"], (rows.json_text([num for num, _, _ in gone]),))
        ids: list[Value] = [value for _, tenant, task_id in gone for value in (tenant, task_id)]
        for step in _ROWS["drop_deliveries"].steps(ids):
            connection.execute(*step)
        # Else the numbers of the newest could be given again: a tail would skip events, and a dedup
        # key that is still there would stand for another task.
        connection.execute(_SQL["mark_ends"], (self._ledger.last_num, self._ledger.last_id))
        self._ledger.forget(task_id for _, _, task_id in gone)
        return len(gone)

    def _refold(self, connection: sqlite3.Connection, *, tenant: str | None, after: int) -> tuple[int, int]:
        values = {"after": after, "tenant": tenant, "limit": PAGE_TASKS}
        written = events = 0
        for num, of_tenant, task_id in connection.execute(_SQL["next_tasks"], values).fetchall():
            after = num
            try:
                head, seq = _fold_head(connection, of_tenant, task_id)
            except (StoreError, ValueError) as error:
                # What is known of it stays: it is all that can still be shown.
                _logger.error("store.damaged task=%s reason=%s", task_id, error)
                continue
            columns = NO_HEAD if head is None else listed(head)
            connection.execute(_ROWS["put_tasks"].one, (num, of_tenant, task_id, *columns))
            # What the ledger knows of the head is what was there before.
            self._ledger.forget((task_id,))
            written += head is not None
            events += seq
            if events > PAGE_EVENTS:
                break
        return after, written


def _fold_head(connection: sqlite3.Connection, tenant: str, task_id: str) -> tuple[Head | None, int]:
    state = State(task_id)
    head: Head | None = None
    seq = 0
    while page := rows.read(connection, tenant, task_id, after=seq, limit=PAGE_EVENTS):
        for recorded in page:
            head = state.head_after((recorded.event,), recorded.at) or head
            state.apply(recorded)
        seq = page[-1].seq
    return head, seq


def _ended(
    connection: sqlite3.Connection, *, before: int, agents: Sequence[str] | None
) -> list[tuple[int, int]]:
    wanted = None if agents is None else rows.json_text(agents)
    values = {"before": before, "agents": wanted, "limit": PAGE_ENDED}
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


def _drop_fires(connection: sqlite3.Connection, *, before: int) -> None:
    connection.execute(_SQL["drop_fires"], (before,))


def _stale_keys(connection: sqlite3.Connection, *, after: Key, now: int) -> tuple[str, str, int] | None:
    values = {"tenant": after[0], "key": after[1], "now": now, "limit": PAGE_KEYS}
    return connection.execute(_SQL["stale_keys"], values).fetchone()


def _drop_keys(connection: sqlite3.Connection, *, after: Key, last: Key, now: int) -> None:
    values = {"tenant": after[0], "key": after[1], "last_tenant": last[0], "last_key": last[1], "now": now}
    connection.execute(_SQL["drop_keys"], values)
