"""Push targets: the commands that set and delete them, and which events they are told of.

That is every change of state, once each.

Pure. The store writes the rows in the transaction of the events, so that nothing is told that did
not happen and nothing that happened is left untold.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import urlsplit

from msgspec import Struct

from trunkline import errors
from trunkline.log import events as ev
from trunkline.log.fold import BYTES_LIMIT, EVENTS_LIMIT, LIMITS, State
from trunkline.wire.types import RESTING, TaskState

# An ended task still takes targets; so that nobody lets it grow for ever, not beyond this.
PUSH_EVENTS_LIMIT = EVENTS_LIMIT + 1000
PUSH_LIMIT = 16


def announced(state: State, events: Sequence[ev.AnyEvent]) -> list[tuple[int, ev.PushTarget]]:
    """The seqs to be told and whom, once these events are appended here.

    Whoever comes while the task rests is told at once how it stands: no later event would tell him.
    """
    found: list[tuple[int, ev.PushTarget]] = []
    seq, now, targets = state.seq, state.state, dict(state.push)
    for event in events:
        seq += ev.span(event)
        match event:
            case ev.Status(state=entered):
                if entered is not now and entered is not TaskState.SUBMITTED:
                    found += [(seq, target) for target in targets.values()]
                now = entered
            case ev.Replied():
                found += [(seq, target) for target in targets.values()]
                now = TaskState.COMPLETED
            case ev.Submitted(push=ev.PushTarget() as target):
                targets[target.id] = target
            case ev.PushSet(target=target):
                targets[target.id] = target
                if now in RESTING and not _moves(events):
                    found.append((seq, target))
            case ev.PushDeleted(id=gone):
                targets.pop(gone, None)
            case _:
                pass
    return found


def delivery_id(task_id: str, seq: int, target_id: str) -> str:
    """The id of one delivery: the same whoever makes it, sorted by task and event, fit to be signed.

    Callers choose the ids of their targets: the digest is long enough that no two can be made to collide.
    """
    return f"{task_id}_{seq:06d}_{blake2b(target_id.encode(), digest_size=12).hexdigest()}"


def lane(url: str, tenant: str, principal: str) -> str:
    """What waits together: the host that a url leads to, whatever the port, and whose task it is, as digests.

    Short and plain, whatever tenants and principals are called; two that collide share a queue.
    """
    return f"{host(url)} {_short(tenant)} {_short(principal)}"


def host(url: str) -> str:
    """The host that a target's url leads to: a name to sort by. Empty if there is none.

    Not the port: whoever has one port of a machine has the others too, and is slow at all of them.
    """
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _short(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _moves(events: Sequence[ev.AnyEvent]) -> bool:
    # An answer that brings its target along: the change it makes is what there is to tell.
    return any([isinstance(event, ev.Status) for event in events])


class SetPush(Struct, frozen=True):
    """Somebody wants to be told of the task, also when it has ended."""

    target: ev.PushTarget
    by: str


class DeletePush(Struct, frozen=True):
    """A target is told nothing more; `only` this one, if another of its id may have come meanwhile."""

    id: str
    by: str
    cause: str = ""
    only: ev.PushTarget | None = None


def set_push(state: State, target: ev.PushTarget, by: str) -> tuple[ev.AnyEvent, ...]:
    """What a new target adds.

    Raises:
        Refused: the task has as many as it may have, or has reached its limit.
    """
    if target.id not in state.push and len(state.push) >= PUSH_LIMIT:
        raise errors.InvalidParams(
            f"task {state.task_id} has {PUSH_LIMIT} push configs, as many as a task may have; delete one",
            field="id",
        )
    if state.seq >= PUSH_EVENTS_LIMIT or state.size >= BYTES_LIMIT:
        raise errors.UnsupportedOperation(f"task {state.task_id} has reached its limit ({LIMITS})")
    return (ev.PushSet(target, by),)


def delete_push(state: State, command: DeletePush) -> tuple[ev.AnyEvent, ...]:
    """What the end of a target adds; nothing if it is not there."""
    known = state.push.get(command.id)
    if known is None or (command.only is not None and command.only != known):
        return ()
    return (ev.PushDeleted(command.id, command.by, command.cause),)
