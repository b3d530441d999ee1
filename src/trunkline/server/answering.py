"""Who may see and answer the questions of tasks that are somebody else's: callers with the scope `answer`."""

from __future__ import annotations

from trunkline.auth.principal import CALLER, Principal, Scope
from trunkline.log.fold import State
from trunkline.wire.types import Task, TaskState, TaskStatus

_ASKS = TaskState.INPUT_REQUIRED


def owns(who: Principal, state: State) -> bool:
    """Whether a task is this caller's own, and it may do more than answer."""
    return state.principal == who.name and not who.scopes.isdisjoint(CALLER)


def may_see(who: Principal, state: State) -> bool:
    """Whether another's task may be seen by a caller: it asks something, or this caller has answered it."""
    return Scope.ANSWER in who.scopes and (state.state is _ASKS or who.name in state.answered_by)


def answers_as(who: Principal, state: State) -> str:
    """The name under which a caller answers, if it may do nothing else; empty if it may say anything."""
    return "" if owns(who, state) and Scope.WRITE in who.scopes else who.name


def view(who: Principal, state: State, history_length: int | None = None, *, artifacts: bool = True) -> Task:
    """A task as a caller may see it: the whole of its own, of another's what it asks and where it stands."""
    if owns(who, state):
        return state.task(history_length, artifacts=artifacts)
    status = state.status()
    shown = status if status.state is _ASKS else TaskStatus(status.state, timestamp=status.timestamp)
    return Task(state.task_id, state.context_id, shown)
