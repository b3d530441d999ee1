"""(State, Command) → events, or a refusal: every command on a task that exists is judged here.

Pure: the caller appends the answer at the seq it decided on; if somebody was faster, it
folds the news and decides again. So every race has one winner, and it is in the log.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct

from trunkline import errors
from trunkline.log import events as ev
from trunkline.log.answers import check_answer, check_answerer
from trunkline.log.delegation import Notify, RestChild, notify, rest_child
from trunkline.log.fold import BYTES_LIMIT, EVENTS_LIMIT, LIMITS, NEVER, State, is_full
from trunkline.log.notifications import DeletePush, SetPush, delete_push, set_push
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import SUBMITTED, TERMINAL, WORKING, Message, TaskState

# The kinds that may end a task.
_ENDING = frozenset({ev.Status, ev.Replied})
_BEGUN = ev.Status(WORKING)


class Say(Struct, frozen=True):
    """Somebody says something more on a task; `claim` is the node that goes on with it, if that changes.

    `by` is the principal that says it, if it is not the owner of the task. A parent passes an answer down
    that was checked where its caller gave it: that is `relayed`.
    """

    message: Message
    claim: str = ""
    push: ev.PushTarget | None = None
    by: str = ""
    relayed: bool = False


class Cancel(Struct, frozen=True):
    """Somebody wants the task to stop; `told` if also an executor that waits must hear of it.

    `claim` is the node that tells it, if nobody has claimed the task since the node `before`.
    """

    by: str
    claim: str = ""
    told: bool = False
    reason: str = ""
    before: str = ""


class ForceCancel(Struct, frozen=True):
    """The executor did not stop in time, or there is none: end the task anyway."""


class Claim(Struct, frozen=True):
    """A node takes over what a dead one left; `due` as in `Claimed`."""

    node: str
    dead: str
    due: bool = False


class Release(Struct, frozen=True):
    """A node that goes down lets go of a task, so that another may go on with it."""

    node: str


class Park(Struct, frozen=True):
    """The executor waits for a moment, a child or a caller, and need not be kept for that."""

    node: str
    wake_at: int = 0
    child: str = ""
    rest_ms: int = 0


class Emit(Struct, frozen=True):
    """The owner's executor has something to record."""

    node: str
    events: tuple[ev.AnyEvent, ...]


Command = (
    Say | Cancel | ForceCancel | Claim | Release | Park | RestChild | Notify | SetPush | DeletePush | Emit
)


def decide(state: State, command: Command) -> tuple[ev.AnyEvent, ...]:
    """The events this command adds; none if it changes nothing.

    Raises:
        Refused: the caller asked for something that the state does not allow.
        TurnOver: an executor speaks for a task that has ended or is not its own.
        TaskFull: an executor has said too much; all that is left is an end.
    """
    match command:
        case Emit():
            return _emit(state, command)
        case Say():
            return _say(state, command)
        case Cancel():
            return _cancel(state, command)
        case ForceCancel():
            return () if state.over else (ev.Status(TaskState.CANCELED),)
        case Claim(node=node, dead=dead, due=due):
            # Whoever claimed it first lives: two that saw the same death must not take it from each other.
            return (ev.Claimed(node, due),) if state.node == dead and _is_claimable(state) else ()
        case Release(node=node):
            return () if state.over or state.node != node else (ev.Claimed(""),)
        case Park():
            return _park(state, command)
        case RestChild():
            return rest_child(state, command)
        case Notify():
            return notify(state, command)
        case SetPush(target=target, by=by):
            return set_push(state, target, by)
        case DeletePush():
            return delete_push(state, command)
        case _:
            assert_never(command)


def _is_claimable(state: State) -> bool:
    # A question holds no claim, unless it has a moment at which its executor is to go on without an answer.
    return not state.resting or (state.interrupted and state.wake_at is not None and state.wake_at < NEVER)


