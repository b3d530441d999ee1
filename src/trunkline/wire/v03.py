"""Writes 0.3 as JSON-RPC has it: `kind` everywhere, nested files, kebab-case states, `final`."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from trunkline.wire import types as t
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Metadata

_encode = msgspec.json.Encoder().encode

_STATES = {state: plain_state(state) for state in t.STATES} | {t.TaskState.UNSPECIFIED: "unknown"}
_ROLES = {t.Role.USER: "user", t.Role.AGENT: "agent", None: "agent"}


class _Shape(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    pass


class _Kind(_Shape, frozen=True, tag_field="kind"):
    pass


class _File(_Shape, frozen=True):
    content: str | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _TextPart(_Kind, frozen=True, tag="text"):
    text: str
    metadata: Metadata | None = None


class _FilePart(_Kind, frozen=True, tag="file"):
    file: _File
    metadata: Metadata | None = None


class _DataPart(_Kind, frozen=True, tag="data"):
    data: Metadata
    metadata: Metadata | None = None


# A part or message with unknown members is a dict, since a struct has no room for them.
_Part = _TextPart | _FilePart | _DataPart | Metadata


class _Message(_Kind, frozen=True, tag="message"):
    message_id: str
    role: str
    parts: list[_Part]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


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


class _Task(_Kind, frozen=True, tag="task"):
    id: str
    context_id: str
    status: _Status
    artifacts: list[_Artifact] = []
    history: list[_Message | Metadata] = []
    metadata: Metadata | None = None


class _StatusUpdate(_Kind, frozen=True, tag="status-update"):
    task_id: str
    context_id: str
    status: _Status
    final: bool
    metadata: Metadata | None = None


class _WholeArtifact(_Artifact, frozen=True, kw_only=True):
    append: bool
    last_chunk: bool


class _Told(_Kind, frozen=True, tag="status-update"):
    task_id: str
    context_id: str
    status: _Status
    final: bool
    metadata: Metadata | None = None
    artifact: _WholeArtifact | None = None
    artifacts: list[_WholeArtifact] = []


class _ArtifactUpdate(_Kind, frozen=True, tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool
    last_chunk: bool
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
    """The result of a send: the Task itself, told by its `kind`."""
    return task_bytes


answer_message = message
task_frame = answer_task
message_frame = message


def status_frame(update: t.StatusUpdate, *, final: bool) -> bytes:
    """A change of status in a stream."""
    shape = _StatusUpdate(update.task_id, update.context_id, _status(update.status), final, update.metadata)
    return _encode(shape)


def artifact_frame(update: t.ArtifactUpdate) -> bytes:
    """A new or grown artifact in a stream."""
    artifact = _artifact(update.artifact)
    shape = _ArtifactUpdate(
        update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
    )
    return _encode(shape)


def told(update: t.StatusUpdate, artifacts: tuple[t.Artifact, ...], *, final: bool) -> bytes:
    """A push notification: the change of status, and what the task has made once it has ended.

    Receivers of that time read one `artifact`: the last, which is the answer. If there are more, all follow.
    """
    made = [_whole(artifact) for artifact in artifacts]
    shape = _Told(
        update.task_id,
        update.context_id,
        _status(update.status),
        final,
        update.metadata,
        made[-1] if made else None,
        made if len(made) > 1 else [],
    )
    return _encode(shape)


def page(page: t.TaskPage) -> bytes:
    """One page of `list`, which 0.3 names without giving its shape; so it is that of 1.0 around 0.3 tasks."""
    tasks = [_task(item) for item in page.tasks]
    return _encode(_Page(tasks, page.next_page_token, page.page_size, page.total_size))


def noted(part: t.Part) -> Metadata | None:
    """Metadata of a text or data part, which alone can hold its media type and filename in 0.3."""
    if not part.media_type and not part.filename:
        return part.metadata
    # `mimeType` is 0.3's word, and where agents of that time look for the type of a data part.
    notes = {"mimeType": part.media_type, "filename": part.filename}
    return {**{name: text for name, text in notes.items() if text}, **(part.metadata or {})}


def data_object(value: Any) -> Metadata:
    """The value of a data part, which in 0.3 must be an object."""
    return cast("Metadata", value) if isinstance(value, dict) else {"value": value}


def with_extra(shape: Struct, extra: Metadata) -> Metadata:
    """The members of a shape and those unknown ones that override none of them."""
    plain: Metadata = msgspec.to_builtins(shape)
    return {**plain, **{name: value for name, value in extra.items() if name not in plain}}


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


def _whole(artifact: t.Artifact) -> _WholeArtifact:
    known = _artifact(artifact)
    return _WholeArtifact(**msgspec.structs.asdict(known), append=False, last_chunk=True)


def _message(message: t.Message) -> _Message | Metadata:
    shape = _Message(
        message.message_id,
        _ROLES[message.role],
        [_part(part) for part in message.parts],
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions,
        message.reference_task_ids,
    )
    return with_extra(shape, message.extra) if message.extra else shape


def _part(part: t.Part) -> _Part:
    if part.text is not None:
        shape = _TextPart(part.text, noted(part))
    elif part.data is not UNSET:
        shape = _DataPart(data_object(part.data), noted(part))
    else:
        shape = _FilePart(_File(part.raw, part.url, part.media_type, part.filename), part.metadata)
    return with_extra(shape, part.extra) if part.extra else shape
