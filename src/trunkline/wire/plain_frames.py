"""Reads the frames of one stream of 1.0 as most agents write them: in a wrapper, of texts and nothing else.

Such a frame needs no normalising, and its types leave no room for deep nesting. Any other is left to the
reader of every dialect, which gives the same for these too.
"""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta, Struct

from trunkline.wire.answers import Notice
from trunkline.wire.decode import DECODE_ERRORS
from trunkline.wire.replies import rpc_notice
from trunkline.wire.spellings import ID_LIMIT
from trunkline.wire.types import (
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

# A shorter frame cannot hold as many lists and objects as are refused.
_MAX_FRAME = 32 << 10
# How many frames in a row may be none of these before they are taken for such no more: a try costs a little.
_MAX_OTHERS = 4


class _Plain(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of the objects in a frame."""


class _PlainPart(_Plain, frozen=True):
    text: str


class _PlainMessage(_Plain, frozen=True):
    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    role: Role | None = None
    parts: tuple[_PlainPart, ...] = ()
    # Such as the skill and the chain of agents, which an agent repeats in the history of its task.
    metadata: dict[str, str | dict[str, str | int | float]] | None = None


class _PlainStatus(_Plain, frozen=True):
    state: TaskState
    timestamp: str = ""
    message: _PlainMessage | None = None


class _PlainArtifact(_Plain, frozen=True):
    artifact_id: Annotated[str, Meta(min_length=1)]
    name: str = ""
    description: str = ""
    parts: tuple[_PlainPart, ...] = ()


class _PlainTask(_Plain, frozen=True):
    id: str
    status: _PlainStatus
    context_id: str = ""
    artifacts: tuple[_PlainArtifact, ...] = ()
    history: tuple[_PlainMessage, ...] = ()


class _PlainStatusUpdate(_Plain, frozen=True):
    task_id: str
    status: _PlainStatus
    context_id: str = ""


class _PlainArtifactUpdate(_Plain, frozen=True):
    task_id: str
    artifact: _PlainArtifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False


class _PlainAnswer(_Plain, frozen=True):
    task: _PlainTask | None = None
    status_update: _PlainStatusUpdate | None = None
    artifact_update: _PlainArtifactUpdate | None = None


class _PlainFrame(Struct, frozen=True, gc=False):
    result: _PlainAnswer
    id: str
    error: None = None


_decode = msgspec.json.Decoder(_PlainFrame).decode


class PlainFrames:
    """The reader of the frames that answer one request."""

    __slots__ = ("_others", "_request_id", "_task_id")

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        # All frames of a stream have the same.
        self._task_id: str | None = None
        self._others = 0

    def read(self, data: bytes) -> Notice:
        """The task, message or update in a frame; raises as `rpc_notice` does."""
        if self._others < _MAX_OTHERS and len(data) < _MAX_FRAME:
            try:
                frame = _decode(data)
                notice = self._notice(frame.result) if frame.id == self._request_id else None
            except DECODE_ERRORS:
                notice = None
            if notice is not None:
                self._others = 0
                return notice
            self._others += 1
        return rpc_notice(data, self._request_id)

    def _notice(self, answer: _PlainAnswer) -> Notice | None:
        status, artifact, task, known = (
            answer.status_update,
            answer.artifact_update,
            answer.task,
            self._task_id,
        )
        if status is not None:
            if artifact is not None or task is not None:
                return None
            if status.task_id != known and not self._is_id(status.task_id):
                return None
            return Notice(StatusUpdate(status.task_id, status.context_id, _status(status.status)))
        if artifact is not None:
            if task is not None or (artifact.task_id != known and not self._is_id(artifact.task_id)):
                return None
            made = _artifact(artifact.artifact)
            update = ArtifactUpdate(
                artifact.task_id, artifact.context_id, made, artifact.append, artifact.last_chunk
            )
            return Notice(update, (made,))
        if task is None or not self._is_id(task.id):
            return None
        artifacts = tuple([_artifact(one) for one in task.artifacts]) if task.artifacts else ()
        history = tuple([_message(one) for one in task.history]) if task.history else ()
        return Notice(Task(task.id, task.context_id, _status(task.status), artifacts, history), artifacts)

    def _is_id(self, given: str) -> bool:
        """Whether it is the id of a task and nothing more; then it is kept, to compare the others with."""
        if not (0 < len(given) <= ID_LIMIT and given.isprintable()) or given.startswith("tasks/"):
            return False
        self._task_id = given
        return True


def _status(plain: _PlainStatus) -> TaskStatus:
    said = plain.message
    return TaskStatus(plain.state, None if said is None else _message(said), plain.timestamp)


def _message(plain: _PlainMessage) -> Message:
    task_id = plain.task_id.removeprefix("tasks/")
    parts, metadata = _parts(plain.parts), cast("Metadata | None", plain.metadata)
    return Message(plain.message_id, plain.context_id, task_id, plain.role, parts, metadata)


def _artifact(plain: _PlainArtifact) -> Artifact:
    return Artifact(plain.artifact_id, plain.name, plain.description, _parts(plain.parts))


def _parts(plain: tuple[_PlainPart, ...]) -> tuple[Part, ...]:
    if len(plain) == 1:
        return (Part(plain[0].text),)
    return tuple([Part(one.text) for one in plain])
