"""Questions of agents as forms that clients of MCP show to their users, and what users say to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from trunkline.bridge.schema import Schema, sanitize
from trunkline.wire.question import Question
from trunkline.wire.types import Part

# The one member of a form whose question wants no object.
ANSWER = "answer"
_TEXT_LIMIT = 4096
_PRIMITIVES = ("string", "number", "integer", "boolean")
_MEMBERS = frozenset(
    {
        "type", "title", "description", "default", "enum", "enumNames",
        "minLength", "maxLength", "format", "minimum", "maximum",
    }
)  # fmt: skip
_FORMATS = ("email", "uri", "date", "date-time")


def form_of(question: Question) -> tuple[str, Schema]:
    """The words of a form, and its schema, which has members of plain types only, as MCP wants it."""
    words = sanitize(question.text, _TEXT_LIMIT) or "The agent wants more input."
    own = _flat(question.schema)
    if own is not None:
        return words, own
    member: Schema = {"type": "string", "title": "Answer"}
    if question.choices:
        member["enum"] = list(question.choices)
    elif question.schema is not None:
        told = msgspec.json.encode(question.schema).decode()
        member["description"] = f"JSON that fits the schema {sanitize(told, _TEXT_LIMIT)}"
    return words, {"type": "object", "properties": {ANSWER: member}, "required": [ANSWER]}


def answer_parts(question: Question, content: Mapping[str, Any] | None) -> tuple[Part, ...]:
    """The parts of an answer that a user has filled in."""
    given = dict(content or {})
    if _flat(question.schema) is not None:
        return (Part(data=given),)
    said = given.get(ANSWER, "")
    return (Part(text=said),) if isinstance(said, str) else (Part(data=said),)


def rejection_parts(question: Question) -> tuple[Part, ...]:
    """The parts of an answer of a user who declines: as our own agents read it, else in words."""
    said = "The user declines to answer."
    return (Part(data={"rejected": True, "text": said}),) if question.id else (Part(text=said),)


def _flat(schema: Mapping[str, Any] | None) -> Schema | None:
    """A schema of an object whose members are all plain, with what MCP lets such a schema say; else None."""
    properties = None if schema is None or schema.get("type") != "object" else schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return None
    found: Schema = {}
    for name, member in cast("dict[str, Any]", properties).items():
        plain = _plain(member)
        if plain is None:
            return None
        found[name] = plain
    required = (schema or {}).get("required")
    named = (
        [one for one in cast("list[object]", required) if one in found] if isinstance(required, list) else []
    )
    return {"type": "object", "properties": found, "required": named}


def _plain(member: object) -> Schema | None:
    if not isinstance(member, dict):
        return None
    given = cast("Schema", member)
    if given.get("type") not in _PRIMITIVES:
        return None
    kept = {key: value for key, value in given.items() if key in _MEMBERS}
    if kept.get("format") not in (None, *_FORMATS):
        kept.pop("format")
    if "enum" in kept and (kept["type"] != "string" or not isinstance(kept["enum"], list)):
        return None
    return kept
