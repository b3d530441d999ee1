"""The parts of a store beside its log: heads, nodes, outbox, clock, documents, maintenance.

What every store must do here is told once, as in `base`. Nothing of it is SQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from trunkline.log.head import Head
from trunkline.log.ids import Position
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


class Heads(Protocol):
    """The folded rows that lists read."""

    async def get(self, tenant: str, task_id: str) -> Head | None:
        """The head of one task; None if there is no such task."""
        ...

    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """A keyset page of heads."""
        ...

    async def rebuild(self, tenant: str | None = None) -> int:
        """Drop the heads and fold them again from the log; gives how many."""
        ...


class Nodes(Protocol):
    """Which processes live, which agents they carry, and the tasks that nobody works on."""

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """Announce a node and the ids of its agents ('' among them if one is at the origin)."""
        ...

    async def beat(self, node: str) -> None:
        """Say that a node still lives."""
        ...

    async def leave(self, node: str) -> None:
        """A node goes in peace."""
        ...

    async def alive(self, node: str) -> bool:
        """Whether a node lives; one that never joined does not."""
        ...

    async def list(self) -> list[NodeRecord]:
        """The nodes that are known, by id; those that went in peace are not."""
        ...

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """Tasks of these agents that somebody must take up, oldest first.

        Submitted or working, not parked and last claimed by no living node; or parked until a moment that
        has come.
        """
        ...

    async def claimed(
        self, node: str, agents: Sequence[str], limit: int = 100, after: str = ""
    ) -> list[Orphan]:
        """Submitted and working tasks of these agents that a node claimed last, by id, behind `after`."""
        ...

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """Open tasks of agents that no living node carries, by task id, behind the id `after`."""
        ...

    async def rested_children(self, limit: int = 100) -> list[TaskRef]:
        """Tasks that have ended or ask, and whose parked parent was not told: a process died before."""
        ...

    async def open_children_of_ended(self, limit: int = 100) -> list[TaskRef]:
        """Tasks that are not ended although their parent is."""
        ...


class Outbox(Protocol):
    """Deliveries, written with the event they announce; kept until their task is forgotten."""

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
        ...

    async def settle(self, settled: Sequence[DeliveryResult]) -> None:
        """Record how attempts ended, all at once; RETRY makes one due again at its `next_due`."""
        ...

    async def expire(self, lane: str, before: int, note: str) -> int:
        """Give up what a lane, or all of a host, should have had before and nobody is posting: how many."""
        ...

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
        ...

    async def replay(self, delivery_id: str) -> bool:
        """Make a settled delivery due now with no attempts behind it; False if there is none such."""
        ...


class Clock(Protocol):
    """The store's time, so that replicas agree."""

    async def now(self) -> int:
        """Milliseconds since the epoch."""
        ...

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """True for exactly one caller of each schedule and instant."""
        ...


class Docs(Protocol):
    """Small documents by tenant and kind, changed by compare-and-set on their revision."""

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
        ...

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """One document; None if there is no such document."""
        ...

    async def list(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[Doc]:
        """A page of the documents of a kind, by id, behind the id `after`."""
        ...

    async def kinds(self, tenant: str) -> list[str]:
        """The kinds of documents that a tenant has, in no order."""
        ...

    async def list_all(
        self, kind: str, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> list[TenantDoc]:
        """A page of the documents of a kind over all tenants, behind (tenant, id): for operators."""
        ...

    async def changes(
        self, kind: str, cursor: Cursor = START, limit: int = 1000
    ) -> tuple[list[DocChange], Cursor]:
        """A page of what has changed in a kind since a cursor, over all tenants; from `START` everything.

        Fewer than `limit` are the last ones. At least once: what was just written may be told again. A
        deletion is told for a day.
        """
        ...

    def hints(self) -> AsyncIterator[DocHint | Poll]:
        """Which kinds have changed, here or elsewhere; some hints may be lost, none is false."""
        ...

    async def delete(self, tenant: str, kind: str, doc_id: str) -> bool:
        """Remove a document; whether there was one."""
        ...


class Maintenance(Protocol):
    """Work over all tasks: what retention, checks and exports need."""

    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """Forget tasks (of these agents, of one tenant) that ended before this moment; gives how many.

        Unless it is for one tenant, expired keys go with them.

        One of which somebody is still to be told stays; but not for what nobody posted in five days more.
        """
        ...

    async def compact(self, before: int) -> int:
        """Fold the deltas of tasks that ended before this moment into whole artifacts.

        Seqs stay: a `Compacted` event stands for the ones that went. Gives how many tasks have shrunk.
        """
        ...

    async def tasks(self, cursor: Cursor, limit: int = 500) -> tuple[list[TaskRef], Cursor]:
        """Tasks from a cursor (`START` first) by their ids, which sort by age; empty at the end."""
        ...

    async def faults(self) -> list[Fault]:
        """What is wrong with the storage itself, and with rows that belong to no log."""
        ...
