"""The parts of a store beside its log: heads, nodes, outbox, clock, documents, maintenance.

Each class says what a store must do, and does itself what both databases do alike: their statements of one
name take the same parameters and give the same columns. What differs is in `sqlite/` and `postgres/`; nothing
here is SQL.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from trunkline.log.head import Head
from trunkline.log.ids import Position
from trunkline.store.columns import HeadRow, delivery_filters
from trunkline.store.group_commit import GroupCommit
from trunkline.store.hints import HintBroadcast
from trunkline.store.records import (
    EVERYTHING,
    START,
    AddedDoc,
    Cursor,
    Delivery,
    DeliveryRecord,
    DeliveryResult,
    Doc,
    DocChange,
    DocHint,
    Fault,
    HeadPage,
    NodeRecord,
    Orphan,
    Poll,
    Shares,
    TaskRef,
    TenantDoc,
    Waiting,
    Where,
)


class Database(Protocol):
    """A database with its named statements, to each of which the tenant is a parameter: None is all of them.

    It is opened and closed as the store on it is.
    """

    # The version of the schema before it was opened, and after.
    migrated: tuple[int, int]
    group_commit: GroupCommit

    @property
    def sql(self) -> Mapping[str, str]:
        """The texts of the statements, by their names."""
        ...

    @property
    def doc_hints(self) -> HintBroadcast[DocHint]:
        """The hints of changed documents, for whoever listens."""
        ...

    def now_ms(self) -> int | None:
        """What to take for the time; None is the database's own."""
        ...

    async def rows(self, name: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """The rows that a named statement finds."""
        ...

    async def rows_of(self, text: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """The rows that a text of statements finds that was put together from several."""
        ...

    async def write(self, name: str, tenant: str | None = None, /, **values: Any) -> int:
        """Run a statement that changes rows; gives how many."""
        ...

    def tell_docs(self, kind: str) -> None:
        """Tell whoever listens that documents of a kind have changed."""
        ...

    async def open(self) -> None:
        """See `Store`."""
        ...

    async def close(self) -> None:
        """See `Store`."""
        ...


class Heads(ABC):
    """The folded rows that lists read."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    async def get(self, tenant: str, task_id: str) -> Head | None:
        """The head of one task; None if there is no such task."""
        rows = await self._statements.rows("head", tenant, task_id=task_id)
        return HeadRow(*rows[0]).head() if rows else None

    @abstractmethod
    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """A keyset page of heads."""

    @abstractmethod
    async def rebuild(self, tenant: str | None = None) -> int:
        """Drop the heads and fold them again from the log; gives how many."""


class Nodes(ABC):
    """Which processes live, which agents they carry, and the tasks that nobody works on."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    @abstractmethod
    async def join(self, node: str, agents: Sequence[str]) -> None:
        """Announce a node and the ids of its agents ('' among them if one is at the origin)."""

    @abstractmethod
    async def beat(self, node: str) -> None:
        """Say that a node still lives."""

    @abstractmethod
    async def leave(self, node: str) -> None:
        """A node goes in peace."""

    @abstractmethod
    async def alive(self, node: str) -> bool:
        """Whether a node lives; one that never joined does not."""

    @abstractmethod
    async def list(self) -> list[NodeRecord]:
        """The nodes that are known, by id; those that went in peace are not."""

    @abstractmethod
    async def orphans(self, agents: Sequence[str], limit: int = 100) -> builtins.list[Orphan]:
        """Tasks of these agents that somebody must take up, oldest first.

        Submitted or working, not parked and last claimed by no living node; or parked until a moment that
        has come.
        """

    @abstractmethod
    async def waiting(
        self, tenant: str | None = None, limit: int = 100, after: str = ""
    ) -> builtins.list[Waiting]:
        """Open tasks of agents that no living node carries, by task id, behind the id `after`."""

    async def claimed(
        self, node: str, agents: Sequence[str], limit: int = 100, after: str = ""
    ) -> builtins.list[Orphan]:
        """Submitted and working tasks of these agents that a node claimed last, by id, behind `after`."""
        found = await self._statements.rows("claimed", node=node, agents=agents, limit=limit, after=after)
        return [Orphan(*row) for row in found]

    async def rested_children(self, limit: int = 100) -> builtins.list[TaskRef]:
        """Tasks that have ended or ask, and whose parked parent was not told: a process died before."""
        now = self._statements.now_ms()
        return [TaskRef(*row) for row in await self._statements.rows("rested_children", now=now, limit=limit)]

    async def open_children_of_ended(self, limit: int = 100) -> builtins.list[TaskRef]:
        """Tasks that are not ended although their parent is."""
        return [TaskRef(*row) for row in await self._statements.rows("open_children_of_ended", limit=limit)]


class Outbox(ABC):
    """Deliveries, written with the event they announce; kept until their task is forgotten."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    @abstractmethod
    async def take(
        self,
        limit: int,
        lease_ms: int,
        *,
        per_lane: int,
        busy: Sequence[str] = (),
        shares: Shares = EVERYTHING,
    ) -> list[Delivery]:
        """Lease due deliveries: at most `per_lane` of a lane, none of a busy lane or host.

        Tenants take turns, then the principals of a tenant; of a principal the oldest come first. Of one task
        and target only the earliest unsettled is ever given.
        """

    @abstractmethod
    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """Record how attempts ended, all at once; RETRY makes one due again at its `next_due`."""

    async def expire(self, lane: str, before: int, note: str) -> int:
        """Give up what a lane, or all of a host, should have had before and nobody is posting: how many."""
        count = 0
        while page := await self._expire_page(lane, before, note):
            count += page
        return count

    @abstractmethod
    async def _expire_page(self, lane: str, before: int, note: str) -> int:
        """Give up the next `PAGE_EXPIRED` of them."""

    async def list(
        self,
        *,
        tenant: str | None = None,
        task_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        after: str = "",
    ) -> list[DeliveryRecord]:
        """Deliveries by id, newest task first, behind the id `after`."""
        sql, names = self._statements.sql, delivery_filters(tenant, task_id, state, after)
        text = sql["deliveries"].replace("/*filters*/", " ".join(sql[name] for name in names))
        # What is pending is little beside all that was ever sent, and only SQLite has to be told so.
        text = text.replace("/*by*/", sql.get("by_lane", "") if "filter_pending" in names else "")
        rows = await self._statements.rows_of(
            text, tenant, task_id=task_id, state=state, limit=limit, after=after
        )
        return [DeliveryRecord(*row) for row in rows]

    async def replay(self, delivery_id: str) -> bool:
        """Make a settled delivery due now with no attempts behind it; False if there is none such."""
        return bool(await self._statements.write("replay", id=delivery_id, now=self._statements.now_ms()))


class Clock:
    """The store's time, so that replicas agree."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    async def now(self) -> int:
        """Milliseconds since the epoch."""
        moment = self._statements.now_ms()
        if moment is None:
            ((moment,),) = await self._statements.rows("now")
        return moment

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """True for exactly one caller of each schedule and instant."""
        return bool(await self._statements.write("fire", schedule=schedule, planned_at=planned_at))


class Docs(ABC):
    """Small documents by tenant and kind, changed by compare-and-set on their revision."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    async def put(
        self,
        tenant: str,
        kind: str,
        doc_id: str,
        body: bytes,
        expected_rev: int,
        *,
        beside: AddedDoc | None = None,
    ) -> int:
        """Write over revision `expected_rev` (0: must not exist); gives the new revision.

        What goes `beside` is written with it, or neither is.

        Raises:
            Conflict: the document stands at another revision, or the one beside it is there.
        """
        rev = await self._put(tenant, AddedDoc(kind, doc_id, body), expected_rev, beside)
        for one in (kind, *([beside.kind] if beside else [])):
            self._statements.tell_docs(one)
        return rev

    @abstractmethod
    async def _put(self, tenant: str, doc: AddedDoc, expected_rev: int, beside: AddedDoc | None) -> int:
        """Write one document or both, in one transaction, and tell nobody."""

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """One document; None if there is no such document."""
        rows = await self._statements.rows("get_doc", tenant, kind=kind, id=doc_id)
        return Doc(*rows[0]) if rows else None

    async def list(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[Doc]:
        """A page of the documents of a kind, by id, behind the id `after`."""
        rows = await self._statements.rows("list_docs", tenant, kind=kind, after=after, limit=limit)
        return [Doc(*row) for row in rows]

    async def kinds(self, tenant: str) -> builtins.list[str]:
        """The kinds of documents that a tenant has, in no order."""
        return [kind for (kind,) in await self._statements.rows("doc_kinds", tenant)]

    async def list_all(
        self, kind: str, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> builtins.list[TenantDoc]:
        """A page of the documents of a kind over all tenants, behind (tenant, id): for operators."""
        of, doc_id = after
        rows = await self._statements.rows("every_doc", kind=kind, after=of, after_id=doc_id, limit=limit)
        return [TenantDoc(*row) for row in rows]

    @abstractmethod
    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[builtins.list[DocChange], Cursor]:
        """A page of what has changed in a kind since a cursor, over all tenants; from `START` everything.

        Fewer than `limit` are the last ones. At least once: what was just written may be told again. A
        deletion is told for a day.
        """

    def hints(self) -> AsyncIterator[DocHint | Poll]:
        """Which kinds have changed, here or elsewhere; some hints may be lost, none is false."""
        return self._statements.doc_hints.listen()

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """Remove a document; whether there was one."""
        now = self._statements.now_ms()
        gone = await self._statements.write("delete_doc", tenant, kind=kind, id=doc_id, now=now)
        self._statements.tell_docs(kind)
        return bool(gone)


class Maintenance(ABC):
    """Work over all tasks: what retention, checks and exports need."""

    def __init__(self, database: Database) -> None:
        self._statements = database

    @abstractmethod
    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """Forget tasks (of these agents, of one tenant) that ended before this moment; gives how many.

        Unless it is for one tenant, expired keys go with them.

        One of which somebody is still to be told stays; but not for what nobody posted in five days more.
        """

    @abstractmethod
    async def compact(self, before: int) -> int:
        """Fold the deltas of tasks that ended before this moment into whole artifacts.

        Seqs stay: a `Compacted` event stands for the ones that went. Gives how many tasks have shrunk.
        """

    async def tasks(self, cursor: Cursor, limit: int = 500) -> tuple[list[TaskRef], Cursor]:
        """Tasks from a cursor (`START` first) by their ids, which sort by age; empty at the end."""
        rows = await self._statements.rows("every_task", after=cursor, limit=limit)
        found = [TaskRef(tenant, task_id) for tenant, task_id in rows]
        return found, found[-1].task_id if found else cursor

    @abstractmethod
    async def faults(self) -> list[Fault]:
        """What is wrong with the storage itself, and with rows that belong to no log."""
