"""The JSON Schema that a question may carry, and whether a value fits it. Pure.

It has the keywords that forms need. What could take another document or unbounded time to check is not among
them: `pattern`, and every `$ref` but those to `$defs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from trunkline.errors import Misuse
from trunkline.wire.decode import depth
from trunkline.wire.types import Metadata

SIZE_LIMIT = 16 << 10
DEPTH_LIMIT = 32
# How many schemas may be held against one value and its members: alternatives of alternatives multiply.
_CHECKS_LIMIT = 10_000
# One that lists much counts as several: so many listed values are compared in the time of one check.
_LISTED = 16
_DEFS = "#/$defs/"
_Type = Literal["object", "array", "string", "number", "integer", "boolean", "null"]
_TYPES: dict[_Type, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
# Where a value does not fit, and why.
Mismatch = tuple[str, str]


class Schema(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A schema, its keywords as members; those of the last group explain and check nothing."""

    type: _Type | list[_Type] | None = None
    enum: list[Any] | None = None
    const: Any | UnsetType = UNSET
    properties: dict[str, Schema | bool] = {}
    required: list[str] = []
    additional_properties: Schema | bool = True
    items: Schema | bool = True
    any_of: list[Schema | bool] = []
    one_of: list[Schema | bool] = []
    all_of: list[Schema | bool] = []
    ref: str = msgspec.field(name="$ref", default="")
    defs: dict[str, Schema | bool] = msgspec.field(name="$defs", default_factory=dict[str, "Schema | bool"])
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_minimum: int | float | None = None
    exclusive_maximum: int | float | None = None

    title: str = ""
    description: str = ""
    default: Any = None
    examples: list[Any] = []
    format: str = ""
    deprecated: bool = False
    schema: str = msgspec.field(name="$schema", default="")


def read_schema(raw: Metadata) -> Schema:
    """A schema that values can be held against.

    Raises:
        Misuse: it is too large or too deep, or has a keyword that is not checked here.
    """
    try:
        body = msgspec.json.encode(raw)
        if len(body) > SIZE_LIMIT or depth(body) > DEPTH_LIMIT:
            raise Misuse(f"schema is larger than {SIZE_LIMIT} bytes or deeper than {DEPTH_LIMIT} levels")
        read = msgspec.json.decode(body, type=Schema)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"schema is none that answers can be checked against: {error}") from None
    for one in _within(read):
        if one.ref and one.ref.removeprefix(_DEFS) not in read.defs:
            raise Misuse(f"schema has a $ref to {one.ref!r}; it can only be to {_DEFS}NAME of its own $defs")
    return read


def mismatch(schema: Schema, value: object) -> Mismatch | None:
    """The first place where a value does not fit a schema, and why; None if it fits."""
    try:
        return _Validation(schema).find(schema, value)
    except RecursionError:
        return "", "cannot be checked: its schema has no end"


def _within(schema: Schema | bool) -> Iterator[Schema]:
    if isinstance(schema, Schema):
        yield schema
        several = (*schema.properties.values(), *schema.defs.values())
        single = (schema.additional_properties, schema.items)
        for one in (*several, *single, *schema.any_of, *schema.one_of, *schema.all_of):
            yield from _within(one)


class _Validation:
    """One value held against one schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _CHECKS_LIMIT

    def find(self, schema: Schema | bool, value: object) -> Mismatch | None:
        self._left -= 1 if isinstance(schema, bool) else _cost(schema)
        if self._left < 0:
            return "", "takes too long to check"
        if isinstance(schema, bool):
            return None if schema else ("", "is not known here")
        why = next(_shallow(schema, value), "")
        return ("", why) if why else next(self._deep(schema, value), None)

    def _deep(self, schema: Schema, value: object) -> Iterator[Mismatch]:
        for one in schema.all_of:
            if found := self.find(one, value):
                yield found
        if schema.ref and (found := self.find(self._root.defs[schema.ref.removeprefix(_DEFS)], value)):
            yield found
        for step, inner, member in _members(schema, value):
            if found := self.find(inner, member):
                # Only now: names may be as long as a body, and a path for each member would multiply them.
                yield (f"[{step}]" if isinstance(step, int) else f".{step}") + found[0], found[1]
        fitting = [self.find(one, value) is None for one in (*schema.any_of, *schema.one_of)]
        if schema.any_of and not any(fitting[: len(schema.any_of)]):
            yield "", "fits none of the alternatives"
        if schema.one_of and sum(fitting[len(schema.any_of) :]) != 1:
            yield "", "does not fit exactly one of the alternatives"


def _cost(schema: Schema) -> int:
    types = len(schema.type) if isinstance(schema.type, list) else 0
    return 1 + (len(schema.enum or ()) + types + len(schema.required)) // _LISTED


def _members(schema: Schema, value: object) -> Iterator[tuple[str | int, Schema | bool, object]]:
    """The members of a value, each with its name or place and the schema that is for it."""
    if isinstance(value, dict):
        for name, member in cast("dict[str, object]", value).items():
            yield name, schema.properties.get(name, schema.additional_properties), member
    elif isinstance(value, list):
        for place, item in enumerate(cast("list[object]", value)):
            yield place, schema.items, item


def _shallow(schema: Schema, value: object) -> Iterator[str]:
    """Why a value does not fit, its members left aside."""
    types: list[_Type] | None = [schema.type] if isinstance(schema.type, str) else schema.type
    if types is not None and not any(_is_of(name, value) for name in types):
        yield f"must be of the type {' or '.join(types)}"
    if schema.enum is not None and not any(_same(one, value) for one in schema.enum):
        yield f"must be one of {', '.join(map(_json, schema.enum))}"
    if schema.const is not UNSET and not _same(schema.const, value):
        yield f"must be {_json(schema.const)}"
    if isinstance(value, dict):
        yield from (f"lacks {name!r}" for name in schema.required if name not in value)
    elif isinstance(value, str):
        yield from _out_of(len(value), schema.min_length, schema.max_length, "characters")
    elif isinstance(value, list):
        yield from _out_of(len(cast("list[object]", value)), schema.min_items, schema.max_items, "items")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _out_of(value, schema.minimum, schema.maximum)
        if schema.exclusive_minimum is not None and value <= schema.exclusive_minimum:
            yield f"must be above {schema.exclusive_minimum}"
        if schema.exclusive_maximum is not None and value >= schema.exclusive_maximum:
            yield f"must be below {schema.exclusive_maximum}"


def _out_of(number: float, least: float | None, most: float | None, of: str = "") -> Iterator[str]:
    verb, of = ("have", f" {of}") if of else ("be", "")
    if least is not None and number < least:
        yield f"must {verb} at least {least}{of}"
    if most is not None and number > most:
        yield f"must {verb} at most {most}{of}"


def _is_of(name: _Type, value: object) -> bool:
    # To Python a boolean is a number too, and to JSON a number without a fraction is an integer.
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name]) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


def _same(one: object, other: object) -> bool:
    # To Python True is 1, to JSON it is not.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
