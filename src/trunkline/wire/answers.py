"""The lenient reader of what agents say: answers, stream frames and webhooks of every dialect.

One normaliser for all of them: whichever way a task is followed, the same is understood. Raises
nothing but `Refused`; the path in an error is that inside the object, whatever is wrapped around it.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import InvalidParams
from trunkline.wire.decode_errors import DECODE_ERRORS, check_structure, invalid_params, parse_error
from trunkline.wire.normalize import read_params
from trunkline.wire.parts import read_part
from trunkline.wire.raw import RawAnswer, RawArtifact, RawMessage, RawPart, RawStatus, RawTask, RawUpdate
from trunkline.wire.spellings import check_id, plain_task_id, role_named, state_named
from trunkline.wire.types import (
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskStatus,
)

Answer = Task | Message | StatusUpdate | ArtifactUpdate


class Notice(Struct, frozen=True, gc=False):
    """An answer and what came in the same object: artifacts beside a status, and whether more will follow."""

    answer: Answer
    artifacts: tuple[Artifact, ...] = ()
    final: bool = False


class _Kind(Enum):
    TASK = "task"
    MESSAGE = "message"
    STATUS = "status-update"
    ARTIFACT = "artifact-update"


_WRAPPERS = {
    "task": _Kind.TASK,
    "message": _Kind.MESSAGE,
    "msg": _Kind.MESSAGE,
    "statusUpdate": _Kind.STATUS,
    "status_update": _Kind.STATUS,
    "artifactUpdate": _Kind.ARTIFACT,
    "artifact_update": _Kind.ARTIFACT,
}
_BY_NAME = {kind.value: kind for kind in _Kind}
_KINDS = {b'"%b"' % kind.value.encode(): kind for kind in _Kind}
_SAID = {"messageId", "message_id", "role", "parts", "content"}

_members = msgspec.json.Decoder(dict[str, Raw])
_message_shape = msgspec.json.Decoder(RawMessage)
_task_shape = msgspec.json.Decoder(RawTask)
_update_shape = msgspec.json.Decoder(RawUpdate)
_answer_shape = msgspec.json.Decoder(RawAnswer)


def read_notice(raw: bytes | Raw, *, proto: bool = False) -> Notice:
    """A task, a message or an update, wrapped or bare, with what a status-update brought along: agents put
    the result of a task into it. `proto` says that it is ProtoJSON of the 0.3 proto.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: it is none of these, or a member is missing or of the wrong type.
    """
    body = bytes(raw)
    check_structure(body)
    try:
        notice = read_shape(_answer_shape.decode(body), proto=proto)
    except DECODE_ERRORS:
        notice = None
    return _read_leniently(body, proto=proto) if notice is None else notice


def read_shape(shape: RawAnswer, *, proto: bool = False) -> Notice | None:
    """What was decoded in one go; None if only the lenient reader can tell what it is.

    Raises:
        InvalidParams: a member is missing or of the wrong type.
    """
    kind = _BY_NAME.get(shape.kind or "")
    if kind is None:
        if shape.status is not None:
            update = shape.task_id is not None or shape.final is not None or shape.id is None
            kind = _Kind.STATUS if update else _Kind.TASK
        elif shape.artifact is not None:
            kind = _Kind.ARTIFACT
        else:
            return _unwrapped(shape, proto=proto)
    if kind is _Kind.ARTIFACT:
        return _artifact_update(shape, proto=proto)
    if kind is _Kind.STATUS:
        return _status_update(shape, proto=proto)
    # Members that a message does not have are kept with it, so the lenient reader must see them.
    return _task(shape, proto=proto) if kind is _Kind.TASK else None


def _unwrapped(shape: RawAnswer, *, proto: bool) -> Notice | None:
    wrapped = (shape.artifact_update, shape.status_update, shape.task, shape.message)
    artifact, status, task, message = wrapped
    if wrapped.count(None) != 3:
        return None
    if artifact is not None:
        return _artifact_update(artifact, proto=proto or artifact.final is not None)
    if status is not None:
        # Only the proto of 0.3 has `final` inside a wrapper.
        return _status_update(status, proto=proto or status.final is not None)
    if task is not None:
        return _task(task, proto=proto)
    return None if message is None else Notice(_message(message, "", proto=proto))


def _read_leniently(body: bytes, *, proto: bool) -> Notice:
    kind, inner = _recognised(body)
    if kind is _Kind.MESSAGE:
        return Notice(_message(read_params(_message_shape, RawMessage, inner), "", proto=proto))
    if kind is _Kind.TASK:
        return _task(read_params(_task_shape, RawTask, inner), proto=proto)
    shape = read_params(_update_shape, RawUpdate, inner)
    proto = proto or (inner is not body and shape.final is not None)
    read = _status_update if kind is _Kind.STATUS else _artifact_update
    return read(shape, proto=proto)


def _recognised(body: bytes) -> tuple[_Kind, bytes]:
    """Which of the four it is, and the object itself without its wrapper."""
    try:
        given = {name: bytes(member) for name, member in _members.decode(body).items()}
    except msgspec.ValidationError as error:
        raise invalid_params(error, "the answer") from None
    except DECODE_ERRORS as error:
        raise parse_error(error) from None
    members = {name: text for name, text in given.items() if text != b"null"}
    kind = _KINDS.get(members.get("kind", b""))
    if kind is not None:
        return kind, body
    if "status" in members:
        # A task has an `id`; updates once had one too, but nothing else is ever final.
        update = {"taskId", "task_id", "final"} & members.keys()
        return (_Kind.STATUS if update or "id" not in members else _Kind.TASK), body
    if "artifact" in members:
        return _Kind.ARTIFACT, body
    wrapped = [name for name in members if name in _WRAPPERS and members[name].startswith(b"{")]
    if len(wrapped) == 1:
        return _WRAPPERS[wrapped[0]], members[wrapped[0]]
    if _SAID & members.keys():
        return _Kind.MESSAGE, body
    raise InvalidParams("must have exactly one of task, message, statusUpdate and artifactUpdate, or be one")


def _task(shape: RawTask | RawAnswer, *, proto: bool) -> Notice:
    status = _status(shape.status, proto=proto)
    if status.message is None and shape.message is not None:
        said = _said(shape.message, "message.", proto=proto)
        status = TaskStatus(status.state, said, status.timestamp)
    task = Task(
        _task_id(shape.id, "id"),
        shape.context_id or "",
        status,
        _artifacts(shape.artifacts or (), proto=proto),
        tuple(
            [
                _message(message, f"history[{place}].", proto=proto)
                for place, message in enumerate(shape.history or ())
            ]
        ),
        shape.metadata,
    )
    return Notice(task, task.artifacts)


def _status_update(shape: RawUpdate | RawAnswer, *, proto: bool) -> Notice:
    update = StatusUpdate(
        _task_id(shape.task_id or shape.id, "taskId"),
        shape.context_id or "",
        _status(shape.status, proto=proto),
        shape.metadata,
    )
    artifacts = _artifacts(shape.artifacts or (), proto=proto)
    if shape.artifact is not None:
        one = _artifact(shape.artifact, "artifact", 0, proto=proto)
        # Who sends both repeats in the one what is also among the many.
        if all([one.artifact_id != other.artifact_id for other in artifacts]):
            artifacts = (*artifacts, one)
    return Notice(update, artifacts, shape.final or False)


def _artifact_update(shape: RawUpdate | RawAnswer, *, proto: bool) -> Notice:
    given = shape.artifact
    if given is None:
        raise InvalidParams("artifact is missing", field="artifact")
    update = ArtifactUpdate(
        _task_id(shape.task_id or shape.id, "taskId"),
        shape.context_id or "",
        _artifact(given, "artifact", 0, proto=proto),
        (given.append if shape.append is None else shape.append) or False,
        (given.last_chunk if shape.last_chunk is None else shape.last_chunk) or False,
        shape.metadata,
    )
    return Notice(update, (update.artifact,))


def _task_id(given: str | None, field: str) -> str:
    if not given:
        raise InvalidParams(f"{field} is missing", field=field)
    return check_id(plain_task_id(given), field)


def _status(shape: RawStatus | str | None, *, proto: bool) -> TaskStatus:
    if shape is None:
        raise InvalidParams("status is missing", field="status")
    if isinstance(shape, str):
        shape, field = RawStatus(state=shape), "status"
    else:
        field = "status.state"
    state = state_named(shape.state or "")
    if state is None:
        what = f": {shape.state!r} is no state of a task" if shape.state else " is missing"
        raise InvalidParams(f"{field}{what}", field=field)
    said = shape.message
    message = None if said is None else _said(said, "status.message.", proto=proto)
    return TaskStatus(state, message, shape.timestamp or "")


def _said(said: RawMessage | str, path: str, *, proto: bool) -> Message:
    if isinstance(said, str):
        said = RawMessage(parts=(RawPart(text=said),), role=Role.AGENT.value)
    return _message(said, path, proto=proto)


def _message(shape: RawMessage, path: str, *, proto: bool) -> Message:
    # Agents leave out what a caller may not: an id, a role, even parts.
    parts = shape.parts or ()
    where = f"{path}parts"
    if not parts and shape.content:
        # Only the proto of 0.3 calls them so.
        parts, where, proto = shape.content, f"{path}content", True
    return Message(
        shape.message_id or "",
        shape.context_id or "",
        plain_task_id(shape.task_id or ""),
        role_named(shape.role or ""),
        _parts(parts, where, proto=proto),
        shape.metadata,
        shape.extensions or (),
        shape.reference_task_ids or (),
        shape.extra,
    )


def _artifacts(shapes: tuple[RawArtifact, ...], *, proto: bool) -> tuple[Artifact, ...]:
    return tuple(
        [_artifact(shape, f"artifacts[{place}]", place, proto=proto) for place, shape in enumerate(shapes)]
    )


def _artifact(shape: RawArtifact, path: str, place: int, *, proto: bool) -> Artifact:
    place = place if shape.index is None else shape.index
    return Artifact(
        shape.artifact_id or f"artifact-{place}",
        shape.name or "",
        shape.description or "",
        _parts(shape.parts or (), f"{path}.parts", proto=proto),
        shape.metadata,
        shape.extensions or (),
    )


def _parts(shapes: tuple[RawPart, ...], path: str, *, proto: bool) -> tuple[Part, ...]:
    return tuple([read_part(shape, path, index, proto=proto) for index, shape in enumerate(shapes)])
