"""`Maintenance` of a PostgreSQL store: long work in pages, each a short transaction of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from trunkline.log.compact import compact
from trunkline.log.encoding import DECODE_ERRORS, encode
from trunkline.log.events import spanned
from trunkline.store.columns import DAY_MS, LARGEST_BYTES, LONG_EVENTS, LONG_ROWS
from trunkline.store.parts import Maintenance
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.log import appends_of
from trunkline.store.postgres.nodes import PostgresNodes
from trunkline.store.postgres.sessions import fetch
from trunkline.store.records import Fault

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

PAGE_TASKS = 100
PAGE_ROWS = 1000
PAGE_CHECKED = 10_000
# A task may be committed a little after the moment it says it ended.
_LATE_MS = 5_000
_DEAD_NODE_MS = 3_600_000
_COMPACTED = "compacted"
_BEGINNING = -(1 << 62)

_Ended = tuple[int, str, str]


class PostgresMaintenance(Maintenance):
    """Retention, compaction and checks over all replicas."""

    def __init__(self, database: PostgresDatabase, nodes: PostgresNodes) -> None:
        super().__init__(database)
        self._database = database
        self._nodes = nodes

    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """See `Maintenance`."""
        count = 0
        gone: list[str] = []
        for agent in await self._database.change(_ended_agents) if agents is None else agents:
            after: tuple[int, str] = (_BEGINNING, "")
            while page := await self._database.change(
                partial(_ended, agent=agent, before=before, after=after, tenant=tenant)
            ):
                await self._drop_remains(gone)
                gone = await self._database.change(partial(_drop, page=page, before=before))
                count += len(gone)
                after = page[-1][:2]
        if tenant is None:
            await self._drop_old(before)
        await self._drop_remains(gone)
        return count

    async def _drop_old(self, before: int) -> None:
        """Let go of what is no task's: keys that have expired, fires, dead nodes, deleted documents."""
        await self._drop_pages("drop_stale_keys", now=self._database.now_ms(), limit=PAGE_ROWS)
        await self._drop_pages("drop_fires", before=before, limit=PAGE_ROWS)
        dead = await self._nodes.dead()
        await self._database.change(partial(fetch, name="drop_nodes", nodes=dead, age=_DEAD_NODE_MS))
        now = self._database.now_ms()
        await self._database.change(partial(fetch, name="drop_gone_docs", now=now, age=DAY_MS))

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        return sum(
            [await self._compact(agent, before) for agent in await self._database.change(_ended_agents)]
        )

    async def faults(self) -> list[Fault]:
        """See `Maintenance`."""
        found: dict[str, Fault] = {}
        task_id, first, after = "", 0, ""
        rows = self._database.rows
        while page := await rows("without_first", task_id=task_id, first=first, limit=PAGE_CHECKED):
            ((task_id, first, lost),) = page
            found |= {one: Fault(one, "has events but not the first one") for one in lost}
        while page := await rows("without_task", after=after, limit=PAGE_CHECKED):
            after = page[-1][0]
            text = "a delivery of a task that is not there: {}"
            found |= {name: Fault(task, text.format(name)) for name, task, there in page if not there}
        return list(found.values())

    async def _compact(self, agent: str, before: int) -> int:
        # Each agent has a mark of its own, because ended tasks are found by their agent and age.
        mark = f"{_COMPACTED} {agent}".rstrip()
        found = await self._database.change(partial(fetch, name="mark", mark=mark))
        after: tuple[int, str] = (found[0][0] - _LATE_MS if found else _BEGINNING, "")
        count = 0
        while page := await self._database.change(partial(_long, agent=agent, before=before, after=after)):
            for _, task_id, is_long in page:
                if is_long:
                    count += await self._database.change(partial(_shrink, task_id=task_id))
            after = page[-1][:2]
            await self._database.change(partial(fetch, name="put_mark", mark=mark, value=after[0]))
        return count

    async def _drop_remains(self, task_ids: Sequence[str]) -> None:
        # An ended task may still be given a push target, and that at the moment it is dropped. Whoever was
        # writing then has ended by now; whoever came later found no task.
        if task_ids:
            await self._database.change(partial(fetch, name="drop_remains", task_ids=task_ids))

    async def _drop_pages(self, name: str, **values: object) -> None:
        while (await self._database.change(partial(fetch, name=name, **values)))[0][0]:
            pass


async def _ended_agents(connection: Connection) -> list[str]:
    return [agent for (agent,) in await fetch(connection, "ended_agents")]


async def _ended(
    connection: Connection, *, agent: str, before: int, after: tuple[int, str], tenant: str | None
) -> list[_Ended]:
    at, task_id = after
    rows = await fetch(
        connection,
        "ended_tasks",
        agent=agent,
        before=before,
        after_at=at,
        after_id=task_id,
        tenant=tenant,
        limit=PAGE_TASKS,
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
        await fetch(connection, "drop_deliveries_of", tenants=[tenants[each] for each in gone], task_ids=gone)
    return gone


async def _shrink(connection: Connection, *, task_id: str) -> int:
    ((size,),) = await fetch(connection, "size_of", task_id=task_id)
    if size > LARGEST_BYTES:
        # Whole it would be one row, which readers have to take at once.
        return 0
    try:
        appends = await appends_of(connection, task_id)
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
