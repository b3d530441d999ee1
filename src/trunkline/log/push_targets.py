"""Who is told of a task by a webhook: the commands that set and delete a target, and what they add. Pure."""

from __future__ import annotations

from msgspec import Struct

from trunkline import errors
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.limits import BYTES_LIMIT, EVENTS_LIMIT, LIMITS

# An ended task still takes targets; so that nobody lets it grow for ever, not beyond this.
PUSH_EVENTS_LIMIT = EVENTS_LIMIT + 1000
PUSH_LIMIT = 16


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
