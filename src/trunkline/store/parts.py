"""The parts of a store beside its log and its outbox: heads, nodes, clock, documents, maintenance.

Each class says what a store must do, and does itself what both databases do alike: their statements of one
name take the same parameters and give the same columns. What differs is in `sqlite/` and `postgres/`; nothing
here is SQL.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import Conflict, Duplicate
from trunkline.log.compact import Append, compact
from trunkline.log.encoding import DECODE_ERRORS, decode, encode, placed
from trunkline.log.events import Compacted, spanned
from trunkline.log.fold import NEVER, State
from trunkline.log.head import Head, head_after
from trunkline.log.ids import Position
from trunkline.store.database import Rows, StorePart
from trunkline.store.records import (
    START,
    AddedDoc,
    Cursor,
    Doc,
    DocChange,
    DocHint,
    Fault,
    HeadPage,
    NodeRecord,
    Orphan,
    ParkedTask,
    Poll,
    TaskRef,
    TenantDoc,
    Waiting,
    Where,
)
from trunkline.store.statements import HeadRow, filters, head_columns, head_of

PAGE_TASKS = 100
# How many events are folded in one transaction, so that appends need not wait for long.
PAGE_EVENTS = 2000
# How many tasks are written anew in one transaction, for the same reason.
PAGE_SHORTENED = 16
PAGE_CLEARED = 500
_decode_heads = msgspec.json.Decoder(list[HeadRow]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode
# Behind every id of a task.
_LAST = "\x7f"
_logger = logging.getLogger("trunkline.store")


class Heads(StorePart):
    """The folded rows that lists read."""

    async def get(self, tenant: str, task_id: str) -> Head | None:
        """The head of one task; None if there is no such task."""
        rows = await self._database.rows("head", tenant, task_id=task_id)
        return head_of(*rows[0]) if rows else None

    async def list(self, tenant: str, where: Where, *, size: int, after: Position | None = None) -> HeadPage:
        """A keyset page of heads."""
        given = filters(where)
        text = self._filtered(self._list_of(given), given)
        if after is not None:
            text = text.replace("/*after*/", self._database.sql["filter_after"])
            given |= {"after_at": after.status_at, "after_id": after.task_id}
        # One more than asked for tells whether there is a next page.
        ((page,),) = await self._database.rows_of(text, tenant, **given, limit=size + 1)
        rows = _decode_heads(page)
        heads = [head_of(*row) for row in rows[:size]]
        following = Position(heads[-1].status_at, heads[-1].task_id) if len(rows) > size else None
        return HeadPage(heads, following)

    async def count(self, tenant: str, where: Where) -> int:
        """How many heads there are in all pages of a list."""
        given = filters(where)
        ((count,),) = await self._database.rows_of(self._filtered("count_heads", given), tenant, **given)
        return count

    async def duplicate(self, tenant: str, key: str) -> Duplicate | None:
        """What an append with this dedup key would be refused with now."""
        rows = await self._database.rows("find_key", tenant, key=key, now=self._database.now_ms())
        return Duplicate(*rows[0]) if rows else None

    def _list_of(self, given: Mapping[str, object]) -> str:
        """The statement of a list: each database has its own for what it would sort out of all tasks."""
        if {"principal", "context_id", "parent", "open_state", "open_states"} & given.keys():
            return "heads"
        own = ["heads_of_agents", "heads_of_all"] if "agents" in given else ["heads_of_all"]
        return next((name for name in own if name in self._database.sql), "heads")

    def _filtered(self, name: str, given: Mapping[str, object]) -> str:
        sql, way = self._database.sql, ""
        # Only SQLite has to be told by which way it finds the fewest.
        if "context_id" in given or "parent" in given:
            way = "by_num"
        elif "open_state" in given or "open_states" in given:
            way = "by_open"
        elif "born_from" in given and "principal" not in given:
            way = "by_born"
        text = sql[name].replace("/*by*/", sql.get(way, ""))
        return text.replace("/*filters*/", " ".join(sql[f"filter_{name}"] for name in given))

    async def rebuild(self, tenant: str | None = None) -> int:
        """Drop the heads and fold them again from the log; gives how many."""
        count, after = 0, ""
        while page := [*await self._database.rows("next_tasks", tenant, after=after, limit=PAGE_TASKS)]:
            after = page[-1][0]
            while page:
                seen, written = await self._database.transaction(partial(self._refold, page))
                page, count = page[seen:], count + written
        return count

    async def _refold(self, page: Sequence[tuple[str, str]], rows: Rows) -> tuple[int, int]:
        """How many of these tasks were looked at, not too many at once, and how many have a head now."""
        held = {task_id for (task_id,) in await rows("hold_heads", task_ids=[task_id for task_id, _ in page])}
        seen = written = events = 0
        for task_id, tenant in page:
            seen += 1
            try:
                state, head = _folded(task_id, await rows("read_rows", task_id=task_id))
            except DECODE_ERRORS as error:
                # What is known of it stays: it is all that can still be shown.
                _logger.error("store.damaged task=%s reason=%s", task_id, error)
                continue
            if head is None:
                await rows("drop_head", task_id=task_id)
            else:
                columns = dict(zip(Head.__struct_fields__, head_columns(head), strict=True))
                await rows("put_head" if task_id in held else "add_head", tenant, **columns)
            written += head is not None
            events += state.seq
            if events > PAGE_EVENTS:
                break
        return seen, written


def _folded(task_id: str, log: Sequence[Any]) -> tuple[State, Head | None]:
    """The state and the head that the rows of a whole log fold to."""
    state = State(task_id)
    head: Head | None = None
    for last, at, body in log:
        for recorded in placed(last, at, decode(body)):
            head = head_after(state, (recorded.event,), recorded.at) or head
            state.apply(recorded)
    return state, head


class Nodes(StorePart, ABC):
    """Which processes live, which agents they carry, and the tasks that nobody works on."""

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
    async def orphans(
        self, agents: Sequence[str], limit: int = 100, *, timed: bool = True
    ) -> builtins.list[Orphan]:
        """Tasks of these agents that somebody must take up, oldest first.

        Submitted or working, not parked and last claimed by no living node; or parked and spoken to since, or
        if they are `timed` parked until a moment that has come.
        """

    async def parked(self, since: int, limit: int = 100, after: str = "") -> builtins.list[ParkedTask]:
        """Return tasks whose wait for a moment began after `since`, by id, behind the id `after`."""
        values = {"never": NEVER, "since": since, "limit": limit, "after": after}
        return [ParkedTask(*row) for row in await self._database.rows("parked", **values)]

    @abstractmethod
    async def waiting(
        self, tenant: str | None = None, limit: int = 100, after: str = ""
    ) -> builtins.list[Waiting]:
        """Open tasks of agents that no living node carries, by task id, behind the id `after`."""

    async def claimed(
        self, node: str, agents: Sequence[str], limit: int = 100, after: str = ""
    ) -> builtins.list[Orphan]:
        """Submitted and working tasks of these agents that a node claimed last, by id, behind `after`."""
        found = await self._database.rows("claimed", node=node, agents=agents, limit=limit, after=after)
        return [Orphan(*row) for row in found]

    async def rested_children(self, limit: int = 100) -> builtins.list[TaskRef]:
        """Tasks that have ended or ask, and whose parked parent was not told: a process died before."""
        return [TaskRef(*row) for row in await self._database.rows("rested_children", limit=limit)]

    async def open_children_of_ended(self, limit: int = 100) -> builtins.list[TaskRef]:
        """Tasks that are not ended although their parent is."""
        return [TaskRef(*row) for row in await self._database.rows("open_children_of_ended", limit=limit)]


class Clock(StorePart):
    """The store's time, so that replicas agree."""

    async def now(self) -> int:
        """Milliseconds since the epoch."""
        moment = self._database.now_ms()
        if moment is None:
            ((moment,),) = await self._database.rows("now")
        return moment

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """True for exactly one caller of each schedule and instant."""
        return bool(await self._database.write("fire", schedule=schedule, planned_at=planned_at))


