"""The `trunkline` command, put together: names and flags are in `menu`, what they do is beside this."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trunkline.cli.commands import deliveries, keys, mock, store, talk, task, tool, tools
from trunkline.cli.commands.client import ClientGroup
from trunkline.cli.commands.doctor import doctor
from trunkline.cli.commands.flags import SERVE, TRY
from trunkline.cli.commands.serve import demo, serve
from trunkline.cli.options import COMPLETING
from trunkline.cli.screen import plain
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


talk.add_to(app)
task.add_to(app)
app.command(rich_help_panel=SERVE)(serve)
app.command(rich_help_panel=TRY)(demo)
app.command(rich_help_panel=TRY)(doctor)
app.add_typer(mock.app, name="mock", rich_help_panel=TRY)
app.add_typer(store.app, name="store", rich_help_panel=SERVE)
app.add_typer(keys.app, name="keys", rich_help_panel=SERVE)
app.add_typer(deliveries.app, name="deliveries", rich_help_panel=SERVE)
tool.add_to(app)
tools.add_to(app)


def main() -> None:
    """Entry point: our own errors are one line that names the fix."""
    if environment(COMPLETING):
        from trunkline.cli.completion import make_ready

        make_ready()
    try:
        app(prog_name="trunkline")
    except TrunklineError as error:
        print(f"trunkline: {plain(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
