"""`trunkline deliveries …`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.flags import AsJson, StoreUrl

app = typer.Typer(no_args_is_help=True, help="Notifications that were sent: list, show, replay.")
OfTask = Annotated[str, typer.Option("--task", metavar="ID", help="Only those of this task.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="Only this tenant's.")]


@app.command("list")
def deliveries_list(
    *,
    task: OfTask = "",
    state: Annotated[str, typer.Option(help="pending, done, dead or dropped.")] = "",
    tenant: OfTenant = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, those of the newest tasks first; also beside a running server."""
    from trunkline.cli.deliveries import Wanted, show_all

    show_all(store, Wanted(task, state, tenant), limit, as_json=as_json)


@app.command("show")
def deliveries_show(
    delivery_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one delivery."""
    from trunkline.cli.deliveries import show

    show(store, delivery_id, as_json=as_json)


@app.command("replay")
def deliveries_replay(
    delivery_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")] = "",
    *,
    dead: Annotated[bool, typer.Option("--dead", help="All that were given up.")] = False,
    task: OfTask = "",
    tenant: OfTenant = "",
    store: StoreUrl = None,
) -> None:
    """Post a delivery again that has ended, or all dead ones; their ids stay."""
    from trunkline.cli.deliveries import Wanted, replay, replay_dead

    if bool(delivery_id) is dead:
        raise typer.BadParameter("name one delivery, or say --dead")
    if dead:
        replay_dead(store, Wanted(task, tenant=tenant))
    else:
        replay(store, delivery_id)
