"""What came, before it is judged: per wire object one raw struct with the members of every dialect.

Members of no dialect are unknown; the decoders refuse them, and `normalize` sorts them out.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trunkline.wire.types import Metadata

# The proto says int32; a larger number is a mistake, and no store need ever see it.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PageSize = Annotated[int, Meta(ge=1, le=100)]
# Filled by `normalize` only. No dialect has this name, and writers let `extra` override nothing.
EXTRA = "*extra"


class RawStruct(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of the raw structs; null means absent, as in ProtoJSON."""


class RawFile(RawStruct, frozen=True):
    """The `file` of a 0.3 part, in JSON and in ProtoJSON."""

    content: str | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    url: str | None = None
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    name: str | None = None
    mime_type: str | None = None


class RawPart(RawStruct, frozen=True):
    """A part with `kind`, with `type` or bare."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    file: RawFile | None = None
    kind: str | None = None
    type: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: Metadata | None = None
    extra: Metadata | None = msgspec.field(default=None, name=EXTRA)


class RawMessage(RawStruct, frozen=True):
    """A message; `content` is what 0.3's proto calls `parts`."""

    message_id: str | None = None
    role: str | None = None
    parts: tuple[RawPart, ...] | None = None
    content: tuple[RawPart, ...] | None = None
    context_id: str | None = None
    task_id: str | None = None
    kind: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None
    extra: Metadata | None = msgspec.field(default=None, name=EXTRA)


class RawAuthentication(RawStruct, frozen=True):
    """What a push notification says in `Authorization`: one scheme in 1.0, a list of them in 0.3."""

    scheme: str | None = None
    schemes: tuple[str, ...] | None = None
    credentials: str | None = None


class RawPushConfig(RawStruct, frozen=True):
    """A push config: flat with its task in 1.0, in an envelope with the task before."""

    id: str | None = None
    task_id: str | None = None
    url: str | None = None
    token: str | None = None
    authentication: RawAuthentication | None = None
    tenant: str | None = None


class RawPushEnvelope(RawStruct, frozen=True):
    """The envelope of 0.3's proto; `name` is a resource name."""

    name: str | None = None
    push_notification_config: RawPushConfig | None = None


class RawPushRequest(RawPushConfig, frozen=True):
    """Params of setting a push config, flat or with the config inside."""

    push_notification_config: RawPushConfig | None = None
    config: RawPushEnvelope | None = None
    config_id: str | None = None
    name: str | None = None
    parent: str | None = None
    metadata: Metadata | None = None


class RawPushQuery(RawStruct, frozen=True):
    """Params of getting, listing and deleting push configs; a lone `id` is the task's, as in 0.3."""

    id: str | None = None
    task_id: str | None = None
    push_notification_config_id: str | None = None
    name: str | None = None
    parent: str | None = None
    page_size: Count | None = None
    page_token: str | None = None
    metadata: Metadata | None = None
    tenant: str | None = None


class RawConfiguration(RawStruct, frozen=True):
    """How the caller wants to be answered."""

    accepted_output_modes: tuple[str, ...] | None = None
    history_length: Count | None = None
    blocking: bool | None = None
    return_immediately: bool | None = None
    push_notification_config: RawPushConfig | None = None
    task_push_notification_config: RawPushConfig | None = None
    push_notification: RawPushConfig | None = None


class RawSend(RawStruct, frozen=True):
    """Params of `send` and `stream`; `request` is what 0.3's proto calls `message`."""

    message: RawMessage | None = None
    request: RawMessage | None = None
    configuration: RawConfiguration | None = None
    metadata: Metadata | None = None
    context_id: str | None = None
    task_id: str | None = None
    tenant: str | None = None


class RawTaskQuery(RawStruct, frozen=True):
    """Params of `get`, `cancel` and `subscribe`; `name` is a resource name of 0.3's proto."""

    id: str | None = None
    task_id: str | None = None
    name: str | None = None
    history_length: Count | None = None
    metadata: Metadata | None = None
    tenant: str | None = None


class RawListQuery(RawStruct, frozen=True):
    """Params of `list`."""

    context_id: str | None = None
    status: str | None = None
    page_size: PageSize | None = None
    page_token: str | None = None
    history_length: Count | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None


class RawArtifact(RawStruct, frozen=True):
    """An artifact that an agent gives; those before 0.3 had a place instead of an id."""

    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    parts: tuple[RawPart, ...] | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    index: int | None = None


class RawStatus(RawStruct, frozen=True):
    """A status that an agent gives; some say only a text with it."""

    state: str | None = None
    message: RawMessage | str | None = None
    timestamp: str | None = None


class RawTask(RawStruct, frozen=True):
    """A task as agents answer it; some say what belongs to the status beside it."""

    id: str | None = None
    context_id: str | None = None
    status: RawStatus | str | None = None
    message: RawMessage | str | None = None
    artifacts: tuple[RawArtifact, ...] | None = None
    history: tuple[RawMessage, ...] | None = None
    kind: str | None = None
    metadata: Metadata | None = None


class RawUpdate(RawStruct, frozen=True):
    """A change of status or of an artifact; webhooks carry both in one, and an `id` is the task's."""

    task_id: str | None = None
    id: str | None = None
    context_id: str | None = None
    status: RawStatus | str | None = None
    artifact: RawArtifact | None = None
    artifacts: tuple[RawArtifact, ...] | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    final: bool | None = None
    kind: str | None = None
    metadata: Metadata | None = None


class RawAnswer(RawUpdate, frozen=True):
    """A task or an update, bare, or any answer in its wrapper: one decode for all of them."""

    history: tuple[RawMessage, ...] | None = None
    task: RawTask | None = None
    message: RawMessage | None = None
    status_update: RawUpdate | None = None
    artifact_update: RawUpdate | None = None
