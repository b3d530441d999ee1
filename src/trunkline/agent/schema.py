"""The JSON schema of what a skill reads, and the names in a data part that it does not know.

A schema is closed unless its author opens it: a misspelt name is refused, not dropped.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator

import msgspec

from trunkline.errors import InvalidParams

Schema = dict[str, typing.Any]
_LONGEST_NAME = 100
# A body may hold far more numbers than lists and objects, so that only these are looked into.
_WITH_NAMES = (dict, list)


def schema_of(model: object, *, is_open: bool) -> Schema:
    """The schema of a type; an open one takes names at its top that it does not list.

    Raises:
        TypeError: JSON has no form for it.
    """
    pydantic_schema = getattr(model, "model_json_schema", None)
    if callable(pydantic_schema):
        found = typing.cast("Schema", pydantic_schema())
        # What its author said of other names counts; inside, pydantic's own types keep their own rule.
        told = is_open or "properties" not in found or "extra" in getattr(model, "model_config", {})
        return found if told else {**found, "additionalProperties": False}
    schema = msgspec.json.schema(model)
    for one in schema.get("$defs", {}).values():
        if "properties" in one:
            one.setdefault("additionalProperties", False)
    schema = _flat(schema)
    return {**schema, "additionalProperties": True} if is_open else schema


def _flat(schema: Schema) -> Schema:
    """A schema whose top is an object and not a reference to one."""
    reference: str = schema.get("$ref", "")
    if not reference:
        return schema
    definitions = dict[str, typing.Any](schema.get("$defs", {}))
    top = definitions.pop(reference.rsplit("/", 1)[-1])
    return {**top, "$defs": definitions} if definitions else top


def text_member(schema: Schema | None) -> str:
    """The member that plain text fills: the only one that is required, if it is text of any form."""
    required: list[str] = (schema or {}).get("required", [])
    if schema is None or len(required) != 1:
        return ""
    about = schema["properties"][required[0]]
    return (
        required[0] if about.get("type") == "string" and not {"format", "contentEncoding"} & {*about} else ""
    )


def refuse_unknown(data: object, schema: Schema, model: object, field: str) -> None:
    """Refuse names that a closed schema does not list.

    Raises:
        InvalidParams: there is one; the nearest known name is said.
    """
    found = _Names(schema.get("$defs", {}), {*_pydantic_names(model)}).unknown(data, schema)
    if found is not None:
        path, name, known = found
        place = field + path
        # A name of a megabyte is near to none, and comparing it would take seconds.
        near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise InvalidParams(f"{place}: there is no {name!r}; {hint}", field=f"{place}.{name}")


class _Names:
    """The types of one schema, and the names that are let pass wherever they stand."""

    def __init__(self, types: Schema, others: set[str]) -> None:
        self._types = types
        self._others = others

    def unknown(self, data: object, schema: Schema) -> tuple[str, str, list[str]] | None:
        """The first name that is not listed where it stands: its place, itself, and what is listed there."""
        schema = _choose(data, schema, self._types)
        if isinstance(data, dict):
            known: Schema = schema.get("properties", {})
            rest = schema.get("additionalProperties")
            members = typing.cast("dict[str, object]", data)
            if rest is False:
                for name in members:
                    if name not in known and name not in self._others:
                        return "", name, list(known)
            inside = [
                (name, one, known.get(name, rest))
                for name, one in members.items()
                if type(one) in _WITH_NAMES
            ]
        elif isinstance(data, list):
            items, listed = schema.get("items"), typing.cast("list[object]", data)
            inside = [(place, one, items) for place, one in enumerate(listed) if type(one) in _WITH_NAMES]
        else:
            return None
        for step, one, within in inside:
            if isinstance(within, dict):
                found = self.unknown(one, typing.cast("Schema", within))
                if found is not None:
                    path = f"[{step}]" if isinstance(step, int) else f".{step}"
                    return path + found[0], found[1], found[2]
        return None


def _choose(data: object, schema: Schema, types: Schema) -> Schema:
    """The schema that is meant: behind a reference, and of several the one that the data names."""
    several = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    tag = schema.get("discriminator", {})
    if tag and isinstance(data, dict):
        value = typing.cast("dict[str, object]", data).get(tag["propertyName"])
        schema = {"$ref": tag.get("mapping", {}).get(value, "")}
    elif len(several) == 1:
        schema = several[0]
    return types.get(schema["$ref"].rsplit("/", 1)[-1], {}) if "$ref" in schema else schema


def _pydantic_names(model: object) -> Iterator[str]:
    """The other names that a pydantic model reads: of its fields, and their further aliases."""
    for name, field in getattr(model, "model_fields", {}).items():
        yield name
        for alias in getattr(field.validation_alias, "choices", ()):
            yield alias if isinstance(alias, str) else str(alias.path[0])
