"""Commands on the tenants of a hub: `tenant …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.commands.ceremony import Count
from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.cli.commands.serve import SERVE, StoreUrl
from trunkline.errors import Misuse

if TYPE_CHECKING:
    from trunkline.cli.tenant import TenantCommands

tenant_app = typer.Typer(
    cls=ClientGroup,
    no_args_is_help=True,
    help="The tenants of a hub: create, list, disable, enable, limit, rotate, delete, audit.",
)
TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="The id of the tenant.")]
Limit = Annotated[int | None, typer.Option(help="A number above 0.")]


def _commands(store: str | None, *, as_json: bool) -> TenantCommands:
    from trunkline.cli.tenant import TenantCommands

    return TenantCommands(store, as_json=as_json)


@tenant_app.command("create", cls=UsageCommand)
@prints_json
def tenant_create(
    name: Annotated[str, typer.Argument(help="Its name; its id is made of it.")],
    *,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Make a tenant and print a key of it once; only the digest is stored."""
    _commands(store, as_json=as_json).create(name)


@tenant_app.command("list", cls=UsageCommand)
@prints_json
def tenant_list(*, store: StoreUrl = None, as_json: bool) -> None:
    """List the tenants beside the default one."""
    _commands(store, as_json=as_json).show_all()


@tenant_app.command("disable", cls=UsageCommand)
@prints_json
def tenant_disable(tenant: TenantId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Let a tenant in no longer: its streams end, its work is cancelled, its keys open nothing."""
    _commands(store, as_json=as_json).change(tenant, {"disabled": True})


@tenant_app.command("enable", cls=UsageCommand)
@prints_json
def tenant_enable(tenant: TenantId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Let a tenant in again, with the keys that it has."""
    _commands(store, as_json=as_json).change(tenant, {"disabled": False})


@tenant_app.command("limit", cls=UsageCommand)
@prints_json
def tenant_limit(
    tenant: TenantId,
    *,
    requests_per_minute: Limit = None,
    concurrent_tasks: Limit = None,
    tokens_per_day: Annotated[int | None, typer.Option(help="Into models and out of them.")] = None,
    cost_per_day: Annotated[float | None, typer.Option(help="In dollars.")] = None,
    none: Annotated[bool, typer.Option("--none", help="As the hub has it for every tenant.")] = False,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Say how much a tenant may use; what is not named is as the hub has it for every tenant."""
    given: dict[str, Any] = {
        "requests_per_minute": requests_per_minute,
        "concurrent_tasks": concurrent_tasks,
        "tokens_per_day": tokens_per_day,
        "cost_per_day": cost_per_day,
    }
    quota = {name: value for name, value in given.items() if value is not None}
    if bool(quota) is none:
        raise Misuse("name a limit, for example --concurrent-tasks 10, or say --none")
    _commands(store, as_json=as_json).change(tenant, {"quota": quota})


@tenant_app.command("set", cls=UsageCommand)
@prints_json
def tenant_set(
    tenant: TenantId,
    *,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="It may have such agents alone.")] = None,
    hosts: Annotated[list[str] | None, typer.Option("--egress-host", help="Its agents may be there.")] = None,
    networks: Annotated[list[str] | None, typer.Option("--egress-network", help="And there.")] = None,
    retention: Annotated[str | None, typer.Option(help="How long its ended tasks are kept.")] = None,
    none: Annotated[bool, typer.Option("--none", help="As the hub has it for every tenant.")] = False,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Say how a tenant is served; what is not named is as the hub has it for every tenant."""
    given: dict[str, Any] = {
        "kinds": kinds,
        "egress_hosts": hosts,
        "egress_networks": networks,
        "retention": retention,
    }
    settings = {name: value for name, value in given.items() if value}
    if bool(settings) is none:
        raise Misuse("name a setting, for example --kind peer, or say --none")
    _commands(store, as_json=as_json).change(tenant, {"settings": settings})


@tenant_app.command("rotate", cls=UsageCommand)
@prints_json
def tenant_rotate(tenant: TenantId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Give a tenant a new key and print it once; the one before opens nothing any more."""
    _commands(store, as_json=as_json).rotate(tenant)


@tenant_app.command("delete", cls=UsageCommand)
@prints_json
def tenant_delete(tenant: TenantId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Disable a tenant for good; its data goes after retention, the audit stays."""
    _commands(store, as_json=as_json).delete(tenant)


@tenant_app.command("audit", cls=UsageCommand)
@prints_json
def tenant_audit(*, limit: Count = 50, store: StoreUrl = None, as_json: bool) -> None:
    """List what operators did with tenants, newest first."""
    _commands(store, as_json=as_json).show_audit(limit)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(tenant_app, name="tenant", rich_help_panel=SERVE)
