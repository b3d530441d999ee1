"""`trunkline tenant …`: make, list, disable, limit and delete tenants, on the store or through its hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypedDict, Unpack, cast

import typer

from trunkline.cli.admin import Operator, checked_id
from trunkline.cli.parsing import Commands, Count, Several
from trunkline.errors import Misuse
from trunkline.gateway.mounts import AUDIT, TENANTS

commands = Commands()
_ID = re.compile("[A-Za-z0-9._-]*")
_checked = partial(checked_id, _ID.fullmatch, "tenant", "tenant list")
TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="The id of the tenant.")]
Limit = Annotated[int | None, typer.Option(help="A number above 0.")]
AsTheHub = Annotated[bool, typer.Option("--none", help="As the hub has it for every tenant.")]


@commands.local("create")
def create(
    name: Annotated[str, typer.Argument(help="Its name; its id is made of it.")],
    *,
    operator: Operator,
) -> None:
    """Make a tenant and print a key of it once; only the digest is stored."""
    _print_token(operator, operator.ask("POST", TENANTS, {"name": name}))


@commands.local("list")
def list_(*, operator: Operator) -> None:
    """List the tenants beside the default one."""
    found = list(operator.each(TENANTS))
    operator.print(found, *map(_row, found) if found else ("no tenants but the default one",))


@commands.local("disable")
def disable(tenant: TenantId, *, operator: Operator) -> None:
    """Let a tenant in no longer: its streams end, its work is cancelled, its keys open nothing."""
    _change(operator, tenant, {"disabled": True})


@commands.local("enable")
def enable(tenant: TenantId, *, operator: Operator) -> None:
    """Let a tenant in again, with the keys that it has."""
    _change(operator, tenant, {"disabled": False})


class QuotaFlags(TypedDict, total=False):
    """Options of `trunkline tenant limit`."""

    requests_per_minute: Limit
    concurrent_tasks: Limit
    tokens_per_day: Annotated[int | None, typer.Option(help="Into models and out of them.")]
    cost_per_day: Annotated[float | None, typer.Option(help="In dollars.")]


@commands.local("limit")
def limit(
    tenant: TenantId, *, none: AsTheHub = False, operator: Operator, **quota: Unpack[QuotaFlags]
) -> None:
    """Say how much a tenant may use; what is not named is as the hub has it for every tenant."""
    if bool(quota) is none:
        raise Misuse("name a limit, for example --concurrent-tasks 10, or say --none")
    _change(operator, tenant, {"quota": quota})


class TenantFlags(TypedDict, total=False):
    """Options of `trunkline tenant set`."""

    kinds: Annotated[Several, typer.Option("--kind", help="It may have such agents alone.")]
    egress_hosts: Annotated[Several, typer.Option("--egress-host", help="Its agents may be there.")]
    egress_networks: Annotated[Several, typer.Option("--egress-network", help="And there.")]
    retention: Annotated[str | None, typer.Option(help="How long its ended tasks are kept.")]
    tools: Annotated[
        Several,
        typer.Option("--tool", help="Tool that its workflows and models may use, such as mcp:files/*."),
    ]


@commands.local("set")
def set_(
    tenant: TenantId, *, none: AsTheHub = False, operator: Operator, **settings: Unpack[TenantFlags]
) -> None:
    """Say how a tenant is served; what is not named is as the hub has it for every tenant."""
    if bool(settings) is none:
        raise Misuse("name a setting, for example --kind peer, or say --none")
    _change(operator, tenant, {"settings": settings})


class AlertFlags(TypedDict, total=False):
    """Options of `trunkline tenant alert`."""

    failure_rate_1h: Annotated[float | None, typer.Option("--failure-rate-1h", help="From 0 to 1.")]
    daily_cost_usd: Annotated[float | None, typer.Option(help="In dollars.")]
    orphaned_skills: Annotated[int | None, typer.Option(help="Skills that never succeeded.")]
    cooldown: Annotated[str | None, typer.Option(help="How long the same is not told again.")]


@commands.local("alert")
def alert(
    tenant: TenantId, *, none: AsTheHub = False, operator: Operator, **alerts: Unpack[AlertFlags]
) -> None:
    """Say above which figures of a tenant somebody is told; what is not named is as the hub has it."""
    if bool(alerts) is none:
        raise Misuse("name a limit, for example --daily-cost-usd 10, or say --none")
    _change(operator, tenant, {"alerts": alerts})


@commands.local("rotate")
def rotate(tenant: TenantId, *, operator: Operator) -> None:
    """Give a tenant a new key and print it once; the one before opens nothing any more."""
    _print_token(operator, operator.ask("POST", f"{_path(tenant)}:rotate"))


@commands.local("delete")
def delete(tenant: TenantId, *, operator: Operator) -> None:
    """Disable a tenant for good; its data goes after retention, the audit stays."""
    gone = operator.ask("DELETE", _path(tenant))
    operator.print(gone, f"tenant {gone['id']} is deleted; its data goes with retention")


@commands.local("audit")
def audit(*, limit: Count = 50, operator: Operator) -> None:
    """List what operators did with tenants, newest first."""
    found = list(islice(operator.each(AUDIT), limit))
    rows = [f"{one['at']}  {one['action']:<14}  {one['tenant']}  by {one['by']}" for one in found]
    operator.print(found, *rows)


def _change(operator: Operator, tenant: str, change: Mapping[str, Any]) -> None:
    changed = operator.ask("PATCH", _path(tenant), change)
    operator.print(changed, _row(changed))


def _row(one: Mapping[str, Any]) -> str:
    limits = [f"{name} {value:.15g}" for name, value in one["quota"].items()]
    settings = [f"{name} {_listed(value)}" for name, value in one["settings"].items()]
    alerts = [f"alerts.{name} {value}" for name, value in one["alerts"].items()]
    state = "disabled" if one["disabled"] else "enabled"
    return f"{one['id']}  {state:<8}  {one['createdAt']}  {'  '.join([*limits, *settings, *alerts])}".rstrip()


def _print_token(operator: Operator, made: Mapping[str, Any]) -> None:
    told = f"tenant {made['id']}: a key that may do everything of it\n\n  {made['token']}\n"
    operator.print(made, told, "It is shown this once.")


def _listed(value: object) -> str:
    several = cast("list[object]", value) if isinstance(value, list) else [value]
    return ",".join([str(one) for one in several])


def _path(tenant: str) -> str:
    return f"{TENANTS}/{_checked(tenant)}"
