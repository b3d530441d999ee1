"""Writes 0.3 as its REST binding has it: ProtoJSON of the 0.3 proto, `content`, enums by name, `final`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from trunkline.wire import types as t
from trunkline.wire import v03
from trunkline.wire.types import Metadata, WireStruct

_encode = msgspec.json.Encoder().encode

_STATES = {state: state.value for state in t.TaskState} | {t.TaskState.CANCELED: "TASK_STATE_CANCELLED"}
_ROLES = {t.Role.USER: "ROLE_USER", t.Role.AGENT: "ROLE_AGENT", None: "ROLE_AGENT"}


class _ProtoFile03(WireStruct, frozen=True):
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _ProtoData03(WireStruct, frozen=True):
    data: Metadata


class _ProtoPart03(WireStruct, frozen=True):
    text: str | None = None
    file: _ProtoFile03 | None = None
    data: _ProtoData03 | None = None
    metadata: Metadata | None = None


class _ProtoMessage03(WireStruct, frozen=True):
    message_id: str
    role: str
    content: list[v03.Written]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


# ProtoJSON tells objects by the member that holds them; so those of JSON-RPC lose their `kind`.
class _ProtoTask03(v03.Task03, frozen=True, tag=False):
    pass


class _ProtoStatusUpdate03(v03.StatusUpdate03, frozen=True, tag=False):
    pass


class _ProtoArtifactUpdate03(WireStruct, frozen=True):
    task_id: str
    context_id: str
    artifact: v03.Artifact03
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


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
    status = v03.status_03(update.status, _STATES, _message)
    written = _ProtoStatusUpdate03(update.task_id, update.context_id, status, final, update.metadata)
    return b'{"statusUpdate":%b}' % _encode(written)


def artifact_frame(update: t.ArtifactUpdate) -> bytes:
    """A new or grown artifact in a stream."""
    artifact = v03.artifact_03(update.artifact, _part)
    written = _ProtoArtifactUpdate03(
        update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
    )
    return b'{"artifactUpdate":%b}' % _encode(written)


def page(page: t.TaskPage) -> bytes:
    """One page of `list`, which the 0.3 proto lacks."""
    tasks = [_task(item) for item in page.tasks]
    return _encode(v03.Page03(tasks, page.next_page_token, page.page_size, page.total_size))


def _task(task: t.Task) -> _ProtoTask03:
    return _ProtoTask03(
        task.id,
        task.context_id,
        v03.status_03(task.status, _STATES, _message),
        [v03.artifact_03(artifact, _part) for artifact in task.artifacts],
        [_message(message) for message in task.history],
        task.metadata,
    )


def _message(message: t.Message) -> v03.Written:
    written = _ProtoMessage03(
        message.message_id,
        _ROLES[message.role],
        [_part(part) for part in message.parts],
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions,
    )
    return v03.with_extra(written, message.extra) if message.extra else written


def _part(part: t.Part) -> v03.Written:
    if part.text is not None:
        written = _ProtoPart03(text=part.text, metadata=v03.part_metadata(part))
    elif part.data is not UNSET:
        data = _ProtoData03(v03.data_object(part.data))
        written = _ProtoPart03(data=data, metadata=v03.part_metadata(part))
    else:
        file = _ProtoFile03(part.raw, part.url, part.media_type, part.filename)
        written = _ProtoPart03(file=file, metadata=part.metadata)
    return v03.with_extra(written, part.extra) if part.extra else written
