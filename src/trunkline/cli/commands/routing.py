"""Commands that have the agents of a hub do work, and say who does it: `dispatch`, `route …`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.ceremony import Tenant
from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.cli.commands.serve import SERVE, StoreUrl
from trunkline.errors import Misuse

route_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Which agent of a hub does something, and why: explain."
)
a2a_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Agents elsewhere that a hub knows: list, card, call."
)
RemoteName = Annotated[str, typer.Argument(metavar="NAME", help="The agent, by its name on the hub.")]
Skill = Annotated[str, typer.Option("--skill", help="The skill that is asked for.")]
Context = Annotated[str, typer.Option("--context-id", help="The conversation that it belongs to.")]


@prints_json
def dispatch(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What is to be done.")],
    *,
    skill: Skill = "",
    agent: Annotated[list[str] | None, typer.Option(help="An agent by name, or all; repeatable.")] = None,
    context_id: Context = "",
    correlation_id: Annotated[str, typer.Option(help="Asked for again under this id, it is done once.")] = "",
    wait: Annotated[float, typer.Option(min=0, max=3600, help="For how many seconds to wait.")] = 30.0,
    tenant: Tenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Have an agent of the hub do something: one by name, several, or whoever has the skill."""
    from trunkline.cli.routing import dispatch as perform

    form = {
        "message": message, "skill": skill, "targets": agent or [], "contextId": context_id,
        "correlationId": correlation_id,
    }  # fmt: skip
    raise typer.Exit(perform(store, tenant, form, wait, as_json=as_json))


@route_app.command("explain", cls=UsageCommand)
@prints_json
def route_explain(
    task_id: Annotated[str, typer.Argument(metavar="[TASK]", help="The id of a task that there is.")] = "",
    *,
    skill: Skill = "",
    agent: Annotated[str, typer.Option(help="An agent by name.")] = "",
    context_id: Context = "",
    tenant: Tenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Show why an agent does a task; or which one would be chosen now, drawn anew each time."""
    from trunkline.cli.routing import explain

    if bool(task_id) is bool(skill or agent or context_id):
        raise Misuse("name a task, or what would be asked for: --skill, --agent or --context-id")
    query = {"skill": skill, "agent": agent, "contextId": context_id}
    explain(store, tenant, task_id, query, as_json=as_json)


@a2a_app.command("list", cls=UsageCommand)
def a2a_list(*, tenant: Tenant = "", store: StoreUrl = None) -> None:
    """List the agents elsewhere that the hub knows."""
    _perform_a2a(store, tenant, "list")


@a2a_app.command("card", cls=UsageCommand)
def a2a_card(name: RemoteName, *, tenant: Tenant = "", store: StoreUrl = None) -> None:
    """Show what an agent elsewhere says of itself."""
    _perform_a2a(store, tenant, f"card {name}")


@a2a_app.command("call", cls=UsageCommand)
def a2a_call(
    name: RemoteName,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE", help="What it is told.")],
    *,
    tenant: Tenant = "",
    store: StoreUrl = None,
) -> None:
    """Tell an agent elsewhere something, and print its answer."""
    _perform_a2a(store, tenant, f"call {name} {' '.join(message)}")


def _perform_a2a(store: str | None, tenant: str, line: str) -> None:
    from trunkline.cli.routing import perform_a2a

    raise typer.Exit(perform_a2a(store, tenant, line))


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command("dispatch", cls=UsageCommand, rich_help_panel=SERVE)(dispatch)
    app.add_typer(route_app, name="route", rich_help_panel=SERVE)
    app.add_typer(a2a_app, name="a2a", rich_help_panel=SERVE)
