"""Reads everything and says what is wrong. Changes nothing.

Invariant: a head is written together with the event that changed it. While others write, a head and its log
fit only where both are read at one moment: from a store that was opened `read_only`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import MappingProxyType

from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import Head, head_after
from trunkline.store.base import Store
from trunkline.store.documents import DamagedDocument, DocumentScan, Kinds, find_damaged
from trunkline.store.records import START, Fault, TaskRef
from trunkline.wire.spellings import plain_state

PAGE = 2000
# What a task takes after its end: whom to tell of it.
AFTER_END = (ev.PushSet, ev.PushDeleted)


class CheckReport(Struct):
    """The counts and the problems of a store, and its damaged documents.

    `unread` events and documents are of kinds that a newer version wrote.
    """

    tasks: dict[str, int] = {}
    events: int = 0
    bytes: int = 0
    unread: int = 0
    problems: list[Fault] = []
    documents: int = 0
    damaged: list[DamagedDocument] = []


class _Look(Struct):
    """One task as its log tells it."""

    state: State
    head: Head | None = None
    events: int = 0
    bytes: int = 0
    unread: int = 0


async def every_task(store: Store) -> AsyncIterator[list[TaskRef]]:
    """All tasks in pages, by their ids."""
    page, cursor = await store.maintenance.tasks(START)
    while page:
        yield page
        page, cursor = await store.maintenance.tasks(cursor)


async def check(store: Store, kinds: Kinds = MappingProxyType({})) -> CheckReport:
    """Read every log, fold it and compare; decode every document by its kind."""
    report = CheckReport(tasks={}, problems=[], damaged=[])
    scan = DocumentScan()
    try:
        report.problems += await store.maintenance.faults()
        async for page in every_task(store):
            for ref in page:
                await _check_task(store, ref, report)
        async for damaged in find_damaged(store.docs, kinds, scan):
            report.damaged.append(damaged)
        report.documents, report.unread = scan.documents, report.unread + scan.unread
    except StoreError as error:
        report.problems.append(Fault("", f"the store cannot be read to its end: {error}"))
    return report


async def _check_task(store: Store, ref: TaskRef, report: CheckReport) -> None:
    try:
        look, head = await _look(store, ref), await store.heads.get(ref.tenant, ref.task_id)
    except (ValueError, StoreError) as error:
        report.problems.append(Fault(ref.task_id, str(error)))
        return
    if look.events == 0:
        if head is not None:
            report.problems.append(Fault(ref.task_id, "has a head but no events"))
        return
    report.events += look.events
    report.bytes += look.bytes
    report.unread += look.unread
    name = plain_state(look.state.state)
    report.tasks[name] = report.tasks.get(name, 0) + 1
    if look.head != head:
        report.problems.append(Fault(ref.task_id, _difference(look.head, head)))


async def _look(store: Store, ref: TaskRef) -> _Look:
    state = State(ref.task_id)
    look = _Look(state)
    size = PAGE
    while size == PAGE:
        page = await store.log.read(ref.tenant, ref.task_id, state.seq, PAGE)
        for recorded in page:
            _take(look, recorded)
        size = len(page)
        look.events += size
        look.bytes += len(encoding.encode([recorded.event for recorded in page])) if page else 0
    return look


def check_next(state: State, recorded: ev.Recorded) -> None:
    """Check that an event may follow in the log of a task.

    Raises:
        ValueError: it does not.
    """
    event = recorded.event
    if recorded.seq - ev.span(event) != state.seq or recorded.seq <= state.seq:
        raise ValueError(f"event {recorded.seq} does not follow {state.seq}")
    if state.seq == 0 and not isinstance(event, ev.Submitted):
        raise ValueError("does not begin with what was submitted")
    if state.over and not isinstance(event, AFTER_END):
        raise ValueError(f"event {recorded.seq} comes after its end")


def _take(look: _Look, recorded: ev.Recorded) -> None:
    state, event = look.state, recorded.event
    check_next(state, recorded)
    look.head = head_after(state, (event,), recorded.at) or look.head
    state.apply(recorded)
    look.unread += isinstance(event, ev.Unread)


def _difference(told: Head | None, found: Head | None) -> str:
    if told is None or found is None:
        return "has a log but no head"
    names = [name for name in Head.__struct_fields__ if getattr(told, name) != getattr(found, name)]
    parts = [f"{name} is {getattr(found, name)}, not {getattr(told, name)}" for name in names]
    return f"its head does not fit its log: {'; '.join(parts)}"
