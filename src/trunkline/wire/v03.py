"""Writes 0.3 as JSON-RPC has it: `kind` everywhere, nested files, kebab-case states, `final`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from trunkline.wire import types as t
from trunkline.wire.reports import parts_with_reports
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Metadata, WireStruct

_encode = msgspec.json.Encoder().encode

_STATES = {state: plain_state(state) for state in t.STATES} | {t.TaskState.UNSPECIFIED: "unknown"}
_ROLES = {t.Role.USER: "user", t.Role.AGENT: "agent", None: "agent"}

# The report whose media type has another name in 0.3.
_DELTA, _DELTA_03 = [f"application/vnd.protolabs.worldstate-delta{end}+json" for end in ("-v1", "")]

# A part or a message; one with unknown members is a dict, since a struct has no room for them.
Written = Struct | Metadata


class _File03(WireStruct, frozen=True):
    content: str | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _TextPart03(WireStruct, frozen=True, tag_field="kind", tag="text"):
    text: str
    metadata: Metadata | None = None


class _FilePart03(WireStruct, frozen=True, tag_field="kind", tag="file"):
    file: _File03
    metadata: Metadata | None = None


class _DataPart03(WireStruct, frozen=True, tag_field="kind", tag="data"):
    data: Metadata
    metadata: Metadata | None = None


class _Message03(WireStruct, frozen=True, tag_field="kind", tag="message"):
    message_id: str
    role: str
    parts: list[Written]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class Status03(WireStruct, frozen=True):
    """A status, the same in both dialects of 0.3 but for the spelling of its state."""

    state: str
    message: Written | None = None
    timestamp: str = ""


class Artifact03(WireStruct, frozen=True):
    """An artifact, the same in both dialects of 0.3 but for its parts."""

    artifact_id: str
    parts: list[Written]
    name: str = ""
    description: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class _WholeArtifact03(Artifact03, frozen=True, kw_only=True):
    append: bool
    last_chunk: bool


class Task03(WireStruct, frozen=True, tag_field="kind", tag="task"):
    """A task with its `kind`."""

    id: str
    context_id: str
    status: Status03
    artifacts: list[Artifact03] = []
    history: list[Written] = []
    metadata: Metadata | None = None


class StatusUpdate03(WireStruct, frozen=True, tag_field="kind", tag="status-update"):
    """A change of status with its `kind`; only a push notification brings artifacts along."""

    task_id: str
    context_id: str
    status: Status03
    final: bool
    metadata: Metadata | None = None
    artifact: _WholeArtifact03 | None = None
    artifacts: list[_WholeArtifact03] = []


class _ArtifactUpdate03(WireStruct, frozen=True, tag_field="kind", tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: Artifact03
    append: bool
    last_chunk: bool
    metadata: Metadata | None = None


class Page03(WireStruct, frozen=True, omit_defaults=False):
    """One page of `list`, which 0.3 names and does not describe; so it is that of 1.0 around 0.3 tasks."""

    tasks: Sequence[Task03]
    next_page_token: str
    page_size: int
    total_size: int


def task(task: t.Task) -> bytes:
    """A bare Task."""
    return _encode(_task(task))


def message(message: t.Message) -> bytes:
    """A bare Message."""
    return _encode(_message(message))


def artifact(artifact: t.Artifact) -> bytes:
    """A bare Artifact."""
    return _encode(artifact_03(artifact, _part))


def answer_task(task_bytes: bytes) -> bytes:
    """The result of a send: the Task itself, told by its `kind`."""
    return task_bytes


answer_message = message
task_frame = answer_task
message_frame = message


def status_frame(update: t.StatusUpdate, *, final: bool) -> bytes:
    """A change of status in a stream."""
    status = status_03(update.status, _STATES, _message)
    return _encode(StatusUpdate03(update.task_id, update.context_id, status, final, update.metadata))


def artifact_frame(update: t.ArtifactUpdate) -> bytes:
    """A new or grown artifact in a stream."""
    artifact = artifact_03(update.artifact, _part)
    written = _ArtifactUpdate03(
        update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
    )
    return _encode(written)


def notification(update: t.StatusUpdate, artifacts: tuple[t.Artifact, ...], *, final: bool) -> bytes:
    """A push notification: the change of status, and what the task has made once it has ended.

    Some receivers of that time read one `artifact`, the last, which is the answer; others only `artifacts`.
    """
    made = [_whole(artifact) for artifact in artifacts]
    written = StatusUpdate03(
        update.task_id,
        update.context_id,
        status_03(update.status, _STATES, _message),
        final,
        update.metadata,
        made[-1] if made else None,
        made,
    )
    return _encode(written)


def page(page: t.TaskPage) -> bytes:
    """One page of `list`."""
    tasks = [_task(item) for item in page.tasks]
    return _encode(Page03(tasks, page.next_page_token, page.page_size, page.total_size))


def _task(task: t.Task) -> Task03:
    return Task03(
        task.id,
        task.context_id,
        status_03(task.status, _STATES, _message),
        [artifact_03(artifact, _part) for artifact in task.artifacts],
        [_message(message) for message in task.history],
        task.metadata,
    )


def _whole(artifact: t.Artifact) -> _WholeArtifact03:
    known = artifact_03(artifact, _part)
    return _WholeArtifact03(**msgspec.structs.asdict(known), append=False, last_chunk=True)


def _message(message: t.Message) -> Written:
    written = _Message03(
        message.message_id,
        _ROLES[message.role],
        [_part(part) for part in message.parts],
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions,
        message.reference_task_ids,
    )
    return with_extra(written, message.extra) if message.extra else written


def _part(part: t.Part) -> Written:
    if part.text is not None:
        written = _TextPart03(part.text, part_metadata(part))
    elif part.data is not UNSET:
        written = _DataPart03(data_object(part.data), part_metadata(part))
    else:
        written = _FilePart03(_File03(part.raw, part.url, part.media_type, part.filename), part.metadata)
    return with_extra(written, part.extra) if part.extra else written


def status_03(
    status: t.TaskStatus, states: Mapping[t.TaskState, str], write: Callable[[t.Message], Written]
) -> Status03:
    """A status whose state and message are written as the dialect has them."""
    said = None if status.message is None else write(status.message)
    return Status03(states[status.state], said, status.timestamp)


def artifact_03(artifact: t.Artifact, write: Callable[[t.Part], Written]) -> Artifact03:
    """An artifact whose parts are written as the dialect has them."""
    return Artifact03(
        artifact.artifact_id,
        [write(part) for part in parts_with_reports(artifact)],
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions,
    )


def part_metadata(part: t.Part) -> Metadata | None:
    """Metadata of a text or data part, which alone can hold its media type and filename in 0.3."""
    if not part.media_type and not part.filename:
        return part.metadata
    # `mimeType` is 0.3's word, and where agents of that time look for the type of a data part.
    notes = {"mimeType": part.media_type, "filename": part.filename}
    written = {**{name: text for name, text in notes.items() if text}, **(part.metadata or {})}
    return {**written, "mimeType": _DELTA_03} if written.get("mimeType") == _DELTA else written


def data_object(value: Any) -> Metadata:
    """The value of a data part, which in 0.3 must be an object."""
    return cast("Metadata", value) if isinstance(value, dict) else {"value": value}


def with_extra(written: Struct, extra: Metadata) -> Metadata:
    """The members of a struct and those unknown ones that override none of them."""
    plain: Metadata = msgspec.to_builtins(written)
    return {**plain, **{name: value for name, value in extra.items() if name not in plain}}
