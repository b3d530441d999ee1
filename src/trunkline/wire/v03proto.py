"""Writes 0.3 as its REST binding has it: ProtoJSON of the 0.3 proto, `content`, enums by name, `final`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct

from trunkline.wire import types as t
from trunkline.wire.types import Metadata
from trunkline.wire.v03 import data_object, noted, with_extra

_encode = msgspec.json.Encoder().encode

_STATES = {state: state.value for state in t.TaskState} | {t.TaskState.CANCELED: "TASK_STATE_CANCELLED"}
_ROLES = {t.Role.USER: "ROLE_USER", t.Role.AGENT: "ROLE_AGENT", None: "ROLE_AGENT"}


class _Shape(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    pass


class _File(_Shape, frozen=True):
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _Data(_Shape, frozen=True):
    data: Metadata


class _PartShape(_Shape, frozen=True):
    text: str | None = None
    file: _File | None = None
    data: _Data | None = None
    metadata: Metadata | None = None


# A part or message with unknown members is a dict, since a struct has no room for them.
_Part = _PartShape | Metadata


class _Message(_Shape, frozen=True):
    message_id: str
    role: str
    content: list[_Part]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class _Status(_Shape, frozen=True):
    state: str
    message: _Message | Metadata | None = None
    timestamp: str = ""


class _Artifact(_Shape, frozen=True):
    artifact_id: str
    parts: list[_Part]
    name: str = ""
    description: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class _Task(_Shape, frozen=True):
    id: str
    context_id: str
    status: _Status
    artifacts: list[_Artifact] = []
    history: list[_Message | Metadata] = []
    metadata: Metadata | None = None


class _StatusUpdate(_Shape, frozen=True):
    task_id: str
    context_id: str
    status: _Status
    final: bool
    metadata: Metadata | None = None


class _ArtifactUpdate(_Shape, frozen=True):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class _Page(Struct, frozen=True, rename="camel"):
    tasks: list[_Task]
    next_page_token: str
    page_size: int
    total_size: int


def task(task: t.Task) -> bytes:
    """A bare Task."""
    return _encode(_task(task))


def message(message: t.Message) -> bytes:
    """A bare Message."""
    return _encode(_message(message))


def answer_task(task_bytes: bytes) -> bytes:
    """The result of a send that made or continued a task."""
    return b'{"task":%b}' % task_bytes


def answer_message(message: t.Message) -> bytes:
    """The result of a send that was answered directly."""
    return b'{"message":%b}' % _encode(_message(message))


task_frame = answer_task
message_frame = answer_message


def status_frame(update: t.StatusUpdate, *, final: bool) -> bytes:
    """A change of status in a stream."""
    shape = _StatusUpdate(update.task_id, update.context_id, _status(update.status), final, update.metadata)
    return b'{"statusUpdate":%b}' % _encode(shape)


def artifact_frame(update: t.ArtifactUpdate) -> bytes:
    """A new or grown artifact in a stream."""
    artifact = _artifact(update.artifact)
    shape = _ArtifactUpdate(
        update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
    )
    return b'{"artifactUpdate":%b}' % _encode(shape)


def page(page: t.TaskPage) -> bytes:
    """One page of `list`, which the 0.3 proto lacks; so it is that of 1.0 around 0.3 tasks."""
    tasks = [_task(item) for item in page.tasks]
    return _encode(_Page(tasks, page.next_page_token, page.page_size, page.total_size))


def _task(task: t.Task) -> _Task:
    return _Task(
        task.id,
        task.context_id,
        _status(task.status),
        [_artifact(artifact) for artifact in task.artifacts],
        [_message(message) for message in task.history],
        task.metadata,
    )


def _status(status: t.TaskStatus) -> _Status:
    said = None if status.message is None else _message(status.message)
    return _Status(_STATES[status.state], said, status.timestamp)


def _artifact(artifact: t.Artifact) -> _Artifact:
    return _Artifact(
        artifact.artifact_id,
        [_part(part) for part in artifact.parts],
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions,
    )


def _message(message: t.Message) -> _Message | Metadata:
    shape = _Message(
        message.message_id,
        _ROLES[message.role],
        [_part(part) for part in message.parts],
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions,
    )
    return with_extra(shape, message.extra) if message.extra else shape


def _part(part: t.Part) -> _Part:
    if part.text is not None:
        shape = _PartShape(text=part.text, metadata=noted(part))
    elif part.data is not UNSET:
        shape = _PartShape(data=_Data(data_object(part.data)), metadata=noted(part))
    else:
        file = _File(part.raw, part.url, part.media_type, part.filename)
        shape = _PartShape(file=file, metadata=part.metadata)
    return with_extra(shape, part.extra) if part.extra else shape
