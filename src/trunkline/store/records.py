"""What goes into a store and comes out of it: filters, pages, deliveries, documents, hints. Plain structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from trunkline.log.events import AnyEvent, Recorded
from trunkline.log.head import Head
from trunkline.log.ids import Position
from trunkline.wire.types import INTERRUPTED, TaskState


class TaskRef(Struct, frozen=True, gc=False):
    """A task by its tenant and id."""

    tenant: str
    task_id: str


class Dedup(Struct, frozen=True, gc=False):
    """A key that may be recorded once in `kept_ms` by the store's clock, and the digest of what it stood for.

    It outlives its task. A recorded key whose digest is `over` is replaced: compare and set.
    """

    key: str
    digest: bytes
    kept_ms: int
    over: bytes | None = None


class OutboxEntry(Struct, frozen=True, gc=False):
    """One event to deliver to one target; `seq` is the event's, `id` stays over retries.

    `lane` is the host behind the target with whose it is: what it cannot take must not keep others waiting.
    """

    id: str
    seq: int
    target: str
    lane: str
    due: int


class Delivery(Struct, frozen=True, gc=False):
    """A delivery as it was taken: leased, with the number of attempts before this one."""

    id: str
    tenant: str
    task_id: str
    seq: int
    target: str
    lane: str
    due: int
    attempts: int


class Shares(Struct, frozen=True):
    """What of each lane is on its way already, and how much a host, a principal and a tenant may have."""

    by_lane: Mapping[str, int] = {}
    per_host: int = 1 << 30
    per_principal: int = 1 << 30
    per_tenant: int = 1 << 30


EVERYTHING = Shares()


class DeliveryOutcome(Enum):
    """How an attempt at a delivery ended; DROPPED is one that nobody wants any more."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    DROPPED = "dropped"


class DeliveryResult(Struct, frozen=True, gc=False):
    """The result of an attempt: its outcome, when to try again, the HTTP status if any, and a word why.

    One that is `untried` was given back before anybody could answer, and does not count.
    """

    id: str
    outcome: DeliveryOutcome
    next_due: int = 0
    status: int = 0
    note: str = ""
    untried: bool = False


def host_of(lane: str) -> str:
    """The host that a lane leads to."""
    return lane.partition(" ")[0]


class DeliveryRecord(Struct, frozen=True, gc=False):
    """A delivery as operators see it. `state` is pending, done, dead or dropped; `at` its last attempt."""

    id: str
    tenant: str
    task_id: str
    seq: int
    target: str
    lane: str
    state: str
    due: int | None
    attempts: int
    status: int
    note: str
    at: int

    @property
    def host(self) -> str:
        """The host that the delivery goes to."""
        return host_of(self.lane)


class Hint(TaskRef, frozen=True, gc=False):
    """Word that a task's log has grown; some are lost."""

    seq: int

    @property
    def subject(self) -> str:
        """The subject of the hint: a newer hint about the same takes the place of an older one."""
        return self.task_id


class DocHint(Struct, frozen=True, gc=False):
    """Word that documents of a kind have changed; some are lost."""

    kind: str

    @property
    def subject(self) -> str:
        """The subject of the hint: the kind of the documents."""
        return self.kind


class Poll(Struct, frozen=True, gc=False):
    """A reminder, from time to time, that hints may have been lost: look yourself."""


class TailRecord(TaskRef, frozen=True, gc=False):
    """An event of the whole log with the task it belongs to."""

    recorded: Recorded


class TailAppend(TaskRef, frozen=True, gc=False):
    """Events of the whole log that were appended together to one task; `last` is the seq of the last one.

    What cannot be read back is logged with its task, and comes as one `Unread` at its last seq.
    """

    last: int
    at: int
    events: Sequence[AnyEvent]


Cursor = str
START: Cursor = ""


class AppendPage(NamedTuple):
    """Appends of the whole log, the cursor behind them, and whether there may be more already.

    If not, these are the last that were there when they were asked for.
    """

    appends: Sequence[TailAppend]
    cursor: Cursor
    more: bool


# The states in which a task asks somebody something, always in this order: tokens of pages spell it.
ASKING = tuple([state for state in TaskState if state in INTERRUPTED])


class Where(Struct, frozen=True, gc=False):
    """A filter over heads; what is None does not filter. `agents` of an origin are its own id and ''.

    `state` is one, or several of those that are no end. `born_from` is where the ids of tasks begin that were
    opened from a moment on, children not among them.
    """

    principal: str | None = None
    context_id: str | None = None
    state: TaskState | tuple[TaskState, ...] | None = None
    status_from: int | None = None
    agents: tuple[str, ...] | None = None
    parent: str | None = None
    born_from: str | None = None


class HeadPage(Struct, frozen=True, gc=False):
    """Heads, newest status first; `next` is where the following page starts, None at the end."""

    heads: list[Head]
    next: Position | None


class Orphan(TaskRef, frozen=True, gc=False):
    """A task to be taken up: `node` claimed it last and is dead; none did if it was let go or parked.

    Or it lives and does not run it; then `seq` is its head's, by which two looks know the same claim.
    Of what was let go `released` is the head, which was written with the last word of the log.
    """

    node: str
    agent: str = ""
    seq: int = 0
    released: Head | None = None


class ParkedTask(TaskRef, frozen=True, gc=False):
    """A task that waits for a moment: when it is due and when its wait began, by the clock of that time."""

    wake_at: int
    since: int


class Waiting(TaskRef, frozen=True, gc=False):
    """An open task whose agent no living node carries."""

    agent: str
    state: TaskState


class NodeRecord(Struct, frozen=True, gc=False):
    """A node as operators see it: the agents it carries, and when it last said that it lives."""

    id: str
    agents: tuple[str, ...]
    alive: bool
    beat: int


class Fault(Struct, frozen=True, gc=False):
    """Something that is wrong, with the task it concerns if there is one."""

    task_id: str
    text: str


class Doc(Struct, frozen=True, gc=False):
    """A small document with its revision, 1 for the first."""

    id: str
    rev: int
    body: bytes


class AddedDoc(Struct, frozen=True, gc=False):
    """A document to be written; one that goes beside another of its tenant must not be there yet."""

    kind: str
    id: str
    body: bytes


class TenantDoc(Struct, frozen=True, gc=False):
    """A document with the tenant it belongs to."""

    tenant: str
    id: str
    rev: int
    body: bytes


class DocChange(Struct, frozen=True, gc=False):
    """A document as it stands after a change; None if it was deleted."""

    tenant: str
    id: str
    doc: Doc | None
