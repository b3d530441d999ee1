"""The lenient reader of what agents say: answers, stream frames and webhooks of every dialect.

One normaliser for all of them: whichever way a task is followed, the same is understood. Raises
nothing but `Refused`; the path in an error is that inside the object, whatever is wrapped around it.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import InvalidParams
from trunkline.wire.decode import DECODE_ERRORS, check_structure, invalid_params, parse_error, read_params
from trunkline.wire.raw import RawAnswer, RawArtifact, RawMessage, RawPart, RawStatus, RawTask, RawUpdate
from trunkline.wire.read import read_part
from trunkline.wire.spellings import ID_LIMIT, check_id, plain_task_id, role_named, state_named
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


class _AnswerKind(Enum):
    TASK = "task"
    MESSAGE = "message"
    STATUS = "status-update"
    ARTIFACT = "artifact-update"


# By these names: an attribute of an Enum costs ten times as much (until Python 3.12).
_TASK, _STATUS, _ARTIFACT = _AnswerKind.TASK, _AnswerKind.STATUS, _AnswerKind.ARTIFACT
_WRAPPERS = {
    "task": _AnswerKind.TASK,
    "message": _AnswerKind.MESSAGE,
    "msg": _AnswerKind.MESSAGE,
    "statusUpdate": _AnswerKind.STATUS,
    "status_update": _AnswerKind.STATUS,
    "artifactUpdate": _AnswerKind.ARTIFACT,
    "artifact_update": _AnswerKind.ARTIFACT,
}
_BY_NAME = {kind.value: kind for kind in _AnswerKind}
_KINDS = {b'"%b"' % kind.value.encode(): kind for kind in _AnswerKind}
_MESSAGE_MEMBERS = {"messageId", "message_id", "role", "parts", "content"}

_members = msgspec.json.Decoder(dict[str, Raw])
_message_decoder = msgspec.json.Decoder(RawMessage)
_task_decoder = msgspec.json.Decoder(RawTask)
_update_decoder = msgspec.json.Decoder(RawUpdate)
_answer_decoder = msgspec.json.Decoder(RawAnswer)


def read_notice(given: bytes | Raw, *, proto: bool = False) -> Notice:
    """A task, a message or an update, wrapped or bare, with what a status-update brought along: agents put
    the result of a task into it. `proto` says that it is ProtoJSON of the 0.3 proto.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: it is none of these, or a member is missing or of the wrong type.
    """
    body = bytes(given)
    check_structure(body)
    try:
        notice = read_decoded(_answer_decoder.decode(body), proto=proto)
    except DECODE_ERRORS:
        notice = None
    return _read_leniently(body, proto) if notice is None else notice


def read_decoded(raw: RawAnswer, *, proto: bool = False) -> Notice | None:
    """What was decoded in one go; None if only the lenient reader can tell what it is.

    Raises:
        InvalidParams: a member is missing or of the wrong type.
    """
    kind = None if raw.kind is None else _BY_NAME.get(raw.kind)
    if kind is None:
        if raw.status is not None:
            update = raw.task_id is not None or raw.final is not None or raw.id is None
            kind = _STATUS if update else _TASK
        elif raw.artifact is not None:
            kind = _ARTIFACT
        else:
            wrapped = (raw.artifact_update, raw.status_update, raw.task, raw.message)
            artifact, status, task, message = wrapped
            if wrapped.count(None) != 3:
                return None
            if artifact is not None:
                return _artifact_update(artifact, proto or artifact.final is not None)
            if status is not None:
                # Only the proto of 0.3 has `final` inside a wrapper.
                return _status_update(status, proto or status.final is not None)
            if task is not None:
                return _task(task, proto)
            return None if message is None else Notice(_message(message, "", proto))
    if kind is _ARTIFACT:
        return _artifact_update(raw, proto)
    if kind is _STATUS:
        return _status_update(raw, proto)
    # Members that a message does not have are kept with it, so the lenient reader must see them.
    return _task(raw, proto) if kind is _TASK else None


def _read_leniently(body: bytes, proto: bool) -> Notice:
    kind, inner = _recognised(body)
    if kind is _AnswerKind.MESSAGE:
        return Notice(_message(read_params(_message_decoder, RawMessage, inner), "", proto))
    if kind is _AnswerKind.TASK:
        return _task(read_params(_task_decoder, RawTask, inner), proto)
    raw = read_params(_update_decoder, RawUpdate, inner)
    proto = proto or (inner is not body and raw.final is not None)
    read = _status_update if kind is _AnswerKind.STATUS else _artifact_update
    return read(raw, proto)


def _recognised(body: bytes) -> tuple[_AnswerKind, bytes]:
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
        return (_AnswerKind.STATUS if update or "id" not in members else _AnswerKind.TASK), body
    if "artifact" in members:
        return _AnswerKind.ARTIFACT, body
    wrapped = [name for name in members if name in _WRAPPERS and members[name].startswith(b"{")]
    if len(wrapped) == 1:
        return _WRAPPERS[wrapped[0]], members[wrapped[0]]
    if _MESSAGE_MEMBERS & members.keys():
        return _AnswerKind.MESSAGE, body
    raise InvalidParams("must have exactly one of task, message, statusUpdate and artifactUpdate, or be one")


def _task(raw: RawTask | RawAnswer, proto: bool) -> Notice:
    status = _status(raw.status, proto)
    if status.message is None and raw.message is not None:
        said = _status_message(raw.message, "message.", proto)
        status = TaskStatus(status.state, said, status.timestamp)
    task = Task(
        _task_id(raw.id, "id"),
        raw.context_id or "",
        status,
        _artifacts(raw.artifacts, proto) if raw.artifacts else (),
        _history(raw.history, proto) if raw.history else (),
        raw.metadata,
    )
    return Notice(task, task.artifacts)


def _history(raws: tuple[RawMessage, ...], proto: bool) -> tuple[Message, ...]:
    return tuple([_message(raw, f"history[{place}].", proto) for place, raw in enumerate(raws)])


def _status_update(raw: RawUpdate, proto: bool) -> Notice:
    update = StatusUpdate(
        _task_id(raw.task_id or raw.id, "taskId"),
        raw.context_id or "",
        _status(raw.status, proto),
        raw.metadata,
    )
    artifacts = _artifacts(raw.artifacts, proto) if raw.artifacts else ()
    if raw.artifact is not None:
        one = _artifact(raw.artifact, "artifact.parts", 0, proto)
        # Who sends both repeats in the one what is also among the many.
        if all([one.artifact_id != other.artifact_id for other in artifacts]):
            artifacts = (*artifacts, one)
    return Notice(update, artifacts, raw.final or False)


def _artifact_update(raw: RawUpdate, proto: bool) -> Notice:
    given = raw.artifact
    if given is None:
        raise InvalidParams("artifact is missing", field="artifact")
    update = ArtifactUpdate(
        _task_id(raw.task_id or raw.id, "taskId"),
        raw.context_id or "",
        _artifact(given, "artifact.parts", 0, proto),
        (given.append if raw.append is None else raw.append) or False,
        (given.last_chunk if raw.last_chunk is None else raw.last_chunk) or False,
        raw.metadata,
    )
    return Notice(update, (update.artifact,))


def _task_id(given: str | None, field: str) -> str:
    if not given:
        raise InvalidParams(f"{field} is missing", field=field)
    # As `check_id` says it, without a call for each frame.
    name = given.removeprefix("tasks/")
    return name if 0 < len(name) <= ID_LIMIT and name.isprintable() else check_id(name, field)


def _status(raw: RawStatus | str | None, proto: bool) -> TaskStatus:
    if raw is None:
        raise InvalidParams("status is missing", field="status")
    field = "status.state"
    if isinstance(raw, str):
        raw, field = RawStatus(state=raw), "status"
    state = state_named(raw.state) if raw.state else None
    if state is None:
        what = f": {raw.state!r} is no state of a task" if raw.state else " is missing"
        raise InvalidParams(f"{field}{what}", field=field)
    said = raw.message
    message = None if said is None else _status_message(said, "status.message.", proto)
    return TaskStatus(state, message, raw.timestamp or "")


def _status_message(said: RawMessage | str, path: str, proto: bool) -> Message:
    if isinstance(said, str):
        said = RawMessage(parts=(RawPart(text=said),), role=Role.AGENT.value)
    return _message(said, path, proto)


def _message(raw: RawMessage, path: str, proto: bool) -> Message:
    # Agents leave out what a caller may not: an id, a role, even parts.
    parts, where = raw.parts, "parts"
    if not parts and raw.content:
        # Only the proto of 0.3 calls them so.
        parts, where, proto = raw.content, "content", True
    return Message(
        raw.message_id or "",
        raw.context_id or "",
        plain_task_id(raw.task_id) if raw.task_id else "",
        role_named(raw.role or ""),
        _parts(parts, f"{path}{where}", proto) if parts else (),
        raw.metadata,
        raw.extensions or (),
        raw.reference_task_ids or (),
        raw.extra,
    )


def _artifacts(raws: tuple[RawArtifact, ...], proto: bool) -> tuple[Artifact, ...]:
    return tuple(
        [_artifact(raw, f"artifacts[{place}].parts", place, proto) for place, raw in enumerate(raws)]
    )


def _artifact(raw: RawArtifact, where: str, place: int, proto: bool) -> Artifact:
    """An artifact; `where` is the path of its parts, and its place stands for an id that is missing."""
    return Artifact(
        raw.artifact_id or f"artifact-{place if raw.index is None else raw.index}",
        raw.name or "",
        raw.description or "",
        _parts(raw.parts, where, proto) if raw.parts else (),
        raw.metadata,
        raw.extensions or (),
    )


def _parts(raws: tuple[RawPart, ...], path: str, proto: bool) -> tuple[Part, ...]:
    if len(raws) == 1:
        return (read_part(raws[0], path, 0, proto=proto),)
    return tuple([read_part(raw, path, index, proto=proto) for index, raw in enumerate(raws)])
