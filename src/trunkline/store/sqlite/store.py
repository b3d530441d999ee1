"""`Store` on one SQLite file in WAL mode, or on the same code in memory.

Its nodes, documents and maintenance are here, its log is in `log`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from trunkline.log.fold import AT_ONCE
from trunkline.store.base import Store
from trunkline.store.database import Rows
from trunkline.store.parts import Docs, Maintenance, Nodes
from trunkline.store.records import START, Cursor, Doc, DocChange, Fault, NodeRecord, Orphan, Waiting
from trunkline.store.sqlite.database import SqliteDatabase
from trunkline.store.sqlite.log import SqliteHeads, SqliteLog
from trunkline.store.statements import (
    DAY_MS,
    LARGEST_BYTES,
    LONG_EVENTS,
    LONG_ROWS,
    STATES,
    orphan,
    statements,
)

PAGE_TASKS = 100
PAGE_KEYS = 1000
PAGE_ENDED = 5000
PAGE_DROPPED = 20_000
PAGE_ROWS = 2000
# Keys and instants have no index by age, so that writing them stays cheap; they can wait.
KEYS_EVERY = 600_000
FIRES_KEPT = 8 * DAY_MS
KEPT_PAGES = PAGE_SHRUNK = 256

_SQL = statements("sqlite")
_MARK = "compacted"


class SqliteStore(Store):
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open; all that
    it reads is as it stood at one moment.
    """

    # One process per file.
    shared = False

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        self.database = SqliteDatabase(path, now_ms=now_ms, read_only=read_only)
        super().__init__(self.database)
        self.log = SqliteLog(self.database)
        self.heads = SqliteHeads(self.database)
        self.docs = SqliteDocs(self.database)
        self.nodes = SqliteNodes(self.database)
        self.maintenance = SqliteMaintenance(self.database)


class SqliteNodes(Nodes):
    """Who joined and has not left. A node of an earlier process is forgotten when the file is opened."""

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._check_files = database.check_files

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        await self._database.write("join", node=node, beat=self._database.now_ms(), agents=agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""

        async def beat(rows: Rows) -> None:
            self._check_files()
            await rows("beat", node=node, beat=self._database.now_ms())

        await self._database.transaction(beat)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        await self._database.write("leave", node=node)

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return bool(await self._database.rows("alive", node=node))

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        rows = await self._database.rows("nodes")
        return [
            NodeRecord(node, msgspec.json.decode(agents, type=tuple[str, ...]), True, beat)
            for node, agents, beat in rows
        ]

    async def orphans(self, agents: Sequence[str], limit: int = 100, *, timed: bool = True) -> list[Orphan]:
        """See `Nodes`."""
        now = self._database.now_ms() if timed else AT_ONCE
        found = await self._database.rows("orphans", agents=agents, now=now, limit=limit)
        return [orphan(*row) for row in found]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        rows = await self._database.rows("waiting", tenant, limit=limit, after=after)
        return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]


class SqliteDocs(Docs):
    """Documents; each write takes the next number of its kind, which is what a cursor counts."""

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """See `Docs`."""
        rows = await self._database.rows("doc_changes", kind=kind, after=int(cursor or "0"), limit=limit)
        found = [
            DocChange(tenant, doc_id, None if gone else Doc(doc_id, rev, body))
            for tenant, doc_id, rev, body, gone, _ in rows
        ]
        return found, str(rows[-1][-1]) if rows else cursor


class SqliteMaintenance(Maintenance):
    """Retention, compaction and checks of one file: long work in pages, so that appends go on between two.

    Compaction works along the log from a saved mark, so it costs what was written since the last time. Long
    logs are read and merged beside the writer, which only takes the result.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._file = database
        self._keys_at: int | None = None

    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """See `Maintenance`."""
        count, dropped = 0, -1
        while dropped:
            found = await self._file.rows(
                "ended_tasks", tenant, before=before, agents=agents, limit=PAGE_ENDED
            )
            dropped = 0
            for nums in _portions(found):
                dropped += await self._file.transaction(partial(self._drop, nums, before))
            count += dropped
        now = self._file.now_ms()
        if self._keys_at is None or not 0 <= now - self._keys_at < KEYS_EVERY:
            self._keys_at = now
            await self._drop_keys()
            await self._file.write("drop_fires", before=now - FIRES_KEPT)
            await self._file.write("drop_gone_docs", before=now - DAY_MS)
        await self._give_back()
        return count

    async def drop(self, tenant: str, task_ids: Sequence[str], before: int) -> int:
        """See `Maintenance`."""
        found = await self._file.rows("task_nums", tenant, task_ids=task_ids)
        portions = _portions(found)
        return sum([await self._file.transaction(partial(self._drop, nums, before)) for nums in portions])

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        # Up to which event everything has been looked at.
        marks = await self._file.rows("mark", name=_MARK)
        after = saved = marks[0][0] if marks else 0
        long = {"rows": LONG_ROWS, "events": LONG_EVENTS, "bytes": LARGEST_BYTES}
        count = 0
        while (last := await self._page_end(after, before)) is not None:
            found = await self._file.rows("long_tasks", after=after, last=last, **long)
            count += await self._shorten([task_id for (task_id,) in found])
            after = last
        # Last: after a crash the same pages are looked at once more, and nothing is passed by.
        if after != saved:
            await self._file.change(lambda connection: connection.execute(_SQL["put_mark"], (_MARK, after)))
        await self._give_back()
        return count

    async def _page_end(self, after: int, before: int) -> int | None:
        """Where the next page of old events ends; None if there is none."""
        ((last,),) = await self._file.rows("page_end", after=after, before=before, limit=PAGE_ROWS)
        return last

    async def faults(self) -> list[Fault]:
        """See `Maintenance`."""
        broken = [Fault("", text) for (text,) in await self._file.rows("quick_check") if text != "ok"]
        return broken + [Fault(*row) for row in await self._file.rows("faults")]

    async def _give_back(self) -> None:
        # A file made before this was possible stays as large as it is, and uses its free pages again.
        spare = await self._file.read(_spare)
        while spare > 0 and (left := await self._file.change(_shrink)) < spare:
            spare = left

    async def _drop_keys(self) -> None:
        tenant = key = ""
        while page := await self._file.rows(
            "stale_keys", tenant, key=key, now=self._file.now_ms(), limit=PAGE_KEYS
        ):
            ((last_tenant, last_key, stale),) = page
            if stale:
                last = {"last_tenant": last_tenant, "last_key": last_key}
                await self._file.write("drop_keys", tenant, key=key, **last, now=self._file.now_ms())
            tenant, key = last_tenant, last_key

    async def _drop(self, nums: Sequence[int], before: int, rows: Rows) -> int:
        # What was found by a reader is judged again here, where nobody else writes.
        gone = await rows("drop_tasks", nums=nums, before=before)
        await rows("mark_pruned", tasks=gone)
        await rows("drop_events", nums=[num for num, _, _ in gone])
        await rows("drop_deliveries", tasks=gone)
        # Else the numbers of the newest could be given again: a tail would skip events, and a dedup
        # key that is still there would stand for another task.
        plan = self._file.plan
        await rows("mark_ends", tasks=plan.last_num, events=plan.last_id)
        plan.forget(task_id for _, _, task_id in gone)
        return len(gone)


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
