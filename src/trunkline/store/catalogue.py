"""Which tasks there are: what checks and exports walk along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from msgspec import Struct

from trunkline.log.events import span
from trunkline.store.base import START, Cursor, Store

PAGE = 500


class TaskRef(Struct, frozen=True, gc=False):
    """A task by its name."""

    tenant: str
    task_id: str


class Fault(Struct, frozen=True, gc=False):
    """Something that is wrong, with the task it concerns if there is one."""

    task_id: str
    text: str


@runtime_checkable
class Catalogue(Protocol):
    """A store that knows its tasks beside their logs, so that a damaged log is found too."""

    async def tasks(self, cursor: Cursor, limit: int = PAGE) -> tuple[list[TaskRef], Cursor]:
        """Tasks from a cursor (`START` first) by their ids, which sort by age; empty at the end."""
        ...

    async def faults(self) -> list[Fault]:
        """What is wrong with the storage itself, and with rows that belong to no log."""
        ...


@runtime_checkable
class Migrated(Protocol):
    """A store that can say which version its schema had when it was opened, and which it has."""

    migrated: tuple[int, int]


async def every_task(store: Store) -> AsyncIterator[list[TaskRef]]:
    """All tasks in pages, by their ids; without a catalogue by the first event of each in the log."""
    cursor = START
    if isinstance(store, Catalogue):
        while (page := await store.tasks(cursor))[0]:
            found, cursor = page
            yield found
        return
    known: list[TaskRef] = []
    while (records := await store.tail(cursor))[0]:
        page, cursor = records
        known += [
            TaskRef(record.tenant, record.task_id)
            for record in page
            if record.recorded.seq == span(record.recorded.event)
        ]
    known.sort(key=lambda ref: ref.task_id)
    yield known
