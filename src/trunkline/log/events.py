"""Every kind of event a task's log can hold: the dictionary of the system.

Events are immutable and stored as JSON text. `Recorded` is an event with its place.
May import wire types; touches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trunkline.wire.types import Artifact, Correlation, Message, Metadata, Task, TaskState

# In the metadata of a request that was dispatched: by what it was asked for, and its correlation id.
DISPATCH_KEY = "trunkline.dispatch"
# Its members that restrict answers: who may give them, and who else requested the task.
ANSWERED_BY, REQUESTED_BY = "answeredBy", "requestedBy"


class Event(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=str.lower, gc=False):
    """Base of all kinds; `kind` is the class name in lower case, or the name that logs have of it."""


class PushTarget(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a caller wants to be told of a task, in the words of which version.

    `sealed` holds the token and the credentials, encrypted: only whoever posts can open them.
    """

    id: str
    url: str
    version: str
    scheme: str = ""
    sealed: str = ""


class Submitted(Event, frozen=True):
    """A new task: which principal asks which agent for what. `node` is the first claim.

    `agent` is empty in logs written before agents had ids: they belong to the agent at the origin.
    `parent` is the task that called this one; `trace` and `correlation` come from headers of the request.
    A `flat` task was submitted with parts without `kind`, and its caller is answered likewise.
    `extensions` are those that the caller named; None if it named none, so that it gets all.
    """

    message: Message
    context_id: str
    # Logs of the first releases call it so, and a log is never rewritten.
    principal: str = msgspec.field(name="owner")
    node: str
    skill: str = ""
    output_modes: tuple[str, ...] = ()
    metadata: Metadata | None = None
    trace: str = ""
    push: PushTarget | None = None
    extensions: tuple[str, ...] | None = None
    agent: str = ""
    parent: str = ""
    correlation: Correlation | None = None
    flat: bool = False


class Candidate(Struct, frozen=True, omit_defaults=True, gc=False):
    """An agent that could have had a task: its score and what that is made of; or why it was not drawn."""

    agent: str
    score: float = 0.0
    parts: Metadata = {}
    excluded: str = ""


class Routed(Event, frozen=True):
    """Why the task is done by the agent that does it, recorded with its beginning.

    `reason` is one sentence. Where there is a `refusal`, one word, nobody does it: it is born rejected.
    """

    reason: str
    winner: str = ""
    refusal: str = ""
    skill: str = ""
    targets: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()


class Claimed(Event, frozen=True):
    """A node takes the task over, or lets go if it names none; earlier owners are refused from here on."""

    node: str
    # Whether the moment has come for which the task was parked, whatever a clock shows later.
    due: bool = False


class FollowUp(Event, frozen=True, tag="said"):
    """A further message on an open task; `by` is who sent it, if that is not whose task it is."""

    message: Message
    by: str = ""


class Status(Event, frozen=True):
    """The task is now in this state.

    The id of a question is that of its message; `deadline` is when it is closed without an answer
    (milliseconds since the epoch, 0 for never). With `busy` the executor has other work, too: another process
    continues the task if its process dies.
    """

    state: TaskState
    message: Message | None = None
    metadata: Metadata | None = None
    deadline: int = 0
    busy: bool = False


class Delta(Event, frozen=True):
    """Text added to the answer that a skill writes piece by piece; its first piece says what it is called."""

    artifact_id: str
    text: str
    append: bool = True
    last: bool = False
    name: str = ""


class Chunk(Event, frozen=True):
    """An artifact, or parts appended to one. `closes` ends an answer begun by deltas."""

    artifact: Artifact
    append: bool = False
    last: bool = False
    closes: bool = False


class Replied(Event, frozen=True):
    """The skill answered with a message instead of a result; this ends the task."""

    message: Message


class CancelRequested(Event, frozen=True):
    """Somebody asked the running executor to stop, and may have said why."""

    by: str
    reason: str = ""


