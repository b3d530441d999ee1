"""The scale-out store: PostgreSQL, shared by as many processes as there are replicas.

Sessions of one replica: the writer (`scribe.py`), four for reads and small changes (`pool.py`), the
doorbell (`doorbell.py`) and, once a node has joined, its liveness (`liveness.py`). Time is the
database's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from trunkline.errors import Misuse, StoreError
from trunkline.log.events import AnyEvent, Recorded
from trunkline.log.fold import Head
from trunkline.log.ids import Position
from trunkline.store.ack import Ack
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
from trunkline.store.postgres import outbox, rows
from trunkline.store.postgres.address import DATABASE_ERRORS, EVERY_TENANT, DatabaseAddress
from trunkline.store.postgres.hints import PostgresHints
from trunkline.store.postgres.maintenance import PostgresMaintenance
from trunkline.store.postgres.migrate import migrate, verify
from trunkline.store.postgres.nodes import PostgresNodes
from trunkline.store.postgres.pool import Pool
from trunkline.store.postgres.session import KeptSession, hang_up
from trunkline.store.postgres.transaction import PostgresTransactions
from trunkline.store.writer import Entry, GroupCommit

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

T = TypeVar("T")

NODE_TTL_SECONDS = 3.0
_OPEN_SECONDS = 10.0
# Another transaction, in whatever database of the server, holds a tail back; most are over at once.
_TAIL_PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_PATIENCE = 60.0
_NEW, _OPEN, _CLOSED = "the store is not open", "", "the store is closed"


class PostgresDatabase:
    """`Store` on a database. Opened once, on the loop that uses it."""

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self._address = DatabaseAddress(url)
        # Only the schema: whoever looks neither makes it nor moves it on below a server that runs.
        self._prepare = verify if read_only else migrate
        self._clock = now_ms
        self._refusal = _NEW
        # The schema's version before and after it was opened.
        self.migrated = (0, 0)
        self.broadcast = HintBroadcast()
        self.group_commit = GroupCommit(self._submit, self.broadcast)
        self._link = KeptSession(self._address, "writer")
        self._pool = Pool(self._address)
        self._doorbell = PostgresHints(self._address, self.broadcast)
        self.liveness = PostgresNodes(self._address, self._pool, node_ttl_s, self.now_ms)
        self._scribe = PostgresTransactions(self._address, self._link, self.now_ms)
        self.sweep = PostgresMaintenance(self._pool, self.now_ms, self.liveness.dead)
        self._group: asyncio.Future[list[Entry]] | None = None
        self._writing: asyncio.Task[None] | None = None

    def now_ms(self) -> int | None:
        """What to take for the time; None is the database's own."""
        return None if self._clock is None else self._clock()

    # Life

    async def open(self) -> None:
        """See `Store`."""
        if self._refusal is not _NEW:
            raise Misuse("a store is opened once; make another one")
        self._refusal = _CLOSED
        connection = await self._address.connect("writer", seconds=_OPEN_SECONDS)
        try:
            self.migrated = await self._prepare(connection, self._address)
        except (*DATABASE_ERRORS, StoreError) as error:
            await hang_up(connection)
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self._address.name} cannot be opened: {self._address.told(error)}") from None
        self._link.begin(connection)
        await self._doorbell.start(_OPEN_SECONDS)
        self._group = asyncio.get_running_loop().create_future()
        self._writing = asyncio.create_task(self._write())
        self.group_commit.start()
        self._refusal = _OPEN

    async def close(self) -> None:
        """See `Store`."""
        if self._refusal is not _OPEN:
            return
        self._refusal = _CLOSED
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.group_commit.stop()
                await self._end_writing()
                await self.liveness.close()
                await self._doorbell.stop()
                await self._pool.close()
                await self._link.close()
        except TimeoutError:
            raise StoreError(f"{self._address.name} did not finish within {_PATIENCE:.0f} s") from None
        finally:
            self.broadcast.end()

    async def _end_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    # Writing

    def _submit(self, group: list[Entry]) -> None:
        # At most one group is under way, so this is never set twice.
        if self._group is not None:
            self._group.set_result(group)

    async def _write(self) -> None:
        while self._group is not None:
            group = await self._group
            self._group = asyncio.get_running_loop().create_future()
            outcomes = await self._scribe.write(group)
            try:
                self.group_commit.done(group, outcomes)
            except Exception as error:  # noqa: BLE001 - whoever listens badly must not end the writing
                _logger.error("store.unheard", exc_info=error)
            self._doorbell.ring(
                (entry.tenant, entry.task_id, outcome)
                for entry, outcome in zip(group, outcomes, strict=True)
                if isinstance(outcome, int)
            )

    def read(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]:
        """Run a call that only reads, as this tenant."""
        if self._refusal:
            raise StoreError(self._refusal)
        return self._pool.look(tenant, call)

    def change(self, call: Callable[[Connection], Awaitable[T]], tenant: str = EVERY_TENANT) -> Awaitable[T]:
        """Run a call that writes."""
        if self._refusal:
            raise StoreError(self._refusal)
        return self._pool.change(call, tenant)

    def check(self) -> None:
        """Refuse what comes before `open` or after `close`."""
        if self._refusal:
            raise StoreError(self._refusal)


