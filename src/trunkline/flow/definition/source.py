"""Definitions as people write them: in JSON or in YAML, with the line where each member stands."""

from __future__ import annotations

from typing import cast

import msgspec

from trunkline.errors import FlowInvalid, Misuse
from trunkline.flow.definition.diagnostics import Diagnostic, told
from trunkline.wire.decode import locate_json_error
from trunkline.yaml_reader import YamlPosition, read_yaml

# Lines in larger JSON are not worth the time that it takes to find them.
_LOCATED = 1 << 20


def read_source(text: str, name: str) -> object:
    """The document in a text. Moments that YAML reads become texts again, and all keys texts.

    Raises:
        Misuse: it is neither JSON nor YAML; the text names the file, and the line where it can.
    """
    if text.lstrip().startswith("{"):
        try:
            return cast("object", msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Misuse(f"{name}: invalid JSON{locate_json_error(error, text.encode())}") from None
    found = read_yaml(text, name)
    if found is None:
        raise Misuse(f"{name}: there is nothing in it")
    try:
        return cast("object", msgspec.to_builtins(found[0], str_keys=True))
    except (TypeError, ValueError) as error:
        raise Misuse(f"{name}: this cannot be written as JSON: {error}") from None


def positions(text: str, name: str) -> YamlPosition | None:
    """Where the members of a document stand in its text; None where that cannot be told."""
    try:
        found = read_yaml(text, name) if len(text) <= _LOCATED else None
    except Misuse:
        # JSON may be set in by tabs, which YAML does not take.
        return None
    return None if found is None else found[1]


def describe_invalid(text: str, name: str, document: object, error: FlowInvalid) -> str:
    """Return the first rule that a definition breaks, with its file and line, and how many more there are."""
    broken: list[Diagnostic] = [*error.diagnostics]
    broken = told(document, broken) or broken
    if not broken:
        return f"{name}: {error.message}"
    found = positions(text, name)
    place = name if found is None else f"{name}, line {line_of(found, broken[0])}"
    return f"{place}: {broken[0]}" + (f"; and {len(broken) - 1} more" if len(broken) > 1 else "")


def line_of(document: YamlPosition, diagnostic: Diagnostic) -> int:
    """Return the line of a diagnostic: that of the unknown member, or where the pointer leads."""
    unknown = diagnostic.params.get("additionalProperty", "")
    return line_at(document, diagnostic.instance_path, unknown)


def line_at(document: YamlPosition, path: str, member: str = "") -> int:
    """Return the line to which a JSON pointer leads, or of the nearest value around it.

    `member` names a member of that value, whose name is located.
    """
    at = document
    for step in path.split("/")[1:]:
        inner = at.child(step.replace("~1", "/").replace("~0", "~"))
        if inner is None:
            break
        at = inner
    return at.key_line(member) if member else at.line()