def _park(state: State, command: Park) -> tuple[ev.AnyEvent, ...]:
    if state.over or state.node != command.node:
        return ()
    # What it waits for may have come between its last look and this one: then it goes on at once.
    if state.cancel_requested or len(state.answers) > state.taken or command.child in state.ended_children:
        return ()
    return (ev.Parked(command.wake_at, command.child, command.rest_ms),)


def _say(state: State, command: Say) -> tuple[ev.AnyEvent, ...]:
    message = command.message
    if state.over:
        raise errors.UnsupportedOperation(
            f"task {state.task_id} has ended ({plain_state(state.state)}); "
            "send without taskId to start another",
            field="message.taskId",
        )
    if message.context_id and message.context_id != state.context_id:
        raise errors.InvalidParams(
            f"task {state.task_id} belongs to another context; leave contextId out", field="message.contextId"
        )
    if is_full(state):
        raise errors.UnsupportedOperation(
            f"task {state.task_id} has reached its limit ({LIMITS}); send without taskId to start another",
            field="message.taskId",
        )
    if not command.relayed:
        check_answerer(state, command.by)
    check_answer(state, message, command.by)
    push = () if command.push is None else set_push(state, command.push, state.principal)
    said = ev.FollowUp(message, command.by)
    if not state.interrupted:
        return (*push, said)
    claim = (ev.Claimed(command.claim),) if command.claim and command.claim != state.node else ()
    return (*claim, *push, said, _BEGUN)


def _cancel(state: State, command: Cancel) -> tuple[ev.AnyEvent, ...]:
    if state.over:
        raise errors.TaskNotCancelable(f"task {state.task_id} has already ended ({plain_state(state.state)})")
    requested = () if state.cancel_requested else (ev.CancelRequested(command.by, command.reason),)
    if command.told:
        claims = command.claim not in ("", state.node) and state.node == command.before
        return (ev.Claimed(command.claim), *requested) if claims else requested
    return (*requested, ev.Status(TaskState.CANCELED)) if state.interrupted else requested


def _emit(state: State, command: Emit) -> tuple[ev.AnyEvent, ...]:
    if state.over:
        raise errors.TurnOver(f"task {state.task_id} has ended ({plain_state(state.state)})")
    if state.node != command.node:
        raise errors.TurnOver(f"task {state.task_id} is now run by another node")
    events, kinds = command.events, set(map(type, command.events))
    if ev.QuestionClosed in kinds:
        events = tuple([event for event in events if not _is_answered(state, event)])
    if not kinds.isdisjoint(_ENDING):
        events = _to_the_end(events)
    if _overflows(state, events):
        raise errors.TaskFull(f"task {state.task_id} has reached its limit ({LIMITS})")
    if state.state is SUBMITTED and not _opens(events[0]):
        return (_BEGUN, *events)
    return events


def _is_answered(state: State, event: ev.AnyEvent) -> bool:
    # An answer that came before the deadline was recorded as passed is one.
    return isinstance(event, ev.QuestionClosed) and not event.withdrawn and event.place < len(state.answers)


def _overflows(state: State, events: tuple[ev.AnyEvent, ...]) -> bool:
    # An end may bring its result along.
    said = len(events) - 2 if ends(events[-1]) else len(events)
    return said > 0 and (state.seq + said > EVENTS_LIMIT or state.size >= BYTES_LIMIT)


def _opens(event: ev.AnyEvent) -> bool:
    """Whether this may be a task's first word: that it is worked on, or a direct answer."""
    return type(event) is ev.Replied or (type(event) is ev.Status and event.state is WORKING)


def _to_the_end(events: tuple[ev.AnyEvent, ...]) -> tuple[ev.AnyEvent, ...]:
    # What is said after a verdict comes too late, also within one append.
    for count, event in enumerate(events[:-1], 1):
        if ends(event):
            return events[:count]
    return events


def ends(event: ev.AnyEvent) -> bool:
    """Whether this is the last word on a task."""
    # By type: events have no subclasses, and that a struct is not of a class is found out slowly.
    return type(event) is ev.Replied or (type(event) is ev.Status and event.state in TERMINAL)