class _Log:
    """`Log` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
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
        call = partial(rows.read, tenant=tenant, task_id=task_id, after=after, limit=limit)
        return await self._database.read(tenant, call)

    def hints(self) -> AsyncIterator[Hint | Poll]:
        """See `Log`."""
        return self._database.broadcast.listen()

    async def news(self, places: Sequence[Hint], limit: int = 2000) -> list[TailRecord]:
        """See `Log`."""
        return await self._database.read(EVERY_TENANT, partial(rows.news, places=places, limit=limit))

    async def tail(self, cursor: Cursor, limit: int = 1000) -> tuple[list[TailRecord], Cursor]:
        """See `Log`."""
        for pause in _TAIL_PAUSES:
            found, reached = await self._database.read(
                EVERY_TENANT, partial(rows.tail, cursor=cursor, limit=limit)
            )
            if len(found) >= limit or not await self._database.read(EVERY_TENANT, rows.held_back):
                return found, reached
            await asyncio.sleep(pause)
        return await self._database.read(EVERY_TENANT, partial(rows.tail, cursor=cursor, limit=limit))


class _Heads:
    """`Heads` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def get(self, tenant: str, task_id: str) -> Head | None:
        """See `Heads`."""
        return await self._database.read(tenant, partial(rows.head, tenant=tenant, task_id=task_id))

    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """See `Heads`."""
        call = partial(rows.heads, tenant=tenant, where=where, size=size, after=after)
        return await self._database.read(tenant, call)

    async def rebuild(self, tenant: str | None = None) -> int:
        """See `Heads`."""
        self._database.check()
        return await self._database.sweep.rebuild(tenant)


class _Docs:
    """`Docs` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, tenant: str, kind: str, doc_id: str, body: bytes, expected_rev: int) -> int:
        """See `Docs`."""
        call = partial(
            rows.put_doc, tenant=tenant, kind=kind, doc_id=doc_id, body=body, expected_rev=expected_rev
        )
        return await self._database.change(call, tenant)

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """See `Docs`."""
        return await self._database.read(
            tenant, partial(rows.get_doc, tenant=tenant, kind=kind, doc_id=doc_id)
        )

    async def list(self, tenant: str, kind: str) -> list[Doc]:
        """See `Docs`."""
        return await self._database.read(tenant, partial(rows.list_docs, tenant=tenant, kind=kind))

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """See `Docs`."""
        call = partial(rows.delete_doc, tenant=tenant, kind=kind, doc_id=doc_id)
        return await self._database.change(call, tenant)


class _Outbox:
    """`Outbox` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
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
        return await self._database.read(
            EVERY_TENANT if tenant is None else tenant, partial(call, after=after)
        )

    async def replay(self, delivery_id: str, due: int) -> bool:
        """See `Outbox`."""
        now = self._database.now_ms()
        return await self._database.change(partial(outbox.replay, delivery_id=delivery_id, due=due, now=now))


class _Nodes:
    """`Nodes` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._database.liveness.join(node, agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._database.liveness.beat(node)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._database.liveness.leave(node)

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        self._database.check()
        return await self._database.liveness.alive(node)

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        self._database.check()
        return await self._database.liveness.orphans(agents, limit)

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        self._database.check()
        return await self._database.liveness.waiting(tenant, limit, after)

    async def ended_children(self, limit: int = 100) -> list[EndedChild]:
        """See `Nodes`."""
        self._database.check()
        return await self._database.liveness.ended_children(limit)

    async def open_children_of_canceled(self, limit: int = 100) -> list[TaskRef]:
        """See `Nodes`."""
        self._database.check()
        return await self._database.liveness.open_children_of_canceled(limit)


class _Clock:
    """`Clock` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def now(self) -> int:
        """See `Clock`."""
        moment = self._database.now_ms()
        return await self._database.read(EVERY_TENANT, rows.now) if moment is None else moment

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """See `Clock`."""
        return await self._database.change(partial(rows.fire, schedule=schedule, planned_at=planned_at))


class _Maintenance:
    """`Maintenance` of one PostgreSQL store."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def prune(self, before: int, agents: Sequence[str] | None = None) -> int:
        """See `Maintenance`."""
        self._database.check()
        return await self._database.sweep.prune(before, agents)

    async def compact(self, before: int) -> int:
        """See `Maintenance`."""
        self._database.check()
        return await self._database.sweep.compact(before)

    async def tasks(self, cursor: Cursor, limit: int = 500) -> tuple[list[TaskRef], Cursor]:
        """See `Maintenance`."""
        return await self._database.read(EVERY_TENANT, partial(rows.tasks, cursor=cursor, limit=limit))

    async def faults(self) -> list[Fault]:
        """See `Maintenance`."""
        return await self._database.read(EVERY_TENANT, rows.faults)


class PostgresStore:
    """`Store` on a database. Opened once, on the loop that uses it."""

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.database = PostgresDatabase(url, now_ms=now_ms, node_ttl_s=node_ttl_s, read_only=read_only)
        self.log = _Log(self.database)
        self.heads = _Heads(self.database)
        self.docs = _Docs(self.database)
        self.outbox = _Outbox(self.database)
        self.nodes = _Nodes(self.database)
        self.clock = _Clock(self.database)
        self.maintenance = _Maintenance(self.database)
        # As many processes as you like.
        self.shared = True
        self.open = self.database.open
        self.close = self.database.close

    @property
    def migrated(self) -> tuple[int, int]:
        """See `Store`."""
        return self.database.migrated

    def observe(self, observer: Observer) -> None:
        """See `Store`."""
        self.database.group_commit.observer = observer
