"""Commands to try an agent out: `demo`, `doctor`, `conformance` and `mock`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.parsing import (
    ClientCommand,
    ClientGroup,
    Invocation,
    UsageCommand,
    prints_json,
    run,
    takes,
)
from trunkline.cli.options import CALLING
from trunkline.errors import Misuse

TRY = "Try one out"
Several = list[str] | None


def demo(
    *,
    once: Annotated[bool, typer.Option(help="End after the tour.")] = False,
    port: Annotated[int, typer.Option(help="Port of the demo server, or the next free one.")] = 8000,
) -> None:
    """Start the demo agent and walk through what it does, alone and in a fleet."""
    from trunkline.demo.tour import run

    raise typer.Exit(run(once=once, port=port))


@prints_json
def doctor(
    url: Annotated[str, typer.Argument(metavar="URL", help="The agent, its card or its endpoint.")] = "",
    *,
    key: Annotated[
        str,
        typer.Option("--key", "--api-key", help="Sent as X-API-Key; env:NAME takes it from the environment."),
    ] = "",
    bearer: Annotated[
        str, typer.Option(help="Sent as a bearer token; env:NAME takes it from the environment.")
    ] = "",
    header: Annotated[Several, typer.Option(help="'Name: value', sent along; repeatable.")] = None,
    as_json: bool,
    junit: Annotated[str, typer.Option(metavar="FILE", help="Write JUnit XML there too.")] = "",
    only: Annotated[Several, typer.Option(help="A family or a check; repeatable.")] = None,
    skip: Annotated[Several, typer.Option(help="A family or a check; repeatable.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks and examine nothing.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that the whole examination may take.")] = 15.0,
    skill: Annotated[str, typer.Option(metavar="ID", help="The skill that is put to work.")] = "",
    text: Annotated[str, typer.Option(help="What is sent; something harmless and quick.")] = "",
    no_send: Annotated[bool, typer.Option("--no-send", help="Make no tasks at all.")] = False,
    local_receiver: Annotated[
        str, typer.Option(metavar="HOST", help="How the agent reaches this machine, for its webhooks.")
    ] = "127.0.0.1",
) -> None:
    """Find out what is wrong with an agent; exit code 1 if anything is that breaks callers."""
    from trunkline.cli.doctor import credentials, list_checks
    from trunkline.cli.doctor import doctor as examine
    from trunkline.doctor.subject import TEXT, DoctorOptions

    if not timeout > 0:
        raise Misuse("--timeout is a number of seconds above 0")
    options = DoctorOptions(
        credentials=credentials(key, bearer, header or ()),
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        skill=skill,
        text=text or TEXT,
        sends=not no_send,
        receiver=local_receiver,
        timeout_s=timeout,
    )
    if listing:
        list_checks(options)
        return
    if not url:
        raise Misuse("name the agent: trunkline doctor https://agent.example")
    raise typer.Exit(examine(url, options, json=as_json, junit=junit))


@takes("kit", *CALLING, arguments="[AGENT]", about="The agent, unless -a names it.")
def conformance(invocation: Invocation) -> None:
    """Run the official test kit against an agent; exit code 1 if it fails."""
    from trunkline.cli.conformance import conformance

    run(invocation, conformance, agent_only=True)


class MockGroup(ClientGroup):
    """A file alone is served."""

    default = "serve"


mock_app = typer.Typer(
    cls=MockGroup, no_args_is_help=True, help="Agents that answer by a script; `mock FILE` serves them."
)

Host = Annotated[str, typer.Option(help="Address to bind to; loopback unless told.")]
Port = Annotated[int, typer.Option(help="Port to bind to; 0 takes a free one.")]
Open = Annotated[bool, typer.Option("--open", help="Let other machines in without any credential.")]


@mock_app.command("serve", cls=UsageCommand)
def mock_serve(
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


@mock_app.command("record", cls=UsageCommand)
def mock_record(
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


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command(cls=UsageCommand, rich_help_panel=TRY)(demo)
    app.command(cls=UsageCommand, rich_help_panel=TRY)(doctor)
    app.command(cls=ClientCommand, rich_help_panel=TRY)(conformance)
    app.add_typer(mock_app, name="mock", rich_help_panel=TRY)
