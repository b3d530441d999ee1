"""Commands of a hub: `hub [DIR]`, `hub init`, `hub check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trunkline.cli.commands.parsing import ClientGroup, UsageCommand
from trunkline.cli.commands.serve import SERVE, Dev

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of the workspace.")]


class HubGroup(ClientGroup):
    """A folder alone is served, and so is the current one where none is named."""

    default = "serve"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Serve the current folder where nothing is said."""
        return super().parse_args(ctx, args or [self.default])


hub_app = typer.Typer(
    cls=HubGroup,
    no_args_is_help=False,
    help="Many agents behind one address; `hub DIR` serves a workspace, `hub init DIR` writes one.",
)


@hub_app.command("serve", cls=UsageCommand)
def hub_serve(
    folder: Folder = ".",
    *,
    host: Annotated[str | None, typer.Option(help="Address to bind to; loopback unless told.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind to.")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or memory:")] = None,
    key: Annotated[list[str] | None, typer.Option(help="An operator's key; repeatable.")] = None,
    public_url: Annotated[str | None, typer.Option(help="The address that the cards name.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Serve other machines without any key.")] = False,
    dev: Dev = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve Prometheus metrics at /metrics.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as name=value.")] = None,
) -> None:
    """Serve the agents of a workspace until interrupted."""
    from trunkline.cli.hub import run

    flags: dict[str, object] = {
        "host": host,
        "port": port,
        "store": store,
        "keys": tuple(key) if key else None,
        "public_url": public_url,
        "open": open_ or None,
        "dev": dev or None,
        "log_level": log_level,
        "log_format": log_format,
        "metrics": metrics or None,
    }
    run(folder, flags, settings or [])


@hub_app.command("init", cls=UsageCommand)
def hub_init(folder: Folder) -> None:
    """Write a workspace that runs: three scripted agents, and comments that say what to change."""
    from pathlib import Path

    from trunkline.hub.template import write_workspace

    for path in write_workspace(Path(folder)):
        print(path)
    print(f"\nNext: trunkline hub {folder}")


@hub_app.command("check", cls=UsageCommand)
def hub_check(folder: Folder = ".") -> None:
    """Say what is wrong with a workspace, with file and line; exit code 2 if anything is. Starts nothing."""
    from trunkline.cli.hub import check

    wrong = check(folder)
    for one in wrong:
        print(one)
    if wrong:
        raise typer.Exit(2)
    print(f"{folder}: nothing is wrong")


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(hub_app, name="hub", rich_help_panel=SERVE)
