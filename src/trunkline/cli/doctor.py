"""`trunkline doctor`, which says what is wrong with an agent, and `trunkline demo`, which shows one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trunkline.cli.console import print_json
from trunkline.cli.parsing import Commands, Several
from trunkline.config import Secret, secret_text
from trunkline.demo.tour import run as run_tour
from trunkline.doctor.report import as_json as json_of
from trunkline.doctor.report import as_junit, exit_code, show, show_checks
from trunkline.doctor.run import DoctorReport, chosen, examine
from trunkline.doctor.subject import TEXT, DoctorOptions
from trunkline.errors import Misuse

commands = Commands()


@commands.local("doctor")
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
    if not timeout > 0:
        raise Misuse("--timeout is a number of seconds above 0")
    options = DoctorOptions(
        credentials=_credentials(key, bearer, header or ()),
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        skill=skill,
        text=text or TEXT,
        sends=not no_send,
        receiver=local_receiver,
        timeout_s=timeout,
    )
    if listing:
        show_checks(chosen(options), Console(file=sys.stdout, highlight=False, soft_wrap=True))
    elif url:
        _print(asyncio.run(examine(url, options)), junit, as_json=as_json)
    else:
        raise Misuse("name the agent: trunkline doctor https://agent.example")


def _print(report: DoctorReport, junit: str, *, as_json: bool) -> None:
    if junit:
        try:
            Path(junit).write_bytes(as_junit(report))
        except OSError as error:
            raise Misuse(f"{junit} cannot be written: {error.strerror}; name another file") from None
    if as_json:
        print_json(json_of(report))
    else:
        show(report, Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty()))
    raise typer.Exit(exit_code(report))


def _credentials(key: str, bearer: str, headers: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """The headers to send along. `env:NAME` is taken from the environment."""
    found: list[tuple[str, Secret]] = []
    if key:
        found.append(("X-API-Key", Secret(secret_text(key))))
    if bearer:
        found.append(("Authorization", Secret(f"Bearer {secret_text(bearer)}")))
    for one in headers:
        name, colon, value = one.partition(":")
        if not colon or not name.strip():
            raise Misuse("a header is written as 'Name: value'")
        found.append((name.strip(), Secret(secret_text(value.strip()))))
    return tuple(found)


@commands.local("demo")
def demo(
    *,
    once: Annotated[bool, typer.Option(help="End after the tour.")] = False,
    port: Annotated[int, typer.Option(help="Port of the demo server, or the next free one.")] = 8000,
) -> None:
    """Start the demo agent and walk through what it does, alone and in a fleet."""
    raise typer.Exit(run_tour(once=once, port=port))
