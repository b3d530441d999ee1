"""The embedded store: one SQLite file in WAL mode, or the same code on an in-memory database.

An append is acknowledged after its fsync. One thread writes (`thread.py`), two read
(`readers.py`); in memory there is one connection, and the loop itself uses it (`direct.py`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from trunkline.errors import Misuse, StoreError
from trunkline.log.events import AnyEvent, Recorded
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store import changes, outbox, rows
from trunkline.store.ack import Ack
from trunkline.store.append_plan import AppendPlan
from trunkline.store.base import (
    EVERYTHING,
    Cursor,
    Dedup,
    Delivery,
    DeliveryRecord,
    DeliveryResult,
    Doc,
    EndedChild,
    Fault,
    HeadPage,
    Hint,
    Observer,
    Orphan,
    OutboxEntry,
    Poll,
    Shares,
    TailRecord,
    TaskRef,
    Waiting,
    Where,
)
from trunkline.store.hints import HintBroadcast
from trunkline.store.lock import FileLock
from trunkline.store.maintenance import SqliteMaintenance
from trunkline.store.memory import MemoryWriter
from trunkline.store.migrate import migrate, verify
from trunkline.store.readers import Readers
from trunkline.store.thread import WriterThread
from trunkline.store.transaction import SqliteTransactions
from trunkline.store.writer import Entry, GroupCommit

T = TypeVar("T")

# RETURNING came with this one.
_OLDEST_SQLITE = (3, 35, 0)
_PATIENCE = 60.0
_BUSY_SECONDS = 5.0
_KEPT_STATEMENTS = 256
_NEW, _OPEN, _CLOSED = "the store is not open", "", "the store is closed"


class SqliteDatabase:
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open.
    """

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        # The real path, so that two names of one file share one lock.
        self._path = "" if path is None else os.path.realpath(path)
        self._name = self._path or "the in-memory store"
        self.now_ms = now_ms
        self._read_only = read_only
        self._refusal = _NEW
        # The schema's version before and after it was opened.
        self.migrated = (0, 0)
        self._lock = FileLock(self._path)
        self.broadcast = HintBroadcast()
        self._ledger = AppendPlan(now_ms)
        self.group_commit = GroupCommit(self._submit, self.broadcast)
        self._scribe = SqliteTransactions(self._connect, self._ledger)
        self._thread = (WriterThread if self._path else MemoryWriter)(self._scribe, self.group_commit.done)
        self._readers = Readers(self._connect_reader)
        self.sweep = SqliteMaintenance(self.change, self.read, self._ledger, now_ms)

    # Life

    async def open(self) -> None:
        """See `Store`."""
        if self._refusal is not _NEW:
            raise Misuse("a store is opened once; make another one")
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
        if self._read_only:
            await self._open_to_read()
            return
        try:
            if self._path:
                self._claim_file()
            async with asyncio.timeout(_PATIENCE):
                await self._thread.start()
        except TimeoutError:
            # The thread may still get there, so the lock stays with this process.
            self._refusal = _CLOSED
            raise StoreError(f"{self._name} did not open within {_PATIENCE:.0f} s") from None
        except (sqlite3.Error, OSError, StoreError) as error:
            self._refusal = _CLOSED
            self._lock.release()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self._name} cannot be opened: {error}") from error
        self.group_commit.start()
        self._refusal = _OPEN
        await self.change(changes.clear_nodes)

    async def _open_to_read(self) -> None:
        self._refusal = _CLOSED
        self._find_file()
        await self._readers.look(partial(verify, name=self._name))
        self._refusal = _OPEN

    async def close(self) -> None:
        """See `Store`."""
        if self._refusal is not _OPEN:
            return
        self._refusal = _CLOSED
        if self._read_only:
            await asyncio.to_thread(self._readers.close)
            self.broadcast.end()
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.group_commit.stop()
                # The writer's connection goes last: it then folds the WAL back into the file.
                await asyncio.to_thread(self._readers.close)
                await self._thread.stop()
            self._thread.join()
        except TimeoutError:
            raise StoreError(f"{self._name} did not finish writing within {_PATIENCE:.0f} s") from None
        finally:
            self.broadcast.end()
        self._lock.release()

    def _find_file(self) -> None:
        if not os.path.isfile(self._path):
            raise StoreError(f"{self._name} cannot be opened: there is no such file")

    def _claim_file(self) -> None:
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise StoreError(f"{self._path} cannot be opened: there is no folder {folder}")
        self._lock.acquire()
        # Logs hold what people said; SQLite gives the WAL the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path or ":memory:",
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            cached_statements=_KEPT_STATEMENTS,
            check_same_thread=False,
        )
        try:
            # Before anything else, and of effect on a new file only. What is written costs the same with it
            # (measured: 160 000 appends in 2.57 s either way), and a sweep can shrink the file.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -2048")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            before, after = migrate(connection, self._name)
            # Not when it is opened anew after an error: then nothing is left to migrate.
            if after != self.migrated[1]:
                self.migrated = (before, after)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _submit(self, group: list[Entry]) -> None:
        self._thread.submit(group)

    def change(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run a call with the writer's connection, inside a transaction."""
        if self._refusal or self._read_only:
            raise StoreError(self._refusal or f"{self._name} was opened to be read only")
        return self._thread.change(call)

    def read(self, call: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run a call that only reads."""
        if self._refusal:
            raise StoreError(self._refusal)
        return self._readers.look(call) if self._path else self._thread.look(call)


class _Log:
    """`Log` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def append(
        self,
        tenant: str,
        task_id: str,
        expected: int,
        events: Sequence[AnyEvent],
        *,
        at: int,
        head: Head | None = None,
        deliveries: Sequence[OutboxEntry] = (),
        dedup: Dedup | None = None,
    ) -> Ack:
        """See `Log`."""
        return self._database.group_commit.append(
            tenant, task_id, expected, events, at=at, head=head, deliveries=deliveries, dedup=dedup
        )

    async def read(self, tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """See `Log`."""
        return await self._database.read(
            partial(rows.read, tenant=tenant, task_id=task_id, after=after, limit=limit)
        )

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """See `Log`."""
        return self._database.broadcast.listen()

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """See `Log`."""
        return await self._database.read(partial(rows.news, places=places, limit=limit))

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """See `Log`."""
        return await self._database.read(partial(rows.tail, cursor=cursor, limit=limit))


class _Heads:
    """`Heads` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def get(self, tenant: str, task_id: str) -> Head | None:
        """See `Heads`."""
        return await self._database.read(partial(rows.head, tenant=tenant, task_id=task_id))

    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """See `Heads`."""
        return await self._database.read(
            partial(rows.heads, tenant=tenant, where=where, size=size, after=after)
        )

    async def rebuild(self, tenant: str | None = None) -> int:
        """See `Heads`."""
        return await self._database.sweep.rebuild(tenant)


class _Docs:
    """`Docs` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, tenant: str, kind: str, doc_id: str, body: bytes, expected_rev: int) -> int:
        """See `Docs`."""
        return await self._database.change(
            partial(
                changes.put_doc,
                tenant=tenant,
                kind=kind,
                doc_id=doc_id,
                body=body,
                expected_rev=expected_rev,
            )
        )

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """See `Docs`."""
        return await self._database.read(partial(rows.get_doc, tenant=tenant, kind=kind, doc_id=doc_id))

    async def list(self, tenant: str, kind: str) -> list[Doc]:
        """See `Docs`."""
        return await self._database.read(partial(rows.list_docs, tenant=tenant, kind=kind))

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """See `Docs`."""
        return await self._database.change(
            partial(changes.delete_doc, tenant=tenant, kind=kind, doc_id=doc_id)
        )


class _Outbox:
    """`Outbox` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def take(
        self,
        limit: int,
        lease_ms: int,
        *,
        per_lane: int,
        busy: Sequence[str] = (),
        shares: Shares = EVERYTHING,
    ) -> list[Delivery]:
        """See `Outbox`."""
        now = self._database.now_ms()
        call = partial(outbox.take, limit=limit, lease_ms=lease_ms, now=now, per_lane=per_lane, busy=busy)
        return await self._database.change(partial(call, shares=shares))

    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """See `Outbox`."""
        await self._database.change(partial(outbox.settle, settled=settled, now=self._database.now_ms()))

    async def expire(self, lane: str, before: int, note: str) -> int:
        """See `Outbox`."""
        count, call = (
            0,
            partial(outbox.expire, lane=lane, before=before, now=self._database.now_ms(), note=note),
        )
        while page := await self._database.change(call):
            count += page
        return count

    async def list(
        self,
        *,
        tenant: str | None = None,
        task_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        after: str = "",
    ) -> list[DeliveryRecord]:
        """See `Outbox`."""
        call = partial(outbox.deliveries, tenant=tenant, task_id=task_id, state=state, limit=limit)
        return await self._database.read(partial(call, after=after))

    async def replay(self, delivery_id: str, due: int) -> bool:
        """See `Outbox`."""
        return await self._database.change(partial(outbox.replay, delivery_id=delivery_id, due=due))


class _Nodes:
    """`Nodes` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        await self._database.change(
            partial(changes.join, node=node, agents=agents, now=self._database.now_ms())
        )

    async def beat(self, node: str) -> None:
        """See `Nodes`."""
        await self._database.change(partial(changes.beat, node=node, now=self._database.now_ms()))

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        await self._database.change(partial(changes.leave, node=node))

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return await self._database.read(partial(rows.alive, node=node))

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        call = partial(rows.orphans, agents=agents, now=self._database.now_ms(), limit=limit)
        return await self._database.read(call)

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        return await self._database.read(partial(rows.waiting, tenant=tenant, limit=limit, after=after))

    async def ended_children(self, limit: int = 100) -> list[EndedChild]:
        """See `Nodes`."""
        now = self._database.now_ms()
        return await self._database.read(partial(rows.ended_children, now=now, limit=limit))

    async def open_children_of_canceled(self, limit: int = 100) -> list[TaskRef]:
        """See `Nodes`."""
        return await self._database.read(partial(rows.open_children_of_canceled, limit=limit))


class _Clock:
    """`Clock` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def now(self) -> int:
        """See `Clock`."""
        return self._database.now_ms()

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """See `Clock`."""
        return await self._database.change(partial(changes.fire, schedule=schedule, planned_at=planned_at))


class _Maintenance:
    """`Maintenance` of one SQLite store."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def prune(self, before: int, agents: Sequence[str] | None = None) -> int:
        """See `Maintenance`."""
        return await self._database.sweep.prune(before, agents)

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        return await self._database.sweep.compact(before)

    async def tasks(self, cursor: Cursor, limit: int = 500) -> tuple[list[TaskRef], Cursor]:
        """See `Maintenance`."""
        return await self._database.read(partial(rows.tasks, cursor=cursor, limit=limit))

    async def faults(self) -> list[Fault]:
        """See `Maintenance`."""
        return await self._database.read(rows.faults)


class SqliteStore:
    """`Store` on a file, or in memory when there is no path. Opened once, on the loop that uses it.

    One that is `read_only` takes no lock and changes nothing, so it may read what a server has open.
    """

    # One process per file.
    shared = False

    def __init__(self, path: str | None, *, now_ms: Callable[[], int], read_only: bool = False) -> None:
        self.database = SqliteDatabase(path, now_ms=now_ms, read_only=read_only)
        self.log = _Log(self.database)
        self.heads = _Heads(self.database)
        self.docs = _Docs(self.database)
        self.outbox = _Outbox(self.database)
        self.nodes = _Nodes(self.database)
        self.clock = _Clock(self.database)
        self.maintenance = _Maintenance(self.database)
        self.open = self.database.open
        self.close = self.database.close

    @property
    def migrated(self) -> tuple[int, int]:
        """See `Store`."""
        return self.database.migrated

    def observe(self, observer: Observer) -> None:
        """See `Store`."""
        self.database.group_commit.observer = observer
