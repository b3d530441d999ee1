"""Long work over the whole database, in pages, each a short transaction of its own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trunkline.log.compact import Append, compact
from trunkline.log.events import DECODE_ERRORS, decode, encode, placed, spanned
from trunkline.log.fold import Head, State
from trunkline.store.columns import NUMBERS
from trunkline.store.postgres.pool import Pool
from trunkline.store.postgres.rows import fetch

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

PAGE_TASKS = 100
PAGE_ROWS = 1000
LARGEST_BYTES = 4 << 20
# A task of fewer rows and events has too little to merge.
LONG_ROWS = 8
LONG_EVENTS = 64
# A task may be committed a little after the moment it says it ended.
_LATE_MS = 5_000
_DEAD_NODE_MS = 3_600_000
_COMPACTED = "compacted"
_BEGINNING = -(1 << 62)

_Ended = tuple[int, str, str]


class PostgresMaintenance:
    """Rebuild, prune and compact."""

    def __init__(
        self, pool: Pool, now_ms: Callable[[], int | None], dead_nodes: Callable[[], Awaitable[list[str]]]
    ) -> None:
        self._pool = pool
        self._now = now_ms
        self._dead_nodes = dead_nodes

    async def rebuild(self, tenant: str | None) -> int:
        """Fold every head again."""
        after, count = "", 0
        while page := await self._pool.change(partial(_next_tasks, tenant=tenant, after=after)):
            count += await self._pool.change(partial(_refold, page=page))
            after = page[-1][0]
        return count

    async def prune(self, before: int, agents: Sequence[str] | None) -> int:
        """Drop what ended before, then the keys, instants and nodes that nothing needs any more."""
        count = 0
        gone: list[str] = []
        for agent in await self._pool.change(_ended_agents) if agents is None else agents:
            after: tuple[int, str] = (_BEGINNING, "")
            while page := await self._pool.change(partial(_ended, agent=agent, before=before, after=after)):
                await self._drop_remains(gone)
                gone = await self._pool.change(partial(_drop, page=page, before=before))
                count += len(gone)
                after = page[-1][:2]
        await self._drop_pages("drop_stale_keys", now=self._now(), limit=PAGE_ROWS)
        await self._drop_pages("drop_fires", before=before, limit=PAGE_ROWS)
        dead = await self._dead_nodes()
        await self._pool.change(partial(fetch, name="drop_nodes", nodes=dead, age=_DEAD_NODE_MS))
        await self._drop_remains(gone)
        return count

    async def compact(self, before: int) -> int:
        """Merge the logs of tasks that ended since the last time."""
        return sum([await self._compact(agent, before) for agent in await self._pool.change(_ended_agents)])

    async def _compact(self, agent: str, before: int) -> int:
        # Each agent has a mark of its own, because ended tasks are found by their agent and age.
        mark = f"{_COMPACTED} {agent}".rstrip()
        found = await self._pool.change(partial(fetch, name="mark", mark=mark))
        after: tuple[int, str] = (found[0][0] - _LATE_MS if found else _BEGINNING, "")
        count = 0
        while page := await self._pool.change(partial(_long, agent=agent, before=before, after=after)):
            for _, task_id, is_long in page:
                if is_long:
                    count += await self._pool.change(partial(_shrink, task_id=task_id))
            after = page[-1][:2]
            await self._pool.change(partial(fetch, name="put_mark", mark=mark, value=after[0]))
        return count

    async def _drop_remains(self, task_ids: Sequence[str]) -> None:
        # An ended task may still be given a push target, and that at the moment it is dropped. Whoever was
        # writing then has ended by now; whoever came later found no task.
        if task_ids:
            await self._pool.change(partial(fetch, name="drop_remains", task_ids=task_ids))

    async def _drop_pages(self, name: str, **values: object) -> None:
        while (await self._pool.change(partial(fetch, name=name, **values)))[0][0]:
            pass


async def _next_tasks(connection: Connection, *, tenant: str | None, after: str) -> list[tuple[str, str]]:
    rows = await fetch(connection, "next_tasks", tenant=tenant, after=after, limit=PAGE_TASKS)
    return [(task_id, of_tenant) for task_id, of_tenant in rows]


async def _refold(connection: Connection, *, page: Sequence[tuple[str, str]]) -> int:
    count = 0
    async with connection.transaction():
        held = await fetch(connection, "hold_heads", task_ids=[task_id for task_id, _ in page])
        known = {task_id for (task_id,) in held}
        for task_id, tenant in page:
            try:
                head = await _fold_head(connection, task_id)
            except DECODE_ERRORS as error:
                # What is known of it stays: it is all that can still be shown.
                _logger.error("store.damaged task=%s reason=%s", task_id, error)
                continue
            if head is None:
                await fetch(connection, "drop_head", task_id=task_id)
                continue
            count += 1
            name = "put_head" if task_id in known else "add_head"
            await fetch(
                connection,
                name,
                task_id=task_id,
                tenant=tenant,
                context_id=head.context_id,
                principal=head.principal,
                state=NUMBERS[head.state],
                status_at=head.status_at,
                seq=head.seq,
                node=head.node,
                agent=head.agent,
                parent=head.parent,
                child=head.child,
                wake_at=head.wake_at,
            )
    return count


async def _fold_head(connection: Connection, task_id: str) -> Head | None:
    state = State(task_id)
    head: Head | None = None
    for append in await _appends(connection, task_id):
        for recorded in placed(append.last, append.at, append.events):
            head = state.head_after((recorded.event,), recorded.at) or head
            state.apply(recorded)
    return head


async def _appends(connection: Connection, task_id: str) -> list[Append]:
    rows = await fetch(connection, "read_rows", task_id=task_id)
    return [Append(last, at, decode(body)) for last, at, body in rows]


async def _ended_agents(connection: Connection) -> list[str]:
    return [agent for (agent,) in await fetch(connection, "ended_agents")]


async def _ended(connection: Connection, *, agent: str, before: int, after: tuple[int, str]) -> list[_Ended]:
    at, task_id = after
    rows = await fetch(
        connection, "ended_tasks", agent=agent, before=before, after_at=at, after_id=task_id, limit=PAGE_TASKS
    )
    return [(status_at, task_id, tenant) for status_at, task_id, tenant in rows]


async def _long(
    connection: Connection, *, agent: str, before: int, after: tuple[int, str]
) -> list[tuple[int, str, bool]]:
    rows = await fetch(
        connection,
        "long_tasks",
        agent=agent,
        before=before,
        after_at=after[0],
        after_id=after[1],
        limit=PAGE_TASKS,
        rows=LONG_ROWS,
        events=LONG_EVENTS,
    )
    return [(status_at, task_id, bool(is_long)) for status_at, task_id, is_long in rows]


async def _drop(connection: Connection, *, page: Sequence[_Ended], before: int) -> list[str]:
    async with connection.transaction():
        ids = [task_id for _, task_id, _ in page]
        rows = await fetch(connection, "drop_tasks", task_ids=ids, before=before)
        gone = [task_id for (task_id,) in rows]
        tenants = {task_id: tenant for _, task_id, tenant in page}
        await fetch(connection, "drop_events", task_ids=gone)
        await fetch(connection, "drop_keys_of", task_ids=gone)
        await fetch(connection, "drop_deliveries_of", tenants=[tenants[each] for each in gone], task_ids=gone)
    return gone


async def _shrink(connection: Connection, *, task_id: str) -> int:
    ((size,),) = await fetch(connection, "size_of", task_id=task_id)
    if size > LARGEST_BYTES:
        # Whole it would be one row, which readers have to take at once.
        return 0
    try:
        appends = await _appends(connection, task_id)
        kept = compact(task_id, appends)
    except DECODE_ERRORS as error:
        # One that is damaged must not keep the others long.
        _logger.error("store.damaged task=%s reason=%s: %s", task_id, type(error).__name__, error)
        return 0
    if kept is None:
        return 0
    lasts = {append.last for append in kept}
    async with connection.transaction():
        held = await fetch(connection, "hold_head", task_id=task_id)
        rows = await fetch(connection, "read_rows", task_id=task_id)
        if not held or [row["last"] for row in rows] != [append.last for append in appends]:
            # Pruned, compacted or grown meanwhile.
            return 0
        dropped = [append.last for append in appends if append.last not in lasts]
        await fetch(connection, "drop_rows", task_id=task_id, lasts=dropped)
        await fetch(
            connection,
            "put_rows",
            task_id=task_id,
            firsts=[append.last - spanned(append.events) + 1 for append in kept],
            lasts=[append.last for append in kept],
            bodies=[encode(append.events) for append in kept],
        )
    return 1
