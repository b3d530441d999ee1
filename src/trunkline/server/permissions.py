"""What a caller may do: the scope that each operation needs, and what it sees and answers of others' tasks.

Others' questions are for callers with the scope `answer`; they see nothing else of such a task.
"""

from __future__ import annotations

from trunkline.auth.principal import CALLER, Principal, Scope
from trunkline.errors import Forbidden
from trunkline.log.fold import State
from trunkline.wire.operations import Operation
from trunkline.wire.types import Task, TaskState, TaskStatus

READ, WRITE, METRICS, ADMIN = Scope.READ, Scope.WRITE, Scope.METRICS, Scope.ADMIN
NEEDED: dict[Operation, Scope] = {
    Operation.SEND: WRITE,
    Operation.STREAM: WRITE,
    Operation.CANCEL: WRITE,
    Operation.PUSH_SET: WRITE,
    Operation.PUSH_DELETE: WRITE,
    Operation.GET: READ,
    Operation.LIST: READ,
    Operation.SUBSCRIBE: READ,
    Operation.PUSH_GET: READ,
    Operation.PUSH_LIST: READ,
    Operation.EXTENDED_CARD: READ,
}
# Who may only answer questions comes in too, and is then shown and taken no more than that.
INSTEAD: dict[Operation, Scope] = dict.fromkeys(
    (Operation.SEND, Operation.STREAM, Operation.GET, Operation.LIST), Scope.ANSWER
)
_ASKS = TaskState.INPUT_REQUIRED


def permit(principal: Principal, scope: Scope, instead: Scope | None = None) -> None:
    """Whether a caller may do something, before anything is looked up; also one that has a scope `instead`.

    Raises:
        Forbidden: it has not the scope.
    """
    if scope not in principal.scopes and instead not in principal.scopes:
        raise Forbidden(
            f"this needs the scope {scope.value}, which the caller does not have", scope=scope.value
        )


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
