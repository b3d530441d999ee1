"""Small events, heads and tasks for the cases to work with."""

from __future__ import annotations

from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import Head, head_after
from trunkline.log.ids import Position
from trunkline.store.base import Store
from trunkline.store.records import HeadPage, Where
from trunkline.wire.types import Message, Part, TaskState

A, B = "tenant-a", "tenant-b"
AT = 1_800_000_000_000


def message(text: str = "hello") -> Message:
    return Message("m-1", parts=(Part(text=text),))


def submitted(
    context: str = "ctx", owner: str = "ann", node: str = "n1", agent: str = "", parent: str = ""
) -> ev.Submitted:
    return ev.Submitted(message(), context, owner, node, agent=agent, parent=parent)


def delta(text: str = "word ") -> ev.Delta:
    return ev.Delta("answer", text)


def deltas(count: int, start: int = 0) -> list[ev.AnyEvent]:
    return [delta(f"{start + index} ") for index in range(count)]


def status(state: TaskState = TaskState.WORKING) -> ev.Status:
    return ev.Status(state)


class Author:
    """Appends to one task as the runner does: with a head whenever a listed field changes."""

    def __init__(self, store: Store, task_id: str, tenant: str = A) -> None:
        self.store = store
        self.tenant = tenant
        self.state = State(task_id)

    async def append(self, *events: ev.AnyEvent, at: int = AT) -> int:
        seq = self.state.seq
        head = head_after(self.state, events, at)
        last = await self.store.log.append(self.tenant, self.state.task_id, seq, events, at=at, head=head)
        for index, event in enumerate(events):
            self.state.apply(ev.Recorded(seq + index + 1, at, event))
        return last


async def task(
    store: Store,
    task_id: str,
    *,
    tenant: str = A,
    context: str = "ctx",
    owner: str = "ann",
    node: str = "n1",
    agent: str = "",
    parent: str = "",
    state: TaskState = TaskState.WORKING,
    at: int = AT,
) -> Author:
    """A task in this state."""
    author = Author(store, task_id, tenant)
    events: list[ev.AnyEvent] = [submitted(context, owner, node, agent, parent)]
    if state is not TaskState.SUBMITTED:
        events.append(status(state))
    await author.append(*events, at=at)
    return author


async def listed(store: Store, where: Where, *, tenant: str = A, size: int = 2) -> list[Head]:
    """All heads that match, page by page."""
    found: list[Head] = []
    after: Position | None = None
    while True:
        page: HeadPage = await store.heads.list(tenant, where, size=size, after=after)
        found += page.heads
        if page.next is None:
            return found
        after = page.next


def ids(heads: list[Head]) -> list[str]:
    return [head.task_id for head in heads]
