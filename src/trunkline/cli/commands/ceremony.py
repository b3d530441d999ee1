"""Commands on what a hub does by schedule: `ceremony …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.cli.commands.serve import SERVE, StoreUrl
from trunkline.errors import Misuse

if TYPE_CHECKING:
    from trunkline.cli.ceremony import CeremonyCommands

ceremony_app = typer.Typer(
    cls=ClientGroup,
    no_args_is_help=True,
    help="What a hub does by schedule: list, show, create, update, pause, run, history.",
)
CeremonyId = Annotated[str, typer.Argument(metavar="ID", help="The id of the ceremony.")]
Tenant = Annotated[str, typer.Option(help="The tenant that is meant; the default one unless told.")]
Count = Annotated[int, typer.Option(min=1, help="How many at most.")]
Member = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any member, such as timeoutMs=60000; repeatable."),
]


def _commands(store: str | None, tenant: str, *, as_json: bool) -> CeremonyCommands:
    from trunkline.cli.ceremony import CeremonyCommands

    return CeremonyCommands(store, tenant, as_json=as_json)


def _members(given: list[str] | None) -> dict[str, Any]:
    """Members by name; a value that is no JSON is a text."""
    import msgspec

    found: dict[str, Any] = {}
    for one in given or []:
        name, is_given, value = one.partition("=")
        if not is_given:
            raise Misuse(f"--set takes NAME=VALUE, for example timeoutMs=60000, not {one!r}")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


@ceremony_app.command("list", cls=UsageCommand)
@prints_json
def ceremony_list(*, tenant: Tenant = "", limit: Count = 100, store: StoreUrl = None, as_json: bool) -> None:
    """List the ceremonies of a tenant with the next moment of each."""
    _commands(store, tenant, as_json=as_json).show_all(limit)


@ceremony_app.command("show", cls=UsageCommand)
@prints_json
def ceremony_show(
    ceremony_id: CeremonyId, *, tenant: Tenant = "", store: StoreUrl = None, as_json: bool
) -> None:
    """Show all that is known of a ceremony, and its next five moments."""
    _commands(store, tenant, as_json=as_json).show(ceremony_id)


@ceremony_app.command("create", cls=UsageCommand)
@prints_json
def ceremony_create(
    ceremony_id: CeremonyId,
    schedule: Annotated[str, typer.Argument(help="Five fields of cron in quotes, or one date and time.")],
    skill: Annotated[str, typer.Argument(help="The skill that is asked for.")],
    *,
    name: Annotated[str, typer.Option(help="Its name; the id unless told.")] = "",
    members: Member = None,
    tenant: Tenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Have a skill asked for by a schedule."""
    form = {"id": ceremony_id, "name": name or ceremony_id, "schedule": schedule, "skill": skill}
    _commands(store, tenant, as_json=as_json).create({**form, **_members(members)})


@ceremony_app.command("update", cls=UsageCommand)
@prints_json
def ceremony_update(
    ceremony_id: CeremonyId,
    *,
    members: Member = None,
    tenant: Tenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Change members of a ceremony; those that are not named stay."""
    changes = _members(members)
    if not changes:
        raise Misuse("name what is to be changed, for example --set enabled=true")
    _commands(store, tenant, as_json=as_json).update(ceremony_id, changes)


@ceremony_app.command("pause", cls=UsageCommand)
@prints_json
def ceremony_pause(
    ceremony_id: CeremonyId, *, tenant: Tenant = "", store: StoreUrl = None, as_json: bool
) -> None:
    """Let a ceremony rest; update ID --set enabled=true wakes it."""
    _commands(store, tenant, as_json=as_json).update(ceremony_id, {"enabled": False})


@ceremony_app.command("run", cls=UsageCommand)
@prints_json
def ceremony_run(
    ceremony_id: CeremonyId, *, tenant: Tenant = "", store: StoreUrl = None, as_json: bool
) -> None:
    """Begin a run now."""
    _commands(store, tenant, as_json=as_json).run(ceremony_id)


@ceremony_app.command("history", cls=UsageCommand)
@prints_json
def ceremony_history(
    ceremony_id: CeremonyId, *, tenant: Tenant = "", limit: Count = 20, store: StoreUrl = None, as_json: bool
) -> None:
    """List the runs of a ceremony, newest first, with what was skipped or missed."""
    _commands(store, tenant, as_json=as_json).show_runs(ceremony_id, limit)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(ceremony_app, name="ceremony", rich_help_panel=SERVE)
