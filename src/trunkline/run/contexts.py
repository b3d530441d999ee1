"""What the earlier tasks of a context tell the next one: what was said, and where its remote agent stood."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec
from msgspec import UNSET

from trunkline.errors import StoreError
from trunkline.log.events import Recorded, Stepped
from trunkline.log.fold import BYTES_LIMIT, State
from trunkline.run.feed import PAGE, Feed
from trunkline.run.final_message import reply_id
from trunkline.run.tasks import Tasks
from trunkline.store.records import Where
from trunkline.wire.types import Message, Part, Role

log = logging.getLogger("trunkline.run")
# How many earlier tasks of a context are read for the next one, and how much it is told of them: each may be
# as large as a task can be, and many of a context may run at once.
CONTEXT_TASKS = 20
CONTEXT_BYTES = BYTES_LIMIT


async def earlier(tasks: Tasks, feed: Feed, agents: tuple[str, ...]) -> tuple[Message, ...]:
    """The messages between principal and agent in the context before this task, oldest first.

    Of what is too large together the newest tasks count, and of the last one always all.
    """
    said: list[list[Message]] = []
    left = CONTEXT_BYTES
    for task_id in reversed(await _before(tasks, feed, agents)):
        try:
            known = await tasks.fold(feed.tenant, task_id)
        except StoreError as error:
            if not error.damaged_task:
                raise
            # The next task of a conversation goes on with what can be read of it.
            log.error("task.damaged task=%s error=%s", task_id, error)
            continue
        told = messages_of(known)
        left -= sum([_size(part) for message in told for part in message.parts])
        if said and left < 0:
            break
        said.append(told)
    return tuple([message for told in reversed(said) for message in told])


async def step_before(
    tasks: Tasks, feed: Feed, agents: tuple[str, ...], name: str, fits: Callable[[Message], bool]
) -> tuple[Stepped | None, bool]:
    """See `Work.step_before`."""
    for task_id in reversed(await _before(tasks, feed, agents)):
        known, found = State(task_id), None
        for recorded in await _records(tasks, feed.tenant, task_id):
            known.apply(recorded)
            event = recorded.event
            found = event if isinstance(event, Stepped) and event.name == name else found
        if found is not None and fits(known.message):
            return found, True
    first = await tasks.store.heads.get(feed.tenant, feed.state.context_id)
    return None, first is not None and first.principal == feed.state.principal


async def _before(tasks: Tasks, feed: Feed, agents: tuple[str, ...]) -> list[str]:
    """The newest tasks of the context before this one, oldest first."""
    state = feed.state
    where = Where(principal=state.principal, context_id=state.context_id, agents=agents)
    page = await tasks.store.heads.list(feed.tenant, where, size=CONTEXT_TASKS + 1)
    # Task ids sort by birth, so the order does not change when an old task moves.
    return sorted(head.task_id for head in page.heads if head.task_id < state.task_id)[-CONTEXT_TASKS:]


async def _records(tasks: Tasks, tenant: str, task_id: str) -> list[Recorded]:
    found: list[Recorded] = []
    while True:
        batch = await tasks.store.log.read(tenant, task_id, found[-1].seq if found else 0, PAGE)
        found += batch
        if len(batch) < PAGE:
            return found


def _size(part: Part) -> int:
    data = 0 if part.data is UNSET else len(msgspec.json.encode(part.data))
    return len(part.text or "") + len(part.raw or "") + data


def messages_of(state: State) -> list[Message]:
    """Return a task as part of a conversation: its messages, then its results as the agent's last message."""
    said = list(state.history)
    if state.status_message is not None and state.status_message.message_id != reply_id(state.task_id):
        said.append(state.status_message)
    parts = tuple(part for artifact in state.task().artifacts for part in _joined(artifact.parts))
    if parts:
        said.append(
            Message(
                message_id=f"{state.task_id}:result",
                context_id=state.context_id,
                task_id=state.task_id,
                role=Role.AGENT,
                parts=parts,
            )
        )
    return said


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of an artifact with adjacent texts joined, because pieces of a stream are no lines."""
    for is_text, group in groupby(parts, lambda part: part == Part(text=part.text)):
        if is_text:
            yield Part(text="".join([part.text or "" for part in group]))
        else:
            yield from group
