"""Commands on workflows: `flow …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.cli.commands.serve import SERVE
from trunkline.errors import Misuse

flow_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Workflows: validate, sign and draw their definitions."
)
DefinitionFile = Annotated[
    str, typer.Argument(metavar="FILE|-", help="The definition, in JSON or YAML; - is standard input.")
]


def _flow() -> Any:
    """What the commands do; its libraries are the extra `flow`."""
    try:
        from trunkline.cli import flow
    except ModuleNotFoundError as error:
        raise Misuse(f"workflows need {error.name}: pip install 'trunkline[flow]'") from None
    return flow


@flow_app.command("validate", cls=UsageCommand)
@prints_json
def flow_validate(
    file: DefinitionFile,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")] = False,
    as_json: bool,
) -> None:
    """Say what is wrong with a definition, and where; exit code 1 if anything is, 2 if it cannot be read."""
    code = _flow().validate(file, strict=strict, as_json=as_json)
    if code:
        raise typer.Exit(code)


@flow_app.command("sign", cls=UsageCommand)
def flow_sign(
    file: DefinitionFile,
    *,
    key: Annotated[str, typer.Option(metavar="FILE", help="An Ed25519 private key in PEM.")],
    key_id: Annotated[str, typer.Option(help="The name by which servers know the key.")],
) -> None:
    """Print a definition with a signature in it; the public key goes to standard error."""
    _flow().sign_definition(file, key, key_id)


@flow_app.command("graph", cls=UsageCommand)
@prints_json
def flow_graph(
    file: DefinitionFile,
    *,
    form: Annotated[str, typer.Option("--format", metavar="tree|mermaid", help="How it is drawn.")] = "tree",
    as_json: bool,
) -> None:
    """Draw a definition: a tree in the terminal, or a Mermaid chart for a page."""
    _flow().draw(file, form, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(flow_app, name="flow", rich_help_panel=SERVE)
