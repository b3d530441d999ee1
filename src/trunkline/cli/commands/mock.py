"""`trunkline mock`: `mock FILE` serves what the file says, `mock record URL` makes such a file."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.client import ClientGroup


class MockGroup(ClientGroup):
    """A file alone is served."""

    default = "serve"


app = typer.Typer(
    cls=MockGroup, no_args_is_help=True, help="Agents that answer by a script; `mock FILE` serves them."
)

Host = Annotated[str, typer.Option(help="Address to bind to; loopback unless told.")]
Port = Annotated[int, typer.Option(help="Port to bind to; 0 takes a free one.")]
Open = Annotated[bool, typer.Option("--open", help="Let other machines in without any credential.")]


@app.command()
def serve(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A scenario, or several under `agents`.")],
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    open_: Open = False,
    seed: Annotated[
        int | None, typer.Option(help="Draws faults by chance otherwise; the file's own unless told.")
    ] = None,
) -> None:
    """Serve mock agents until interrupted; exit code 1 if what the file expects did not happen."""
    from trunkline.cli.mock import serve

    raise typer.Exit(serve(file, host=host, port=port, is_open=open_, seed=seed))


@app.command()
def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="The agent to record.")],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the scenario is written to.")
    ] = "-",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    open_: Open = False,
    timing: Annotated[bool, typer.Option("--timing", help="Keep how long the agent took.")] = False,
) -> None:
    """Stand between a client and an agent until interrupted, then write what replays the agent."""
    from trunkline.cli.mock import record

    record(url, output, host=host, port=port, is_open=open_, timing=timing)
