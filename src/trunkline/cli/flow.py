"""`trunkline flow validate|sign`: what can be done with a definition before anything runs it."""

from __future__ import annotations

import asyncio
import sys
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from trunkline.cli.console import one_line, print_json, print_notice
from trunkline.cli.parsing import Commands
from trunkline.errors import FlowInvalid, Misuse
from trunkline.flow.definition.diagnostics import Diagnostic, told
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.programs import program_rules
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.signing import private_key, sign, written_public_key
from trunkline.flow.definition.source import line_at, positions, read_source
from trunkline.flow.definition.warnings import warnings
from trunkline.flow.jq.filters import Filters
from trunkline.yaml_reader import FILE_LIMIT, YamlPosition, read_text

commands = Commands()
DefinitionFile = Annotated[
    str, typer.Argument(metavar="FILE|-", help="The definition, in JSON or YAML; - is standard input.")
]


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


@commands.local("validate")
def validate(
    file: DefinitionFile,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")] = False,
    as_json: bool,
) -> None:
    """Say what is wrong with a definition, and where; exit code 1 if anything is, 2 if it cannot be read."""
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
        print_json(said)
        raise typer.Exit(int(failed))
    for one in told(written.document, wrong) or wrong:
        print_notice("Error", written.line(one))
    for one in doubts:
        print_notice("Error" if strict else "Warning", written.line(one))
    if definition is not None and not failed:
        print(f"OK: {one_line(definition.name)} {one_line(definition.version)}, {definition.hash}")
    raise typer.Exit(int(failed))


@commands.local("sign")
def sign_definition(
    file: DefinitionFile,
    *,
    key: Annotated[str, typer.Option(metavar="FILE", help="An Ed25519 private key in PEM.")],
    key_id: Annotated[str, typer.Option(help="The name by which servers know the key.")],
) -> None:
    """Print a definition with a signature in it; the public key goes to standard error."""
    written = Written(file)
    written.definition()
    private = private_key(_file(key), key)
    print_json(sign(cast("dict[str, Any]", written.document), private, key_id))
    print_notice("Public key", msgspec.json.encode({key_id: written_public_key(private)}).decode())


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
