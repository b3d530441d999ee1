"""The superset structs: per wire object one struct with the members of every dialect.

Members of no dialect are unknown; the decoders refuse them, and `tidy` sorts them out.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trunkline.wire.types import Metadata

# The proto says int32; a larger number is a mistake, and no store need ever see it.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PageSize = Annotated[int, Meta(ge=1, le=100)]
# Filled by `tidy` only. No dialect has this name, and writers let `extra` override nothing.
EXTRA = "*extra"


class Shape(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of the superset structs; null means absent, as in ProtoJSON."""


class FileShape(Shape, frozen=True):
    """The `file` of a 0.3 part, in JSON and in ProtoJSON."""

    content: str | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    url: str | None = None
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    name: str | None = None
    mime_type: str | None = None


class PartShape(Shape, frozen=True):
    """A part with `kind`, with `type` or bare."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    file: FileShape | None = None
    kind: str | None = None
    type: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: Metadata | None = None
    extra: Metadata | None = msgspec.field(default=None, name=EXTRA)


class MessageShape(Shape, frozen=True):
    """A message; `content` is what 0.3's proto calls `parts`."""

    message_id: str | None = None
    role: str | None = None
    parts: tuple[PartShape, ...] | None = None
    content: tuple[PartShape, ...] | None = None
    context_id: str | None = None
    task_id: str | None = None
    kind: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None
    extra: Metadata | None = msgspec.field(default=None, name=EXTRA)


class ConfigurationShape(Shape, frozen=True):
    """How the caller wants to be answered."""

    accepted_output_modes: tuple[str, ...] | None = None
    history_length: Count | None = None
    blocking: bool | None = None
    return_immediately: bool | None = None
    push_notification_config: Metadata | None = None
    task_push_notification_config: Metadata | None = None
    push_notification: Metadata | None = None


class SendShape(Shape, frozen=True):
    """Params of `send` and `stream`; `request` is what 0.3's proto calls `message`."""

    message: MessageShape | None = None
    request: MessageShape | None = None
    configuration: ConfigurationShape | None = None
    metadata: Metadata | None = None
    context_id: str | None = None
    tenant: str | None = None


class TaskShape(Shape, frozen=True):
    """Params of `get`, `cancel` and `subscribe`; `name` is a resource name of 0.3's proto."""

    id: str | None = None
    task_id: str | None = None
    name: str | None = None
    history_length: Count | None = None
    metadata: Metadata | None = None
    tenant: str | None = None


class ListShape(Shape, frozen=True):
    """Params of `list`."""

    context_id: str | None = None
    status: str | None = None
    page_size: PageSize | None = None
    page_token: str | None = None
    history_length: Count | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None
