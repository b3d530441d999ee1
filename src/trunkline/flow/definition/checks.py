"""JSON Schemas that strangers wrote: what is small is checked at once, all else by a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from jsonschema_rs import Draft202012Validator, ReferencingError, ValidationError
from msgspec import UNSET, UnsetType

from trunkline.flow.definition.diagnostics import Diagnostic, broken, pointer

# Size limit of a schema as JSON.
LARGEST_SCHEMA = 256 << 10
# A schema up to this size is compiled in this process, in less than a millisecond.
SMALL_SCHEMA = 8 << 10
# Limit of the product of two weights. A check up to it takes some tenths of a millisecond at most.
SMALL_CHECK = 2_000
# A schema with one of these is compiled by a worker only: patterns and references multiply its cost.
_COSTLY = (b'"pattern', b'"$ref', b'"$dynamicRef', b'"$recursiveRef', b'"$schema', b'"unevaluated')
# So many characters weigh as much as one member.
_CHARS = 32
LONGEST_FAULT = 500


class SchemaCheck:
    """One JSON Schema (Draft 2020-12) and what it costs; `SchemaChecker` checks the values that cost more."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile the schema if it is small.

        Raises:
            ValueError: it is too large, or small and no JSON Schema; says why.
        """
        self.text = msgspec.json.encode(schema)
        if len(self.text) > LARGEST_SCHEMA:
            raise ValueError(f"a schema has at most {LARGEST_SCHEMA >> 10} KiB as JSON")
        self._weight = _weight(self.text)
        self._validator: Draft202012Validator | None = None
        if is_small(self.text):
            try:
                self._validator = Draft202012Validator(schema)
            except (ValidationError, ReferencingError) as error:
                reason = error.message if isinstance(error, ValidationError) else str(error)
                raise ValueError(f"this is no JSON Schema: {reason}") from None

    def find_fault(self, value: object) -> str | None | UnsetType:
        """Return where a value does not fit and why, None if it fits, `UNSET` if a worker must check it."""
        if self._validator is None or not _is_light(value, SMALL_CHECK // self._weight):
            return UNSET
        try:
            self._validator.validate(value)
        except ValidationError as first:
            return f"{pointer(first.instance_path) or '/'}: {first.message}"[:LONGEST_FAULT]
        return None


def is_small(schema: bytes) -> bool:
    """Return whether a schema, as JSON, is compiled in this process."""
    return len(schema) <= SMALL_SCHEMA and not any(one in schema for one in _COSTLY)


def _weight(text: bytes) -> int:
    """Return an upper limit of the members in a JSON text; long texts count as several."""
    return 1 + text.count(b",") + text.count(b"{") + text.count(b"[") + len(text) // _CHARS


def _is_light(value: object, room: int) -> bool:
    """Return whether a value has at most so many members; long texts count as several.

    Only so many members are visited, however large the value is.
    """
    left = [value]
    while left:
        one = left.pop()
        room -= 1
        if isinstance(one, str):
            room -= len(one) // _CHARS
        elif isinstance(one, dict):
            members = cast("dict[str, object]", one)
            if len(members) > room:
                return False
            room -= sum(map(len, members)) // _CHARS
            left += members.values()
        elif isinstance(one, list):
            if len(items := cast("list[object]", one)) > room:
                return False
            left += items
        if room < 0:
            return False
    return True


def schema_fault(place: str, reason: str) -> Diagnostic:
    """Return the diagnostic of a schema that is refused."""
    return broken(place.split("/")[1:], "schema", "compiles", reason)


def plain_schema(state_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `state_schema` without the reducers of its properties, which JSON Schema does not know."""
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