class Docs(StorePart, ABC):
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
        written = [(AddedDoc(kind, doc_id, body), expected_rev)]
        if beside is None:
            rev = await _put(self._database.write, tenant, written)
        else:
            written.append((beside, 0))
            rev = await self._database.transaction(partial(_put, tenant=tenant, written=written), tenant)
        for doc, _ in written:
            self._database.tell_docs(doc.kind)
        return rev

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        """One document; None if there is no such document."""
        rows = await self._database.rows("get_doc", tenant, kind=kind, id=doc_id)
        return Doc(*rows[0]) if rows else None

    async def list(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[Doc]:
        """A page of the documents of a kind, by id, behind the id `after`."""
        rows = await self._database.rows("list_docs", tenant, kind=kind, after=after, limit=limit)
        return [Doc(*row) for row in rows]

    async def size(self, tenant: str, kind: str) -> int:
        """How many bytes the documents of a kind have together."""
        ((found,),) = await self._database.rows("docs_size", tenant, kind=kind)
        return int(found)

    async def kinds(self) -> builtins.list[str]:
        """Return the kinds of which there are documents, over all tenants: for operators."""
        return [kind for (kind,) in await self._database.rows("doc_kinds")]

    async def list_all(
        self, kind: str, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> builtins.list[TenantDoc]:
        """A page of the documents of a kind over all tenants, behind (tenant, id): for operators."""
        of, doc_id = after
        rows = await self._database.rows("every_doc", kind=kind, after=of, after_id=doc_id, limit=limit)
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
        return self._database.doc_hints.listen()

    async def delete(self, tenant: str, kind: str, doc_id: str, body: bytes | None = None) -> bool:
        """Remove a document, if it has this body where one is given; whether there was one."""
        now = self._database.now_ms()
        gone = await self._database.write("delete_doc", tenant, kind=kind, id=doc_id, body=body, now=now)
        self._database.tell_docs(kind)
        return bool(gone)

    async def clear(self, tenant: str, *, under: TenantDoc, kind: str) -> bool:
        """Remove documents and dedup keys of a tenant, if another document has its body; whether it has."""
        while True:
            clear = partial(_clear, tenant, under, kind, self._database.now_ms())
            kinds, left = await self._database.transaction(clear)
            for each in kinds:
                self._database.tell_docs(each)
            if not left:
                return left is False


async def _put(rows: Rows, tenant: str, written: Sequence[tuple[AddedDoc, int]]) -> int:
    """Write documents over these revisions, of which 0 is none; gives the new one of the first."""
    revs: list[int] = []
    for doc, rev in written:
        key = {"kind": doc.kind, "id": doc.id}
        found = await rows("put_doc" if rev else "add_doc", tenant, **key, body=doc.body, rev=rev)
        if not found:
            there = await rows("get_doc", tenant, **key)
            raise Conflict(there[0][1] if there else 0)
        revs.append(found[0][0])
    return revs[0]


async def _clear(
    tenant: str, under: TenantDoc, kind: str, now: int | None, rows: Rows
) -> tuple[set[str], bool | None]:
    """Remove a page of what a tenant has; gives its kinds, and whether more is left: None if that stays."""
    if not await rows("hold_doc", under.tenant, kind=kind, id=under.id, body=under.body):
        return set(), None
    found = await rows("docs_of", tenant, limit=PAGE_CLEARED)
    for each, doc_id in found:
        await rows("delete_doc", tenant, kind=each, id=doc_id, body=None, now=now)
    keys = await rows("drop_keys_of", tenant, limit=PAGE_CLEARED)
    return {each for each, _ in found}, bool(found or keys)


class Maintenance(StorePart, ABC):
    """Work over all tasks: what retention, checks and exports need."""

    @abstractmethod
    async def prune(self, before: int, agents: Sequence[str] | None = None, tenant: str | None = None) -> int:
        """Forget tasks (of these agents, of one tenant) that ended before this moment; gives how many.

        Unless it is for one tenant, expired keys go with them.

        One of which somebody is still to be told stays; but not for what nobody posted in five days more.
        """

    @abstractmethod
    async def drop(self, tenant: str, task_ids: Sequence[str], before: int) -> int:
        """Delete those of these tasks of a tenant that ended before this time, and return how many.

        A task with a notification that is still to be delivered stays.
        """

    async def pruned(self, tenant: str) -> int:
        """The number of a cursor before which events of a tenant were forgotten; 0 if none were."""
        rows = await self._database.rows("pruned", tenant)
        return rows[0][0] if rows else 0

    @abstractmethod
    async def compact(self, before: int) -> int:
        """Fold the deltas of tasks that ended before this moment into whole artifacts.

        Seqs stay: a `Compacted` event stands for the ones that went. Gives how many tasks have shrunk.
        """

    async def tasks(self, cursor: Cursor, limit: int = 500) -> tuple[list[TaskRef], Cursor]:
        """Tasks from a cursor (`START` first) by their ids, which sort by age; empty at the end."""
        rows = await self._database.rows("every_task", after=cursor, limit=limit)
        found = [TaskRef(tenant, task_id) for tenant, task_id in rows]
        return found, found[-1].task_id if found else cursor

    async def begun_with(
        self, tenant: str, text: str, cursor: Cursor = START, limit: int = 500
    ) -> tuple[builtins.list[str], Cursor]:
        """Tasks whose first append holds this text, as it is stored; and the cursor of the next page.

        The newest are looked at first, as many as `limit`. Behind the oldest the cursor is `START` again.
        """
        values = {"words": text, "before": cursor or _LAST, "limit": limit}
        ((found, seen, last),) = await self._database.rows("beginnings", tenant, **values)
        return _decode_ids(found), last if seen == limit else START

    @abstractmethod
    async def faults(self) -> list[Fault]:
        """What is wrong with the storage itself, and with rows that belong to no log."""

    async def _shorten(self, task_ids: Sequence[str]) -> int:
        """Merge the pieces of these tasks; gives how many have shrunk."""
        count = 0
        for start in range(0, len(task_ids), PAGE_SHORTENED):
            if shorter := await self._shorter(task_ids[start : start + PAGE_SHORTENED]):
                count += await self._database.transaction(partial(_rewrite, shorter))
        return count

    async def _shorter(self, task_ids: Sequence[str]) -> builtins.list[_Shorter]:
        """Those of these tasks that get shorter, by their ids: the order in which all writers take locks."""
        found: list[_Shorter] = []
        for task_id in sorted(task_ids):
            rows = await self._database.rows("read_rows", task_id=task_id)
            # Merging a long log takes time that callers need not wait for.
            if kept := await asyncio.to_thread(_merged, task_id, rows):
                found.append(_Shorter(task_id, [last for last, _, _ in rows], kept))
        return found


class _Shorter(Struct, gc=False):
    """A task with its pieces merged: the seqs of the rows that were read, and what stays of them."""

    task_id: str
    lasts: list[int]
    kept: list[Append]


def _merged(task_id: str, rows: Sequence[Any]) -> list[Append] | None:
    try:
        return compact(task_id, [Append(last, at, decode(body)) for last, at, body in rows])
    except DECODE_ERRORS as error:
        # One that is damaged must not keep the others long; `trunkline store check` names it too.
        _logger.error("store.damaged task=%s reason=%s: %s", task_id, type(error).__name__, error)
        return None


async def _rewrite(tasks: Sequence[_Shorter], rows: Rows) -> int:
    """Put shorter logs in the place of long ones; gives how many."""
    count = 0
    for task in tasks:
        task_id = task.task_id
        held = await rows("hold_head", task_id=task_id)
        if not held or [last for (last,) in await rows("lasts", task_id=task_id)] != task.lasts:
            # Pruned, compacted or grown since it was read.
            continue
        kept = {append.last for append in task.kept}
        await rows("drop_rows", task_id=task_id, lasts=[last for last in task.lasts if last not in kept])
        for append in task.kept:
            if any(type(event) is Compacted for event in append.events):
                # A row keeps its place in the whole log, so that a tail finds it where its last event was.
                first, body = append.last - spanned(append.events) + 1, encode(append.events)
                await rows("put_row", task_id=task_id, first=first, last=append.last, body=body)
        count += 1
    return count
