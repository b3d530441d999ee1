"""The slow path of the reader: members renamed, kept or dropped by the superset structs' own fields.

Only requests that spell something unusually come here.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.wire.shapes import (
    EXTRA,
    ConfigurationShape,
    FileShape,
    ListShape,
    MessageShape,
    PartShape,
    SendShape,
    Shape,
    TaskShape,
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
_CONFIGURATION = _plan(ConfigurationShape)

PLANS: dict[type[Shape], Plan] = {
    SendShape: _plan(SendShape, {"message": _MESSAGE, "request": _MESSAGE, "configuration": _CONFIGURATION}),
    TaskShape: _plan(TaskShape),
    ListShape: _plan(ListShape),
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
