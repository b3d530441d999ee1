"""Events → State. Pure: the same events always give the same state.

A `State` grows in place, so that a long task costs one step per event and never a copy.
Nobody outside gets its lists: readers take `task()` or the encoded bytes made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

from trunkline.log import events as ev
from trunkline.log.artifact import Artifacts
from trunkline.log.crash_count import CrashCount
from trunkline.log.push_targets import add_target, change_targets
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import (
    COMPLETED,
    INTERRUPTED,
    SUBMITTED,
    TERMINAL,
    Correlation,
    FlatTask,
    Message,
    Metadata,
    Task,
    TaskState,
    TaskStatus,
)

# A parked task that no moment wakes; larger than any time, and still a number for every database.
NEVER = 1 << 62
# A parked task that something was said to: it is due whatever the clock shows.
AT_ONCE = 0

NOBODY: Mapping[str, ev.PushTarget] = MappingProxyType({})
CHILDLESS: Mapping[str, TaskState] = MappingProxyType({})
QUIET: Mapping[str, tuple[str, ...]] = MappingProxyType({})
# One task is neither a database nor a disk.
EVENTS_LIMIT = 20_000
BYTES_LIMIT = 64 << 20
LIMITS = "20 000 events or 64 MiB"


class State:
    """A task folded up to `seq`."""

    __slots__ = (
        "_history", "active_at", "agent", "answered_by", "answers", "artifacts", "came", "cancel_requested",
        "child", "child_questions", "context_id", "correlation", "crashes", "created_at", "deadline", "due",
        "ended_children", "extensions", "flat", "interrupted", "metadata", "node", "notice", "notices",
        "opened", "output_modes", "over", "parent", "parked_until", "principal", "push", "push_since",
        "questions", "reply", "resting", "seq", "size", "skill", "state", "status_at", "status_message",
        "taken", "task_id", "trace", "wake_at",
    )  # fmt: skip

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.seq: int = 0
        # The seq at which its opening ends: nothing has been done with a task that stands there.
        self.opened: int = 0
        # How many bytes the log holds, as told by whoever reads or writes it: no event knows its own.
        self.size: int = 0
        self.context_id = self.principal = self.agent = self.parent = self.node = self.skill = self.trace = ""
        self.state = SUBMITTED
        # Ended for good; waiting for its caller; either, so that a waiting sender is answered.
        self.over = self.interrupted = self.resting = False
        self.created_at = self.status_at = 0
        # When something was last said on it, plus the time since then in which no process followed it.
        self.active_at = 0
        self.status_message: Message | None = None
        self.metadata: Metadata | None = None
        self.output_modes: tuple[str, ...] = ()
        self.extensions: tuple[str, ...] | None = None
        self.correlation: Correlation | None = None
        # Who is told, by id. Never changed in place: most tasks share the empty one.
        self.push: Mapping[str, ev.PushTarget] = NOBODY
        # Since when each of them is there without a gap: one that was deleted and set again is another.
        self.push_since: Mapping[str, int] = {}
        # Who said something on it, besides whose task it is.
        self.answered_by: tuple[str, ...] = ()
        # The outcome and the ID of each question, in order, and how many answers an executor has read.
        self.answers: list[Message | ev.QuestionClosed] = []
        self.questions: list[str] = []
        self.taken = 0
        self.crashes = CrashCount()
        self.cancel_requested = self.flat = False
        # When the open question is closed, and when another node continues without an answer; None if never.
        self.deadline: int | None = None
        self.due: int | None = None
        # While it is parked or has such a question: when it is due, and the child whose end it waits for.
        self.wake_at: int | None = None
        self.child = ""
        # The moment that it waits for in the executor's terms, and the last such moment that has come.
        self.parked_until = self.came = 0
        # Never changed in place: most tasks have no children and share the empty one.
        self.ended_children: Mapping[str, TaskState] = CHILDLESS
        # What each child has asked so far, in its order.
        self.child_questions: Mapping[str, tuple[str, ...]] = QUIET
        # How often the agent elsewhere that does the work has told of it, and what it told last.
        self.notices = 0
        self.notice: ev.Notified | None = None
        self.reply: Message | None = None
        self._history: list[Message] = []
        self.artifacts = Artifacts()

    @property
    def message(self) -> Message:
        """The message that opened the task."""
        return self._history[0]

    @property
    def history(self) -> tuple[Message, ...]:
        """What was said so far, oldest first."""
        return tuple(self._history)

    @property
    def question(self) -> Message | None:
        """The open question, which is named by its message id; None if nothing is asked."""
        return self.status_message if self.interrupted else None

    def of_children(self) -> set[str]:
        """The ids of all questions that its children have asked."""
        return {asked for several in self.child_questions.values() for asked in several}

    def has_rested(self, child: str, heard: int) -> bool:
        """Whether a child has ended, or asked more than these many questions."""
        return child in self.ended_children or len(self.child_questions.get(child, ())) > heard

    def status(self) -> TaskStatus:
        """The current status as the wire shows it."""
        return TaskStatus(state=self.state, message=self.status_message, timestamp=timestamp(self.status_at))

    def task(self, history_length: int | None = None, *, artifacts: bool = True) -> Task:
        """The task as the wire shows it, with the newest `history_length` messages."""
        history = self._history
        if history_length is not None:
            history = history[-history_length:] if history_length else []
        kind = FlatTask if self.flat else Task
        return kind(
            id=self.task_id,
            context_id=self.context_id,
            status=self.status(),
            artifacts=self.artifacts.all() if artifacts else (),
            history=tuple(history),
            metadata=self.metadata,
        )

    def apply(self, recorded: ev.Recorded) -> None:
        """Take the next event in."""
        if recorded.seq != self.seq + 1:
            self._check_range(recorded)
        self.seq, event = recorded.seq, recorded.event
        if self.crashes.progress is not None:
            self.crashes.note_progress(event, self.artifacts)
        # The commonest by type: that a struct is not of a class is found out slowly.
        if type(event) is ev.Delta or type(event) is ev.Chunk:
            self.active_at = recorded.at
            return self.artifacts.add(event)
        if type(event) is ev.Stepped or type(event) is ev.Routed:
            # Known at once, they belong to the opening; what is done later makes it work first.
            if self.state is SUBMITTED:
                # The opening of a workflow or a delegation: neither is at work until it records that.
                if type(event) is ev.Stepped and self.opened == self.seq - 1:
                    self.crashes.only_waits = True
                self.opened = self.seq
            return None
        match event:
            case ev.Status():
                self._enter(event, recorded.at)
            case ev.Submitted():
                self._submitted(event, recorded.at)
            case ev.FollowUp():
                self._said(event, recorded.at)
            case ev.Replied(message=message):
                self._replied(message, recorded.at)
            case ev.Claimed():
                self._claim(event, recorded.at)
            case ev.Parked():
                self._park(event, recorded.at)
            case ev.ChildEnded() | ev.ChildAsked() | ev.Notified() | ev.CancelRequested():
                self._hear(event, recorded.at)
            case ev.Compacted():
                self.artifacts.restore(event)
            case ev.AnswerRead() | ev.QuestionClosed():
                self._settle_question(event)
            case ev.PushSet() | ev.PushDeleted():
                change_targets(self, event)
            case ev.FlowRows() | ev.WaitBegun():
                self.crashes.note_wait(event, self.seq)
            case ev.Unread() | ev.Delta() | ev.Chunk() | ev.Stepped() | ev.Routed():
                pass
            case _:
                assert_never(event)

    def _check_range(self, recorded: ev.Recorded) -> None:
        # A range may begin before the last event that was taken in: its log was compacted under a reader.
        first = recorded.seq - ev.span(recorded.event) + 1
        if not first <= self.seq + 1 <= recorded.seq:
            raise ValueError(f"task {self.task_id}: event {recorded.seq} does not follow {self.seq}")

    def _submitted(self, event: ev.Submitted, at: int) -> None:
        self.opened = self.seq
        self.context_id = event.context_id
        self.principal = event.principal
        self.agent = event.agent
        self.parent = event.parent
        self.node = event.node
        self.skill = event.skill
        self.metadata = event.metadata
        self.trace = event.trace
        self.output_modes = event.output_modes
        self.extensions = event.extensions
        self.correlation, self.flat = event.correlation, event.flat
        if event.push is not None:
            add_target(self, event.push)
        self.created_at = self.status_at = self.active_at = at
        self._history.append(event.message)

    def _replied(self, message: Message, at: int) -> None:
        self.reply = message
        self._enter(ev.Status(COMPLETED, message), at)

    def _claim(self, event: ev.Claimed, at: int) -> None:
        node = event.node
        if event.due:
            self.came = max(self.came, self.parked_until or self.deadline or 0)
        # A node that did not release the task has died.
        self.crashes.note_claim(self.seq, at, died=bool(node and self.node), asks=self.interrupted)
        # No process followed the task since it was due; if it was not parked, nothing says since when.
        self.active_at += max(0, at - max(self.wake_at or 0, self.active_at))
        self.node, self.parked_until = node, 0
        # Whoever has it may die too: an open question stays due.
        self.wake_at, self.child = self.due, ""

    def _park(self, event: ev.Parked, at: int) -> None:
        self.node, self.parked_until = "", event.wake_at
        if not self.over:
            self.wake_at, self.child = wake_at_of(event, at), event.child

    def _hear(self, event: ev.ChildEnded | ev.ChildAsked | ev.Notified | ev.CancelRequested, at: int) -> None:
        if isinstance(event, ev.CancelRequested):
            self.cancel_requested = True
        elif isinstance(event, ev.Notified):
            self.notices += 1
            self.notice, self.active_at = event, at
        elif isinstance(event, ev.ChildEnded):
            self.ended_children = {**self.ended_children, event.child: event.state}
        else:
            asked = (*self.child_questions.get(event.child, ()), event.question)
            self.child_questions = {**self.child_questions, event.child: asked}
        self._wake()

    def _wake(self) -> None:
        # Whatever is said to a parked task makes it due: its executor is to hear it, at whichever node.
        if self.wake_at is not None and not self.node:
            self.wake_at = AT_ONCE

    def _said(self, event: ev.FollowUp, at: int) -> None:
        message = event.message
        self.active_at = at
        self._wake()
        if event.by and event.by not in self.answered_by:
            self.answered_by = (*self.answered_by, event.by)
        if self.interrupted:
            self.answers.append(message)
            self._keep_question(len(self.questions))
        self._history.append(message)

    def _settle_question(self, event: ev.AnswerRead | ev.QuestionClosed) -> None:
        # Calls that are made together may take up theirs in another order.
        self.taken = max(self.taken, event.place + 1)
        if isinstance(event, ev.QuestionClosed):
            # An answer that came while the question was withdrawn counts for nothing: nobody waited for it.
            self.answers[event.place :] = [event]
            if self.interrupted:
                self._keep_question(event.place)

    def _keep_question(self, place: int) -> None:
        asked = self.status_message
        self.questions[place:] = ["" if asked is None else asked.message_id]
        if self.status_message is not None:
            self._history.append(self.status_message)
            self.status_message = None

    def _enter(self, status: ev.Status, at: int) -> None:
        self.state = state = status.state
        self.over = state in TERMINAL
        self.interrupted = state in INTERRUPTED
        self.resting = self.over or self.interrupted
        self.status_message = status.message
        self.status_at = self.active_at = at
        self.deadline, self.due = (self.interrupted and status.deadline) or None, due_of(status)
        if self.node or self.over:
            # Not of a parked task: what it waits for is its own, whatever is said meanwhile.
            self.wake_at, self.child = self.due, ""


def due_of(event: ev.Status) -> int | None:
    """When a task that asks continues without an answer if its node has died; None if never."""
    return (AT_ONCE if event.busy else event.deadline or None) if event.state in INTERRUPTED else None


def wake_at_of(event: ev.Parked, at: int) -> int:
    """Return when a task that was parked at this time is due, by the clock of that time."""
    return at + event.rest_ms if event.rest_ms else event.wake_at or NEVER


def fold(task_id: str, recorded: Iterable[ev.Recorded]) -> State:
    """The state after these events."""
    state = State(task_id)
    for one in recorded:
        state.apply(one)
    return state


def is_full(state: State) -> bool:
    """Whether a task may only end from here on."""
    return state.seq >= EVENTS_LIMIT or state.size >= BYTES_LIMIT
