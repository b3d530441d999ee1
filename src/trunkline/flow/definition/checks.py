"""Schemas that definitions bring along, compiled once: of the state, of answers, of inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    ReferencingError,
    RegexOptions,
    ValidationError,
)

from trunkline.errors import FlowInvalid
from trunkline.flow.definition.diagnostics import broken, pointer
from trunkline.flow.definition.schema_cost import SchemaCost

# What a pattern may try on one text before it is given up.
_BACKTRACKS = 100_000
# A larger schema takes so long to compile that others would notice.
LARGEST_SCHEMA = 256 << 10
# What is wrong may quote what was given.
_LONGEST = 500
# What is wrong with alternatives is made of all that is wrong with each of them, each time with what was
# given and what is listed: that takes so many times as long as the check, and so many bytes of the one by
# bytes of the other are not noticed.
_TELLING = 400
_TOLD_BYTES = 50_000_000


class SchemaCheck:
    """One JSON Schema (Draft 2020-12) that somebody else wrote. It fetches nothing from anywhere."""

    def __init__(self, schema: dict[str, Any], place: str) -> None:
        """Compile a schema that stands at a place in a definition.

        Raises:
            FlowInvalid: it is no JSON Schema, too large, or points outside of itself.
        """
        body = msgspec.json.encode(schema)
        if len(body) > LARGEST_SCHEMA:
            text = f"a schema has at most {LARGEST_SCHEMA >> 10} KiB as JSON"
            found = broken(place.split("/")[1:], "schema", "size", text)
            raise FlowInvalid(str(found), [found])
        self._has_choices = b'"anyOf"' in body or b'"oneOf"' in body
        self._size = len(body)
        try:
            self._validator = Draft202012Validator(
                schema, retriever=_refuse, pattern_options=FancyRegexOptions(backtrack_limit=_BACKTRACKS)
            )
            self._cost = SchemaCost(schema, is_quick=_is_quick(schema))
        except (ValidationError, ReferencingError, ValueError) as error:
            reason = error.message if isinstance(error, ValidationError) else str(error)
            found = broken(place.split("/")[1:], "schema", "compiles", f"this is no JSON Schema: {reason}")
            raise FlowInvalid(str(found), [found]) from None

    def wrong(self, value: object) -> str | None:
        """What is wrong with a value, in words; None where it fits."""
        if not self._cost.allows(value):
            return "/: it takes too long to check against its schema"
        if self._validator.is_valid(value):
            return None
        if self._has_choices and not self._is_soon_told(value):
            return "/: it does not fit its schema"
        try:
            # Only the first: to make all of them takes many times as long as the check.
            self._validator.validate(value)
        except ValidationError as first:
            text = f"{pointer(first.instance_path) or '/'}: {first.message}"
        else:
            return None
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    def _is_soon_told(self, value: object) -> bool:
        size = len(msgspec.json.encode(value)) * self._size
        return size <= _TOLD_BYTES and self._cost.allows(value, share=_TELLING)


def plain_schema(state_schema: Mapping[str, Any]) -> dict[str, Any]:
    """A `state_schema` without the reducers of its properties, which JSON Schema does not know."""
    properties: Any = state_schema.get("properties")
    if not isinstance(properties, dict):
        return dict(state_schema)
    members = cast("dict[str, Any]", properties)
    plain = {name: _plain(one) for name, one in members.items()}
    return {**state_schema, "properties": plain}


def _plain(member: Any) -> Any:
    if not isinstance(member, dict):
        return member
    return {key: value for key, value in cast("dict[str, Any]", member).items() if key != "reducer"}


def _is_quick(schema: dict[str, Any]) -> bool:
    """Whether none of the patterns of a schema, which compiles, looks back or ahead."""
    try:
        Draft202012Validator(schema, retriever=_refuse, pattern_options=RegexOptions())
    except (ValidationError, ValueError):
        return False
    return True


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched; write what it defines into the schema")
