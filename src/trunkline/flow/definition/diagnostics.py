"""What is wrong with a definition, and where: one diagnostic for each rule that it breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, cast

from msgspec import Struct

from trunkline.flow.definition.schema import CONFIGS, DEFINITION_SCHEMA

# What one answer lists. A document of a million wrong nodes is wrong once a hundred have been named.
DIAGNOSTICS_LIMIT = 1000
# Characters of an unknown name up to which it is compared with the known ones.
_COMPARED_LENGTH = 64
_TYPE_RULE = re.compile(r"#/\$defs/(\w+)/")
_NODE = re.compile(r"/nodes/(\d+)")


class Diagnostic(Struct, frozen=True, rename="camel"):
    """One broken rule: a pointer into the document, the rule, and what to do."""

    instance_path: str
    keyword: str
    schema_path: str
    params: dict[str, Any]
    message: str

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.instance_path or '/'}: {self.message}"


def pointer(steps: Iterable[str | int]) -> str:
    """The JSON pointer of a path."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def broken(path: Iterable[str | int], keyword: str, rule: str, message: str, **params: Any) -> Diagnostic:
    """The diagnostic of a rule of ours, which no JSON Schema can say."""
    return Diagnostic(pointer(path), keyword, f"#/{keyword}/{rule}", params, message)


def told(document: object, diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics that help a reader: of a node that fits no type, only those of its own type.

    A node is checked against every type, so that one wrong letter breaks the rules of twelve. A misspelt
    member is reported once, with the name that was meant, and not as a missing one too.
    """
    types = _node_types(document)
    helpful: list[Diagnostic] = []
    for one in diagnostics:
        rule = _TYPE_RULE.match(one.schema_path)
        node = _NODE.match(one.instance_path)
        kind = types.get(node[1]) if node else None
        if rule is None and one.keyword == "oneOf" and node and node[0] == one.instance_path:
            if kind not in CONFIGS:
                text = f"must be one of {', '.join(CONFIGS)}{_suggestion(kind or '', CONFIGS)}"
                helpful.append(broken(("nodes", node[1], "type"), "type", "known", text, type=kind))
        elif rule is None or rule[1] == kind or rule[1] not in CONFIGS:
            helpful.append(one)
    return _join_misspelt(helpful)


def _join_misspelt(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics with one for each required member that is there under a similar name."""
    missing: dict[str, list[str]] = {}
    for one in diagnostics:
        if "missingProperty" in one.params:
            missing.setdefault(one.instance_path, []).append(one.params["missingProperty"])
    found = set[tuple[str, str]]()
    for one in diagnostics:
        name, names = one.params.get("additionalProperty", ""), missing.get(one.instance_path, [])
        if name and (near := _nearest(name, names)):
            found.add((one.instance_path, near))
    return [
        one for one in diagnostics if (one.instance_path, one.params.get("missingProperty", "")) not in found
    ]


def _suggestion(name: str, names: Iterable[str]) -> str:
    """Return the end of an error's text: the most similar name, if there is one."""
    near = _nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""


def _nearest(name: str, names: Iterable[str]) -> str:
    # A comparison takes time that grows with the length, and strangers write definitions.
    near = get_close_matches(name, names, 1, 0.7) if len(name) <= _COMPARED_LENGTH else []
    return near[0] if near else ""


def _node_types(document: object) -> dict[str, str]:
    nodes: Any = document.get("nodes") if isinstance(document, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(nodes, list):
        return {}
    members = cast("list[Any]", nodes)
    return {str(n): str(one.get("type", "")) for n, one in enumerate(members) if isinstance(one, dict)}  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def schema_errors(errors: Iterable[Any]) -> Iterator[Diagnostic]:
    """The diagnostics of what a validator found, those of the branches of `oneOf` and `anyOf` among them."""
    for error in errors:
        schema_path: list[str | int] = error.schema_path
        keyword = str(schema_path[-1]) if schema_path else "schema"
        place, rule = pointer(error.instance_path), "#" + pointer(schema_path)
        details: dict[str, Any] = error.kind.as_dict()
        for params, message in _worded(keyword, error, details):
            yield Diagnostic(place, keyword, rule, params, message)
        for branch in details.get("context", ()):
            yield from schema_errors(branch)


def _members(schema_path: Sequence[str | int]) -> list[str]:
    """Return the members that the schema knows in the place of a rule."""
    schema: Any = DEFINITION_SCHEMA
    for step in schema_path[:-1]:
        schema = schema[step]
    return [*schema.get("properties", ())]


def _worded(keyword: str, error: Any, details: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Parameters and words of an error, as validators of other languages give them."""
    match keyword:
        case "additionalProperties" if "unexpected" in details:
            for name in details["unexpected"]:
                yield (
                    {"additionalProperty": name},
                    f"must NOT have additional properties: {name!r} is not known here"
                    + _suggestion(name, _members(error.schema_path)),
                )
        case "required":
            name = details["property"]
            yield {"missingProperty": name}, f"must have required property '{name}'"
        case "type":
            yield {"type": details["types"]}, f"must be {' or '.join(details['types'])}"
        case "enum":
            allowed = details["options"]
            yield {"allowedValues": allowed}, f"must be equal to one of the allowed values: {allowed}"
        case "const":
            value = details["expected_value"]
            yield {"allowedValue": value}, f"must be equal to constant {value!r}"
        case "oneOf":
            yield {}, "must match exactly one schema in oneOf"
        case "anyOf":
            yield {}, "must match a schema in anyOf"
        case "minLength" | "minItems" | "minProperties":
            thing = {"minLength": "characters", "minItems": "items"}.get(keyword, "properties")
            yield {"limit": details["limit"]}, f"must NOT have fewer than {details['limit']} {thing}"
        case "minimum":
            yield {"comparison": ">=", "limit": details["limit"]}, f"must be >= {details['limit']}"
        case _:
            yield {}, str(error.message)
