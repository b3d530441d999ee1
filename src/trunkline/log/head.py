"""The head of a task: its listed fields, which the store keeps beside the log and could fold anew. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from trunkline.log import events as ev
from trunkline.log.fold import AT_ONCE, State, due_of, wake_at_of
from trunkline.wire.types import TERMINAL, Message, Part, Role, TaskState

# Said of a task in place of what cannot be read.
DAMAGED = "The log of this task is damaged and cannot be read."
# What an executor says most changes no listed field; to find that out last would cost more than the rest.
_UNLISTED = frozenset({ev.Chunk, ev.Delta, ev.Routed, ev.Stepped})


class Head(Struct, frozen=True, gc=False):
    """The listed fields of a task: what the store keeps beside the log, rebuildable from it."""

    task_id: str
    context_id: str
    principal: str
    state: TaskState
    status_at: int
    seq: int
    node: str
    agent: str = ""
    parent: str = ""
    # The child it waits for, and when it is due again if it is parked: NEVER for "not by time".
    child: str = ""
    wake_at: int | None = None


def head_after(task: State, events: Sequence[ev.AnyEvent], at: int) -> Head | None:
    """The head of a task once these events are appended to it; None if they change no listed field."""
    seq, changed = task.seq, 0
    state, status_at, node = task.state, task.status_at, task.node
    context_id, principal, agent, parent = task.context_id, task.principal, task.agent, task.parent
    wake_at, child, due = task.wake_at, task.child, task.due
    for event in events:
        seq += 1
        if type(event) in _UNLISTED:
            continue
        match event:
            case ev.Status(state=state):
                status_at, changed, due = at, seq, due_of(event)
                if node or state in TERMINAL:
                    wake_at, child = due, ""
            case ev.Submitted(
                context_id=context_id, principal=principal, node=node, agent=agent, parent=parent
            ):
                status_at, changed = at, seq
            case ev.Replied():
                state, status_at, changed = TaskState.COMPLETED, at, seq
                wake_at, child = None, ""
            case ev.Claimed(node=node):
                wake_at, child, changed = due, "", seq
            case ev.Parked(child=awaited):
                node, changed = "", seq
                if state not in TERMINAL:
                    wake_at, child = wake_at_of(event, at), awaited
            case ev.FollowUp() | ev.CancelRequested() | ev.ChildEnded() | ev.ChildAsked() | ev.Notified():
                if wake_at is not None and not node:
                    wake_at, changed = AT_ONCE, seq
            case ev.Compacted(count=count):
                seq += count - 1
            case _:
                pass
    if not changed:
        return None
    return Head(
        task.task_id,
        context_id,
        principal,
        state,
        status_at,
        changed,
        node,
        agent,
        parent,
        child,
        wake_at,
    )


def state_from(head: Head) -> State:
    """What a head alone tells of a task, where its log cannot be read or was not yet."""
    state = State(head.task_id)
    state.seq, state.context_id, state.principal = head.seq, head.context_id, head.principal
    state.state, state.status_at = head.state, head.status_at
    state.node, state.agent, state.parent = head.node, head.agent, head.parent
    state.child, state.wake_at = head.child, head.wake_at
    state.status_message = Message(
        message_id=f"{head.task_id}:damaged",
        context_id=head.context_id,
        task_id=head.task_id,
        role=Role.AGENT,
        parts=(Part(text=DAMAGED),),
    )
    return state
