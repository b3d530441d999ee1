"""Long work over the whole SQLite file, in pages, so that appends go on between two of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from trunkline.log.fold import Head, State
from trunkline.store import rows
from trunkline.store.ledger import Key, Ledger, listed
from trunkline.store.statements import Value, statements

T = TypeVar("T")
PAGE_TASKS = 100
PAGE_EVENTS = 2000
PAGE_KEYS = 1000

_SQL, _ROWS = statements("sqlite")


class Run(Protocol):
    """Runs a call with a connection, elsewhere."""

    def __call__(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """The call's result."""
        ...


class Sweep:
    """Rebuild and prune."""

    def __init__(self, change: Run, look: Run, ledger: Ledger, now_ms: Callable[[], int]) -> None:
        self._change = change
        self._look = look
        self._ledger = ledger
        self._now = now_ms

    async def rebuild(self, tenant: str | None) -> int:
        """Fold every head again."""
        after, count = 0, 0
        while True:
            last, written = await self._change(partial(self._refold, tenant=tenant, after=after))
            if last == after:
                return count
            after = last
            count += written

    async def prune(self, before: int) -> int:
        """Drop what ended before, then the keys that nothing needs any more."""
        after, count = 0, 0
        while nums := await self._look(partial(_ended, after=after, before=before)):
            count += await self._change(partial(self._drop, nums=nums, before=before))
            after = nums[-1]
        await self._drop_keys()
        return count

    async def _drop_keys(self) -> None:
        after: Key = ("", "")
        while (page := await self._look(partial(_stale_keys, after=after, now=self._now()))) is not None:
            tenant, key, stale = page
            if stale:
                await self._change(partial(_drop_keys, after=after, last=(tenant, key), now=self._now()))
            after = (tenant, key)

    def _drop(self, connection: sqlite3.Connection, *, nums: Sequence[int], before: int) -> int:
        # What was found by a reader is judged again here, where nobody else writes.
        gone = connection.execute(_SQL["drop_tasks"], (_json(nums), before)).fetchall()
        connection.execute(_SQL["drop_events"], (_json([num for num, _, _ in gone]),))
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
        for num, owner, task_id in connection.execute(_SQL["next_tasks"], values).fetchall():
            head, seq = _fold_head(connection, owner, task_id)
            columns = (None,) * 6 if head is None else listed(head)
            connection.execute(_ROWS["put_tasks"].one, (num, owner, task_id, *columns))
            # What the ledger knows of the head is what was there before.
            self._ledger.forget((task_id,))
            after = num
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


def _ended(connection: sqlite3.Connection, *, after: int, before: int) -> list[int]:
    found = connection.execute(_SQL["ended_tasks"], (after, before, PAGE_TASKS)).fetchall()
    return [num for (num,) in found]


def _stale_keys(connection: sqlite3.Connection, *, after: Key, now: int) -> tuple[str, str, int] | None:
    values = {"tenant": after[0], "key": after[1], "now": now, "limit": PAGE_KEYS}
    return connection.execute(_SQL["stale_keys"], values).fetchone()


def _drop_keys(connection: sqlite3.Connection, *, after: Key, last: Key, now: int) -> None:
    values = {"tenant": after[0], "key": after[1], "last_tenant": last[0], "last_key": last[1], "now": now}
    connection.execute(_SQL["drop_keys"], values)


def _json(nums: Sequence[int]) -> str:
    return msgspec.json.encode(nums).decode()
