"""The `trunkline` command, put together: names and flags are in `commands`, what they do is beside this."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trunkline.cli.commands import call, ceremony, flow, hub, mcp, routing, serve, tenant, tool, try_out
from trunkline.cli.commands.parsing import ClientGroup
from trunkline.cli.options import COMPLETING
from trunkline.config import environment
from trunkline.errors import TrunklineError

app = typer.Typer(
    name="trunkline",
    cls=ClientGroup,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A runtime for the Agent2Agent protocol.",
)


def _version(asked: bool) -> None:
    if asked:
        from trunkline import __version__

        print(f"trunkline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-v", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A runtime for the Agent2Agent protocol."""
    del version


# Help lists headings and commands in this order.
for family in (call, mcp, serve, hub, ceremony, flow, routing, tenant, try_out, tool):
    family.add_to(app)


def main() -> None:
    """Entry point: our own errors are told as those of every command, with what to do."""
    if environment(COMPLETING):
        from trunkline.cli.completion import register_shells

        register_shells()
    try:
        app(prog_name="trunkline")
    except TrunklineError as error:
        from trunkline.cli.failure import print_error

        print_error(error, sys.argv[1:])
        raise SystemExit(2) from None
