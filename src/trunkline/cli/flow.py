"""`trunkline flow validate|sign|graph`: what can be done with a definition before anything runs it."""

from __future__ import annotations

import asyncio
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.console import Console
from rich.tree import Tree

from trunkline.cli.console import escape_controls, one_line, print_json, print_notice
from trunkline.errors import FlowInvalid, Misuse
from trunkline.flow.definition.diagnostics import Diagnostic, told
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.drawing import Branch, edges, mermaid, tree
from trunkline.flow.definition.programs import program_rules
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.signing import private_key, sign, written_public_key
from trunkline.flow.definition.source import line_at, positions, read_source
from trunkline.flow.definition.warnings import warnings
from trunkline.flow.jq.filters import Filters
from trunkline.yaml_reader import FILE_LIMIT, YamlPosition, read_text

INVALID = 1


class Written:
    """A definition in a file or on standard input."""

    def __init__(self, file: str) -> None:
        """Read it.

        Raises:
            Misuse: there is none, or it is neither JSON nor YAML.
        """
        self.name = "standard input" if file == "-" else file
        self._text = _standard_input() if file == "-" else _file(file)
        self.document = read_source(self._text, self.name)

    def line(self, one: Diagnostic) -> str:
        """A diagnostic with the line where it applies."""
        at = self._positions
        place = self.name if at is None else f"{self.name}, line {line_at(at, one.instance_path)}"
        params = msgspec.json.encode(one.params).decode() if one.params else ""
        return f"{place}: {one} [{' '.join(word for word in (one.keyword, one.schema_path, params) if word)}]"

    @cached_property
    def _positions(self) -> YamlPosition | None:
        return positions(self._text, self.name)

    def definition(self) -> Definition:
        """The definition.

        Raises:
            FlowInvalid: it breaks a rule.
        """
        return read_definition(self.document)


def validate(file: str, *, strict: bool, as_json: bool) -> int:
    """Print what is wrong with a definition; the exit code is 0 where nothing is."""
    written = Written(file)
    definition: Definition | None = None
    doubts: list[Diagnostic] = []
    try:
        definition = written.definition()
        wrong = asyncio.run(_program_faults(definition))
        doubts = warnings(definition.document)
    except FlowInvalid as error:
        wrong = list(cast("list[Diagnostic]", error.diagnostics))
    failed = bool(wrong or (strict and doubts))
    if as_json:
        said: dict[str, Any] = {"valid": not failed, "errors": wrong, "warnings": doubts}
        if definition is not None:
            said |= {"name": definition.name, "version": definition.version, "hash": definition.hash}
        print_json(msgspec.json.encode(said), compact=False)
        return INVALID if failed else 0
    for one in told(written.document, wrong) or wrong:
        print_notice("Error", written.line(one))
    for one in doubts:
        print_notice("Error" if strict else "Warning", written.line(one))
    if definition is not None and not failed:
        print(f"OK: {one_line(definition.name)} {one_line(definition.version)}, {definition.hash}")
    return INVALID if failed else 0


def sign_definition(file: str, key_file: str, key_id: str) -> None:
    """Print a definition with a signature in it, and on standard error the key that a server must know.

    Raises:
        Misuse: there is no such file or key.
        FlowRefused: the definition breaks a rule.
    """
    written = Written(file)
    written.definition()
    key = private_key(_file(key_file), key_file)
    signed = sign(cast("dict[str, Any]", written.document), key, key_id)
    print_json(msgspec.json.encode(signed), compact=False)
    print_notice("Public key", msgspec.json.encode({key_id: written_public_key(key)}).decode())


def draw(file: str, form: str, *, as_json: bool) -> None:
    """Print a definition as a tree, as a chart in Mermaid, or its nodes and edges as JSON.

    Raises:
        FlowInvalid: the definition breaks a rule.
        Misuse: there is no such file, or no such form.
    """
    if form not in {"tree", "mermaid"}:
        raise Misuse(f"--format is tree or mermaid, not {form!r}")
    definition = Written(file).definition()
    if as_json:
        nodes = [{"id": node.id, "type": node.type} for node in definition.nodes.values()]
        print_json(msgspec.json.encode({"nodes": nodes, "edges": list(edges(definition))}), compact=False)
    elif form == "mermaid":
        print(mermaid(definition), end="")
    else:
        print_tree(definition)


def print_tree(definition: Definition) -> None:
    """Print the nodes of a definition in the order of a walk."""
    root = Tree(escape_controls(f"{definition.name} {definition.version}"))
    _hang(root, tree(definition))
    Console(highlight=False, markup=False, color_system=None).print(root, soft_wrap=True)


def _hang(on: Tree, branches: tuple[Branch, ...]) -> None:
    for one in branches:
        _hang(on.add(escape_controls(one.text)), one.below)


async def _program_faults(definition: Definition) -> list[Diagnostic]:
    filters = Filters()
    try:
        return await program_rules(definition.document, filters)
    finally:
        await filters.close()


def _file(path: str) -> str:
    try:
        return read_text(Path(path))
    except FileNotFoundError:
        raise Misuse(f"there is no file {path!r}") from None


def _standard_input() -> str:
    try:
        found = sys.stdin.buffer.read(FILE_LIMIT + 1)
        if len(found) > FILE_LIMIT:
            raise Misuse(f"standard input has more than {FILE_LIMIT >> 20} MiB")
        return found.decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"standard input: {error}") from None
