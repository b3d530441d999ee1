"""The objects of A2A 1.0 as frozen structs, which all code inside passes around, whatever came in.

Field order is wire order. `extra` holds members that belong to no dialect, so that they
survive a round trip; writers flatten it. Pure data: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import UNSET, Struct, UnsetType

Metadata = dict[str, Any]


class TaskState(Enum):
    """Where a task stands, spelled as in 1.0."""

    # Members are singletons; Enum's own hash is Python code, and states are looked up on every event.
    __hash__ = object.__hash__

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    # What some agents say of a task when they do not know. No task here is ever in it.
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"


class Role(Enum):
    """Who speaks in a message."""

    __hash__ = object.__hash__

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


STATES = tuple([state for state in TaskState if state is not TaskState.UNSPECIFIED])
TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
RESTING = TERMINAL | INTERRUPTED
# What every message passes through: an attribute of an Enum costs ten times a name (until Python 3.12).
SUBMITTED, WORKING, COMPLETED = TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED


class WireStruct(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every wire object: immutable, camelCase, defaults left out."""


class Part(WireStruct, frozen=True):
    """One piece of content: exactly one of text, raw (base64), url or data."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str = ""
    media_type: str = ""
    metadata: Metadata | None = None
    extra: Metadata | None = None


class Message(WireStruct, frozen=True):
    """One message of a caller or an agent."""

    message_id: str
    context_id: str = ""
    task_id: str = ""
    role: Role | None = None
    parts: tuple[Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    extra: Metadata | None = None

    @property
    def text(self) -> str:
        """All text parts, a line each."""
        parts = self.parts
        if len(parts) == 1:
            return parts[0].text or ""
        return "\n".join(part.text for part in parts if part.text is not None)


class TaskStatus(WireStruct, frozen=True):
    """A state, when it was reached and what was said with it."""

    state: TaskState
    message: Message | None = None
    timestamp: str = ""


class Artifact(WireStruct, frozen=True):
    """A result of a task, or a piece of one."""

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...] = ()
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


def described(artifact: Artifact, pieces: Sequence[Artifact]) -> Artifact:
    """An artifact with what pieces that were appended to it say of the whole; its parts stay."""
    if not pieces:
        return artifact
    # All at once: with each of thousands of pieces anew it would be copied as often.
    metadata = dict(artifact.metadata or {})
    for piece in pieces:
        metadata.update(piece.metadata or {})
    every = (artifact, *pieces)
    return Artifact(
        artifact.artifact_id,
        next((one.name for one in reversed(every) if one.name), ""),
        next((one.description for one in reversed(every) if one.description), ""),
        artifact.parts,
        metadata or None,
        tuple(dict.fromkeys([uri for one in every for uri in one.extensions])),
    )


class Task(WireStruct, frozen=True):
    """A task as its readers see it."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None


class FlatTask(Task, frozen=True):
    """A task whose caller sends parts without `kind`; the writer of 0.3 JSON-RPC writes such parts."""


class StatusUpdate(WireStruct, frozen=True):
    """The event of a stream that says: the status changed."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class ArtifactUpdate(WireStruct, frozen=True):
    """The event of a stream that says: an artifact is new or has grown."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class PushConfig(WireStruct, frozen=True):
    """A webhook for the changes of a task: its address, and what shows the receiver that it is us."""

    url: str
    id: str = ""
    token: str = ""
    scheme: str = ""
    credentials: str = ""

    def __repr__(self) -> str:
        # Its address may hold a secret too; a traceback may show any value.
        return f"PushConfig(id={self.id!r}, url={self.url.partition('?')[0]!r}, token=***, credentials=***)"


class PushRequest(WireStruct, frozen=True):
    """The request to set a push config."""

    task_id: str
    config: PushConfig
    tenant: str = ""


class PushQuery(WireStruct, frozen=True):
    """The request to get, list or delete push configs."""

    task_id: str
    config_id: str = ""
    tenant: str = ""


class Correlation(WireStruct, frozen=True):
    """The work that a request belongs to, by the headers `X-Correlation-Id` and `X-Parent-Id`."""

    correlation_id: str = ""
    parent_id: str = ""


class SendRequest(WireStruct, frozen=True):
    """The request of `send` and `stream`, from any dialect."""

    message: Message
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    wait: bool | None = None
    push: PushConfig | None = None
    metadata: Metadata | None = None
    tenant: str = ""
    correlation: Correlation | None = None
    # Whether it is JSON of 0.3 without `kind`, in the message and in its parts.
    flat: bool = False


class TaskQuery(WireStruct, frozen=True):
    """The request of `get`, `cancel` and `subscribe`."""

    id: str
    history_length: int | None = None
    tenant: str = ""


class ListQuery(WireStruct, frozen=True):
    """The request of `list`."""

    context_id: str = ""
    status: TaskState | None = None
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: int | None = None
    include_artifacts: bool = False
    tenant: str = ""


class TaskPage(WireStruct, frozen=True, omit_defaults=False):
    """One page of `list`; all four members are always present."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int
