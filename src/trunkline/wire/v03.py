"""Writes 0.3 as JSON-RPC has it, as its REST binding has it, and with flat parts.

JSON-RPC has `kind` everywhere, nested files and kebab-case states. REST is ProtoJSON of the 0.3 proto, with
`content` and enums by name. Flat parts have no `kind`. All have `final`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from trunkline.wire import types as t
from trunkline.wire.reports import parts_with_reports
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Metadata, WireStruct

_encode = msgspec.json.Encoder().encode

# The report whose media type has another name in 0.3.
_DELTA, _DELTA_03 = [f"application/vnd.protolabs.worldstate-delta{end}+json" for end in ("-v1", "")]

# A part or a message; one with unknown members is a dict, since a struct has no room for them.
_Written = Struct | Metadata


class _File03(WireStruct, frozen=True):
    content: str | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _ProtoFile03(WireStruct, frozen=True):
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    mime_type: str = ""
    name: str = ""


class _Part03(WireStruct, frozen=True):
    # ProtoJSON has no kinds.
    kind: str = ""
    text: str | None = None
    file: _File03 | _ProtoFile03 | None = None
    data: Metadata | None = None
    metadata: Metadata | None = None


class _Message03(WireStruct, frozen=True, tag_field="kind", tag="message"):
    message_id: str
    role: str
    parts: list[_Written]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class _Status03(WireStruct, frozen=True):
    # The same in both dialects but for the spelling of its state.
    state: str
    message: _Written | None = None
    timestamp: str = ""


class _Artifact03(WireStruct, frozen=True):
    # The same in both dialects but for its parts.
    artifact_id: str
    parts: list[_Written]
    name: str = ""
    description: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class _WholeArtifact03(_Artifact03, frozen=True, kw_only=True):
    append: bool
    last_chunk: bool


class _Task03(WireStruct, frozen=True, tag_field="kind", tag="task"):
    id: str
    context_id: str
    status: _Status03
    artifacts: list[_Artifact03] = []
    history: list[_Written] = []
    metadata: Metadata | None = None


class _StatusUpdate03(WireStruct, frozen=True, tag_field="kind", tag="status-update"):
    # Only a push notification brings artifacts along.
    task_id: str
    context_id: str
    status: _Status03
    final: bool
    metadata: Metadata | None = None
    artifact: _WholeArtifact03 | None = None
    artifacts: list[_WholeArtifact03] = []


class _ArtifactUpdate03(WireStruct, frozen=True, tag_field="kind", tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: _Artifact03
    append: bool
    last_chunk: bool
    metadata: Metadata | None = None


class _Page03(WireStruct, frozen=True, omit_defaults=False):
    # 0.3 names it and does not describe it, and its proto lacks it; so it is that of 1.0 around 0.3 tasks.
    tasks: Sequence[_Task03]
    next_page_token: str
    page_size: int
    total_size: int


# ProtoJSON tells objects by the member that holds them; so those of JSON-RPC lose their `kind`.
class _ProtoMessage03(_Message03, frozen=True, tag=False):
    parts: list[_Written] = msgspec.field(name="content")


class _ProtoTask03(_Task03, frozen=True, tag=False):
    """A task without its kind."""


class _ProtoStatusUpdate03(_StatusUpdate03, frozen=True, tag=False):
    """A change of status without its kind."""


class _ProtoArtifactUpdate03(_ArtifactUpdate03, frozen=True, tag=False):
    # Members that have their default are left out; in the order of the wire, as the last is one of them.
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class Writer03:
    """Writes 0.3 with `kind` everywhere, as its specification of JSON-RPC has it; see `Writer`."""

    _states = {state: plain_state(state) for state in t.STATES} | {t.TaskState.UNSPECIFIED: "unknown"}
    _roles: Mapping[t.Role | None, str] = {t.Role.USER: "user", t.Role.AGENT: "agent", None: "agent"}
    # What the three kinds of parts are called, and what a file is.
    _kinds = ("text", "data", "file")
    _file_type: type[_File03 | _ProtoFile03] = _File03
    _message_type: type[_Message03] = _Message03
    _task_type: type[_Task03] = _Task03
    _status_type: type[_StatusUpdate03] = _StatusUpdate03
    _artifact_type: type[_ArtifactUpdate03] = _ArtifactUpdate03

    def task(self, task: t.Task) -> bytes:
        """See `Writer`."""
        return _encode(self._task(task))

    def message(self, message: t.Message) -> bytes:
        """See `Writer`."""
        return _encode(self._message(message))

    def artifact(self, artifact: t.Artifact) -> bytes:
        """A bare Artifact."""
        return _encode(self._artifact(artifact))

    def task_frame(self, task_bytes: bytes) -> bytes:
        """See `Writer`."""
        return self._held(b"task", task_bytes)

    def message_frame(self, message: t.Message) -> bytes:
        """See `Writer`."""
        return self._held(b"message", self.message(message))

    def status_frame(self, update: t.StatusUpdate, *, final: bool) -> bytes:
        """See `Writer`."""
        status = self._status(update.status)
        written = self._status_type(update.task_id, update.context_id, status, final, update.metadata)
        return self._held(b"statusUpdate", _encode(written))

    def artifact_frame(self, update: t.ArtifactUpdate) -> bytes:
        """See `Writer`."""
        artifact = self._artifact(update.artifact)
        written = self._artifact_type(
            update.task_id, update.context_id, artifact, update.append, update.last_chunk, update.metadata
        )
        return self._held(b"artifactUpdate", _encode(written))

    def notification(
        self, update: t.StatusUpdate, artifacts: tuple[t.Artifact, ...], *, final: bool
    ) -> bytes:
        """A push notification: the change of status, and what the task has made once it has ended.

        Some receivers of that time read one `artifact`, the last, which is the answer; others only
        `artifacts`.
        """
        made = [
            _WholeArtifact03(**asdict(self._artifact(artifact)), append=False, last_chunk=True)
            for artifact in artifacts
        ]
        status, last = self._status(update.status), made[-1] if made else None
        return _encode(
            _StatusUpdate03(update.task_id, update.context_id, status, final, update.metadata, last, made)
        )

    def page(self, page: t.TaskPage) -> bytes:
        """See `Writer`."""
        tasks = [self._task(item) for item in page.tasks]
        return _encode(_Page03(tasks, page.next_page_token, page.page_size, page.total_size))

    def _held(self, member: bytes, body: bytes) -> bytes:
        """What a send answers and a stream frames: the object itself, as its `kind` tells which it is."""
        del member
        return body

    def _task(self, task: t.Task) -> _Task03:
        return self._task_type(
            task.id,
            task.context_id,
            self._status(task.status),
            [self._artifact(artifact) for artifact in task.artifacts],
            [self._message(message) for message in task.history],
            task.metadata,
        )

    def _status(self, status: t.TaskStatus) -> _Status03:
        said = None if status.message is None else self._message(status.message)
        return _Status03(self._states[status.state], said, status.timestamp)

    def _artifact(self, artifact: t.Artifact) -> _Artifact03:
        parts = parts_with_reports(artifact) if artifact.extensions else artifact.parts
        return _Artifact03(
            artifact.artifact_id,
            [self._part(part) for part in parts],
            artifact.name,
            artifact.description,
            artifact.metadata,
            artifact.extensions,
        )

    def _message(self, message: t.Message) -> _Written:
        written = self._message_type(
            message.message_id,
            self._roles[message.role],
            [self._part(part) for part in message.parts],
            message.context_id,
            message.task_id,
            message.metadata,
            message.extensions,
            message.reference_task_ids,
        )
        return _with_extra(written, message.extra) if message.extra else written

    def _part(self, part: t.Part) -> _Written:
        text, data, file = self._kinds
        if part.text is not None:
            written = _Part03(text, part.text, None, None, _part_metadata(part))
        elif part.data is not UNSET:
            written = _Part03(data, None, None, self._data(part.data), _part_metadata(part))
        else:
            content = self._file_type(part.raw, part.url, part.media_type, part.filename)
            written = _Part03(file, None, content, None, part.metadata)
        return _with_extra(written, part.extra) if part.extra else written

    def _data(self, value: Any) -> Metadata:
        """The value of a data part, which in 0.3 must be an object."""
        return cast("Metadata", value) if isinstance(value, dict) else {"value": value}


class ProtoWriter03(Writer03):
    """The dialect of REST; see `Writer`."""

    _states = {state: state.value for state in t.TaskState} | {t.TaskState.CANCELED: "TASK_STATE_CANCELLED"}
    _roles = {t.Role.USER: "ROLE_USER", t.Role.AGENT: "ROLE_AGENT", None: "ROLE_AGENT"}
    _kinds = ("", "", "")
    _file_type = _ProtoFile03
    _message_type = _ProtoMessage03
    _task_type = _ProtoTask03
    _status_type = _ProtoStatusUpdate03
    _artifact_type = _ProtoArtifactUpdate03

    def _held(self, member: bytes, body: bytes) -> bytes:
        return b'{"%b":%b}' % (member, body)

    def _message(self, message: t.Message) -> _Written:
        if message.reference_task_ids:
            # Its proto has no word for them.
            message = replace(message, reference_task_ids=())
        return super()._message(message)

    def _data(self, value: Any) -> Metadata:
        return {"data": super()._data(value)}


class FlatWriter03(Writer03):
    """Writes 0.3 for callers that send parts without `kind`, such as PromptKit's client.

    A part has its content in a member of its own, as in 1.0, and states have underscores.
    """

    _states = {state: name.replace("-", "_") for state, name in Writer03._states.items()}

    def _part(self, part: t.Part) -> _Written:
        data = UNSET if part.data is UNSET else self._data(part.data)
        written = replace(part, data=data, extra=None)
        return _with_extra(written, part.extra) if part.extra else written


class RpcWriter03(Writer03):
    """Writes 0.3 JSON-RPC, each task in the form in which its caller submitted it."""

    def _task(self, task: t.Task) -> _Task03:
        return V03_FLAT._task(task) if isinstance(task, t.FlatTask) else super()._task(task)


def _part_metadata(part: t.Part) -> Metadata | None:
    """Metadata of a text or data part, which alone can hold its media type and filename in 0.3."""
    if not part.media_type and not part.filename:
        return part.metadata
    # `mimeType` is 0.3's word, and where agents of that time look for the type of a data part.
    notes = {"mimeType": part.media_type, "filename": part.filename}
    written = {**{name: text for name, text in notes.items() if text}, **(part.metadata or {})}
    return {**written, "mimeType": _DELTA_03} if written.get("mimeType") == _DELTA else written


def _with_extra(written: Struct, extra: Metadata) -> Metadata:
    """The members of a struct and those unknown ones that override none of them."""
    plain: Metadata = msgspec.to_builtins(written)
    return {**plain, **{name: value for name, value in extra.items() if name not in plain}}


V03_FLAT = FlatWriter03()
V03 = RpcWriter03()
V03_PROTO = ProtoWriter03()
