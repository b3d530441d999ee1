"""`Store` on PostgreSQL, shared by as many processes as there are replicas; its time is the database's.

Its documents and maintenance are here, its nodes in `liveness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trunkline.errors import StoreError
from trunkline.store.base import Store
from trunkline.store.database import Rows
from trunkline.store.parts import Docs, Heads, Maintenance
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.liveness import PostgresNodes
from trunkline.store.postgres.log import PostgresLog
from trunkline.store.records import START, Cursor, Doc, DocChange, Fault
from trunkline.store.statements import DAY_MS, LARGEST_BYTES, LONG_EVENTS, LONG_ROWS

NODE_TTL_SECONDS = 3.0

PAGE_TASKS = 100
PAGE_ROWS = 1000
PAGE_CHECKED = 10_000
# A task may be committed a little after the moment it says it ended.
_LATE_MS = 5_000
_DEAD_NODE_MS = 3_600_000
_COMPACTED = "compacted"
_BEGINNING = -(1 << 62)


class PostgresStore(Store):
    """`Store` on a database. Opened once, on the loop that uses it."""

    # As many processes as you like.
    shared = True

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.database = PostgresDatabase(url, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        nodes = PostgresNodes(self.database, self.database.liveness, node_ttl_s)
        self.log = PostgresLog(self.database)
        self.heads = Heads(self.database)
        self.docs = PostgresDocs(self.database)
        self.nodes = nodes
        self.maintenance = PostgresMaintenance(self.database, nodes)


class PostgresDocs(Docs):
    """Documents; a cursor is the oldest transaction that was still writing when they were read."""

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        # Where the next look begins, and behind what this one goes on if it is in the middle of its pages.
        begin, _, behind = (cursor or "0").partition(" ")
        xid, _, place = behind.partition(" ")
        after, _, after_id = place.partition(" ")
        if not (begin + xid).isdecimal():
            raise StoreError(f"cursor {cursor[:200]!r} is not from this store; start again without it")
        rows = await self._database.rows(
            "doc_changes", kind=kind, xid=xid or begin, after=after, after_id=after_id, limit=limit
        )
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for _, _, tenant, doc_id, rev, body, gone in rows
            # The one row that is always there carries the cursor.
            if tenant is not None
        ]
        # What was still being written at the first page of a look is behind all of its pages.
        horizon = begin if behind else rows[0][0]
        if len(found) < limit:
            return found, horizon
        return found, f"{horizon} {rows[-1][1]} {found[-1].tenant} {found[-1].id}"


class PostgresMaintenance(Maintenance):
    """Retention, compaction and checks over all replicas: long work in pages, each a short transaction.

    Its reads go as writes do: those have no limit in the seconds that a caller waits.
    """

    def __init__(self, database: PostgresDatabase, nodes: PostgresNodes) -> None:
        super().__init__(database)
        self._nodes = nodes

    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """See `Maintenance`."""
        count = 0
        gone: list[str] = []
        for agent in await self._ended_agents() if agents is None else agents:
            place = {"agent": agent, "before": before, "after_at": _BEGINNING, "after_id": ""}
            while page := await self._database.write("ended_tasks", tenant, **place, limit=PAGE_TASKS):
                await self._drop_remains(gone)
                gone = await self._database.transaction(partial(_drop, page, before))
                count += len(gone)
                place["after_at"], place["after_id"], _ = page[-1]
        if tenant is None:
            await self._drop_old(before)
        await self._drop_remains(gone)
        return count

    async def drop(self, tenant: str, task_ids: Sequence[str], before: int) -> int:
        """See `Maintenance`."""
        found = await self._database.rows("tasks_of", tenant, task_ids=task_ids)
        page = [(0, task_id, tenant) for (task_id,) in found]
        gone = await self._database.transaction(partial(_drop, page, before))
        await self._drop_remains(gone)
        return len(gone)

    async def _drop_old(self, before: int) -> None:
        """Let go of what is no task's: keys that have expired, fires, dead nodes, deleted documents."""
        now = self._database.now_ms()
        while await self._database.write("drop_stale_keys", now=now, limit=PAGE_ROWS):
            pass
        while await self._database.write("drop_fires", before=before, limit=PAGE_ROWS):
            pass
        await self._database.write("drop_nodes", nodes=await self._nodes.dead(), age=_DEAD_NODE_MS)
        await self._database.write("drop_gone_docs", now=now, age=DAY_MS)

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        return sum([await self._compact(agent, before) for agent in await self._ended_agents()])

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

    async def _ended_agents(self) -> list[str]:
        return [agent for (agent,) in await self._database.write("ended_agents")]

    async def _compact(self, agent: str, before: int) -> int:
        # Each agent has a mark of its own, because ended tasks are found by their agent and age.
        mark = f"{_COMPACTED} {agent}".rstrip()
        marks = await self._database.write("mark", mark=mark)
        long = {"rows": LONG_ROWS, "events": LONG_EVENTS, "bytes": LARGEST_BYTES, "limit": PAGE_TASKS}
        place = {"after_at": marks[0][0] - _LATE_MS if marks else _BEGINNING, "after_id": ""}
        count = 0
        while page := await self._database.write("long_tasks", agent=agent, before=before, **place, **long):
            count += await self._shorten([task_id for _, task_id, is_long, fits in page if is_long and fits])
            place["after_at"], place["after_id"] = page[-1][:2]
            await self._database.write("put_mark", mark=mark, value=place["after_at"])
        return count

    async def _drop_remains(self, task_ids: Sequence[str]) -> None:
        # An ended task may still be given a push target, and that at the moment it is dropped. Whoever was
        # writing then has ended by now; whoever came later found no task.
        if task_ids:
            await self._database.write("drop_remains", task_ids=task_ids)


async def _drop(page: Sequence[tuple[int, str, str]], before: int, rows: Rows) -> list[str]:
    found = await rows("drop_tasks", task_ids=[task_id for _, task_id, _ in page], before=before)
    gone = [task_id for (task_id,) in found]
    tenants = {task_id: tenant for _, task_id, tenant in page}
    await rows("mark_pruned", task_ids=gone)
    await rows("drop_events", task_ids=gone)
    await rows("drop_deliveries_of", tenants=[tenants[each] for each in gone], task_ids=gone)
    return gone