class Stepped(Event, frozen=True):
    """A step of a skill was done; `place` counts its calls of `turn.step` from 0, -1 begins them anew."""

    place: int
    name: str
    result: object = None


class FlowRow(Struct, frozen=True, array_like=True, gc=False):
    """A row of the history of a workflow's run: its name, and what it says besides the run's own id."""

    name: str
    payload: Metadata


class FlowRows(Event, frozen=True):
    """A workflow's run came this far: rows of its history that were written together, in their order.

    A row holds what is new in it. What it shows of the state of the run follows from the rows before it.
    With `waits`, no activity of the run is open in its process until the next event of this kind.
    """

    rows: tuple[FlowRow, ...]
    waits: bool = False


class WaitBegun(Event, frozen=True):
    """A resumed executor only waits: for the next event, or until `until` (0 for no limit)."""

    until: int = 0


class Parked(Event, frozen=True):
    """The executor has let go of the task until something happens; the claim is released.

    It waits for the moment `wake_at` (milliseconds since the epoch, 0 for none), for the end of the task
    `child` if it names one, and in any case for whatever a caller appends. Whoever claims it next goes on.
    `rest_ms` is what was left of the wait by the monotonic clock; without it `wake_at` counts as it is.
    """

    wake_at: int = 0
    child: str = ""
    rest_ms: int = 0


class ChildEnded(Event, frozen=True):
    """A child of this task has come to its end, in this state; what it said is in its own log."""

    child: str
    state: TaskState


class ChildAsked(Event, frozen=True):
    """A child of this task waits for an answer; `question` is the id of what it asks, in its own log."""

    child: str
    question: str


class Notified(Event, frozen=True):
    """The agent elsewhere that does the work has told of it by a webhook, in which state if it named one.

    `task` is the remote task as it was told with its end; None where the agent is to be asked for it.
    """

    state: TaskState | None = None
    task: Task | None = None


class AnswerRead(Event, frozen=True, tag="taken"):
    """The executor has taken an answer up; `place` counts the answers from 0."""

    place: int


class QuestionClosed(Event, frozen=True):
    """A question has no answer: its deadline has passed, or it was withdrawn; `place` as in `AnswerRead`."""

    place: int
    withdrawn: bool = False


class PushSet(Event, frozen=True):
    """Somebody wants to be told of the task from here on; a target of the same id is replaced."""

    target: PushTarget
    by: str


class PushDeleted(Event, frozen=True):
    """A target is told nothing more: its caller said so, or it did itself (`cause`)."""

    id: str
    by: str
    cause: str = ""


class Compacted(Event, frozen=True):
    """Stands for the `count` events up to its own seq, and holds the artifacts that changed in them.

    Of several ranges between two changes of state the last one holds them. `open` names those whose last
    part was made of deltas: the next delta belongs to it.
    """

    count: int
    artifacts: tuple[Artifact, ...] = ()
    open: tuple[str, ...] = ()


class Unread(Event, frozen=True):
    """An event of a kind that a newer version wrote: kept as it is, and skipped by every reader."""

    body: bytes


Known = (
    Submitted | Routed | Claimed | FollowUp | Status | Delta | Chunk | Replied | CancelRequested | Stepped
    | FlowRows | WaitBegun | Parked | ChildEnded | ChildAsked | Notified | AnswerRead | QuestionClosed
    | PushSet | PushDeleted | Compacted
)  # fmt: skip
AnyEvent = Known | Unread


class Recorded(Struct, frozen=True, gc=False):
    """An event at its place in the log; `at` is milliseconds since the epoch."""

    seq: int
    at: int
    event: AnyEvent


def span(event: AnyEvent) -> int:
    """How many seqs an event stands for."""
    return event.count if type(event) is Compacted else 1


def spanned(events: Sequence[AnyEvent]) -> int:
    """How many seqs these events stand for."""
    return sum([span(event) for event in events])
