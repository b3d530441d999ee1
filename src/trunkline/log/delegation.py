"""Work that others do for a task, by a child or by an agent elsewhere: what its log is told of it. Pure."""

from __future__ import annotations

from msgspec import Struct

from trunkline.log import events as ev
from trunkline.log.fold import State, is_full
from trunkline.wire.types import TERMINAL, Task, TaskState

# What an agent elsewhere tells beyond this is heard when it is asked.
NOTICES_LIMIT = 1000


class RestChild(Struct, frozen=True):
    """A child of the task has come to its end, or asks the question of this id."""

    child: str
    state: TaskState
    question: str = ""


class Notify(Struct, frozen=True):
    """The agent elsewhere that does the work tells of it, as a `Notified` has it."""

    state: TaskState | None = None
    task: Task | None = None


def rest_child(state: State, command: RestChild) -> tuple[ev.AnyEvent, ...]:
    """Return what the end or the question of a child adds; one that it asks again after another is news."""
    child = command.child
    if state.over or child in state.ended_children:
        return ()
    if command.state in TERMINAL:
        return (ev.ChildEnded(child, command.state),)
    is_known = state.child_questions.get(child, ())[-1:] == (command.question,)
    return () if is_known or is_full(state) else (ev.ChildAsked(child, command.question),)


def notify(state: State, command: Notify) -> tuple[ev.AnyEvent, ...]:
    """What a webhook of the agent elsewhere adds, while it is news."""
    # A webhook may come again and again; after an end only that of another task is news, as an agent may
    # have named the wrong one first.
    notice, ends = state.notice, command.state in TERMINAL
    has_end = notice is not None and notice.state in TERMINAL
    if state.over or is_full(state) or (has_end and not (ends and _names_another(command, notice))):
        return ()
    if state.notices >= NOTICES_LIMIT and (has_end or not ends):
        return ()
    return (ev.Notified(command.state, command.task),)


def _names_another(command: Notify, notice: ev.Notified | None) -> bool:
    told = None if notice is None else notice.task
    return told is not None and command.task is not None and told.id != command.task.id
