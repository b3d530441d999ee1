"""Commands on workflows: `flow …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trunkline.cli.commands import flow_runs
from trunkline.cli.commands.flow_runs import DefinitionFile
from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.cli.commands.serve import SERVE, StoreUrl

flow_app = typer.Typer(
    cls=ClientGroup,
    no_args_is_help=True,
    help="Workflows: definitions (validate, sign, graph), their runs, and servers of both (serve, mcp).",
)


def _flow() -> Any:
    """The module with the work of these commands; its libraries are the extra `flow`."""
    return flow_runs.loaded("flow")


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
    run: Annotated[
        str, typer.Option("--run", metavar="ID", help="A run of it: each node is drawn with how it stands.")
    ] = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Draw a definition or a run of it: a tree in the terminal, or a Mermaid chart for a page."""
    if run:
        flow_runs.runs(store, as_json=as_json).graph(file, run, form)
    else:
        _flow().draw(file, form, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    flow_runs.add_to(flow_app)
    app.add_typer(flow_app, name="flow", rich_help_panel=SERVE)
