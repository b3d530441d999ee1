"""What was said in a context before a task, in one order for every reader."""

from __future__ import annotations

from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.store.base import Where
from trunkline.wire.types import Message, Role

TASKS = 20


async def earlier(tasks: Tasks, feed: Feed) -> tuple[Message, ...]:
    """The messages of the context's newest tasks before this one, oldest first."""
    state = feed.state
    where = Where(owner=state.principal, context_id=state.context_id)
    page = await tasks.store.heads.list(feed.tenant, where, size=TASKS + 1)
    # Task ids sort by birth, so the order does not change when an old task moves.
    ids = sorted(head.task_id for head in page.heads if head.task_id < state.task_id)[-TASKS:]
    said: list[Message] = []
    for task_id in ids:
        said.extend(spoken(await tasks.fold(feed.tenant, task_id)))
    return tuple(said)


def spoken(state: State) -> list[Message]:
    """A task as a conversation: its messages, then its results as the agent's last word."""
    said = list(state.history)
    if state.status_message is not None:
        said.append(state.status_message)
    parts = tuple(part for artifact in state.task().artifacts for part in artifact.parts)
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
