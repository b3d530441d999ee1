"""`trunkline doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

Several = list[str] | None


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    from trunkline.cli.doctor import DoctorArguments, credentials, list_checks
    from trunkline.cli.doctor import doctor as examine

    asked = DoctorArguments(
        credentials=credentials(key, bearer, header or ()),
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        skill=skill,
        text=text,
        sends=not no_send,
        receiver=local_receiver,
        timeout_s=timeout,
        as_json=as_json,
        junit=junit,
    )
    if listing:
        list_checks(asked)
        return
    if not url:
        raise typer.BadParameter("name the agent: trunkline doctor https://agent.example")
    raise typer.Exit(examine(url, asked))
