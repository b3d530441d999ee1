"""The slow path of the reader: members renamed, kept or dropped by the superset structs' own fields.

Only requests that spell something unusually come here.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.wire.raw import (
    EXTRA,
    ArtifactShape,
    AuthenticationShape,
    ConfigurationShape,
    FileShape,
    ListShape,
    MessageShape,
    PartShape,
    PushConfigShape,
    PushEnvelopeShape,
    PushQueryShape,
    PushShape,
    SendShape,
    Shape,
    StatusShape,
    TaskAnswerShape,
    TaskShape,
    UpdateShape,
)


class Plan(Struct, frozen=True):
    """How to tidy one object: every spelling of each member, and the plans of the objects inside it."""

    names: dict[str, str]
    inner: dict[str, Plan]
    keeps: bool


def _plan(shape: type[Shape], inner: dict[str, Plan] | None = None, **aliases: str) -> Plan:
    names = dict(aliases)
    for field in msgspec.structs.fields(shape):
        if field.encode_name != EXTRA:
            names[field.name] = names[field.encode_name] = field.encode_name
    # `bytes` is the wire name of a field that Python calls otherwise.
    if shape is FileShape:
        del names["content"]
    return Plan(names, inner or {}, keeps=shape in (PartShape, MessageShape))


_FILE = _plan(FileShape, mediaType="mimeType", media_type="mimeType", filename="name")
_PART = _plan(PartShape, {"file": _FILE})
_MESSAGE = _plan(MessageShape, {"parts": _PART, "content": _PART})
_AUTHENTICATION = _plan(AuthenticationShape)
_PUSH = _plan(PushConfigShape, {"authentication": _AUTHENTICATION})
_CONFIGURATION = _plan(
    ConfigurationShape,
    {"pushNotificationConfig": _PUSH, "taskPushNotificationConfig": _PUSH, "pushNotification": _PUSH},
)
_ARTIFACT = _plan(ArtifactShape, {"parts": _PART})
# `update` is what 0.3's proto calls the message of a status; a session is what later is a context.
_STATUS = _plan(StatusShape, {"message": _MESSAGE}, update="message")

PLANS: dict[type[Shape], Plan] = {
    SendShape: _plan(SendShape, {"message": _MESSAGE, "request": _MESSAGE, "configuration": _CONFIGURATION}),
    TaskShape: _plan(TaskShape),
    ListShape: _plan(ListShape),
    PushShape: _plan(
        PushShape,
        {
            "authentication": _AUTHENTICATION,
            "pushNotificationConfig": _PUSH,
            "config": _plan(PushEnvelopeShape, {"pushNotificationConfig": _PUSH}),
        },
    ),
    PushQueryShape: _plan(PushQueryShape),
    MessageShape: _MESSAGE,
    TaskAnswerShape: _plan(
        TaskAnswerShape,
        {"status": _STATUS, "artifacts": _ARTIFACT, "history": _MESSAGE},
        sessionId="contextId",
    ),
    UpdateShape: _plan(
        UpdateShape,
        {"status": _STATUS, "artifact": _ARTIFACT, "artifacts": _ARTIFACT},
        sessionId="contextId",
    ),
}


def tidy(value: Any, plan: Plan) -> Any:
    """The same value with every known member under its one name; wrong types are left to be refused."""
    if isinstance(value, list):
        return [tidy(item, plan) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    tidied: dict[str, Any] = {}
    for spelling, member in cast("dict[str, Any]", value).items():
        name = plan.names.get(spelling)
        if name is None:
            kept[spelling] = member
        elif spelling == name or name not in value:
            # When both spellings are there, the proper one is the truth.
            tidied[name] = tidy(member, plan.inner[name]) if name in plan.inner else member
    if kept and plan.keeps:
        tidied[EXTRA] = kept
    return tidied
