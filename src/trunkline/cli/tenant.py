"""`trunkline tenant …`: make, list, disable, limit and delete tenants, on the store or through its hub."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypedDict, Unpack, cast

import typer

from trunkline.cli.admin import KEYS, Operator, checked_id
from trunkline.cli.console import print_notice
from trunkline.cli.next_command import command_line, print_next
from trunkline.cli.parsing import Commands, Count, Several
from trunkline.errors import Misuse
from trunkline.gateway.mounts import AUDIT, TENANTS

commands = Commands()
_ID = re.compile("[A-Za-z0-9._-]*")
_checked = partial(checked_id, _ID.fullmatch, "tenant", "tenant list")
TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="ID of the tenant.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number; above 0.")]
AllDefaults = Annotated[
    bool, typer.Option("--none", help="Remove every value of the tenant; the defaults of the hub apply.")
]
Cleared = Annotated[
    Several,
    typer.Option("--clear", metavar="NAME", help="Remove this value of the tenant; repeatable."),
]


@commands.local("create")
def create(
    name: Annotated[str, typer.Argument(help="Name; the ID is derived from it.")],
    *,
    operator: Operator,
) -> None:
    """Create a tenant and print its key once; only the digest is stored."""
    is_first = not operator.ask("GET", KEYS)["keys"]
    _print_token(operator, operator.ask("POST", TENANTS, {"name": name}))
    if is_first:
        print_notice("Warning", "every caller of the hub needs a key from now on, also in the tenant default")
        command = command_line("keys create", options={"--owner": "me", "--store": operator.store or ""})
        print_next(command, on_stderr=True)


@commands.local("list")
def list_(*, operator: Operator) -> None:
    """List the tenants other than the default one."""
    found = list(operator.each(TENANTS))
    operator.print(found, *map(_row, found) if found else ("no tenants but the default one",))


@commands.local("disable")
def disable(tenant: TenantId, *, operator: Operator) -> None:
    """Disable a tenant: reject its requests, close its streams and cancel its tasks."""
    _change(operator, tenant, {"disabled": True})


@commands.local("enable")
def enable(tenant: TenantId, *, operator: Operator) -> None:
    """Enable a tenant again, with its existing keys."""
    _change(operator, tenant, {"disabled": False})


class QuotaFlags(TypedDict, total=False):
    """Options of `trunkline tenant limit`."""

    requests_per_minute: Limit
    concurrent_tasks: Limit
    tokens_per_day: Annotated[int | None, typer.Option(help="Input and output tokens of models.")]
    cost_per_day: Annotated[float | None, typer.Option(help="Amount in US dollars.")]


@commands.local("limit")
def limit(
    tenant: TenantId,
    *,
    clear: Cleared = None,
    none: AllDefaults = False,
    operator: Operator,
    **quota: Unpack[QuotaFlags],
) -> None:
    """Limit what a tenant may use; limits that you do not name stay."""
    if none is bool(quota or clear):
        raise Misuse("name a limit, for example --concurrent-tasks 10, or give --clear NAME or --none")
    names = tuple(QuotaFlags.__annotations__)
    _update(operator, tenant, "quota", quota, names if none else _names_of(clear or (), names))


class TenantFlags(TypedDict, total=False):
    """Options of `trunkline tenant set`."""

    kinds: Annotated[
        Several, typer.Option("--kind", help="Kind of agents that the tenant may have; repeatable.")
    ]
    egress_hosts: Annotated[
        Several, typer.Option("--egress-host", help="Host that agents of the tenant may use; repeatable.")
    ]
    egress_networks: Annotated[
        Several,
        typer.Option("--egress-network", help="Network that agents of the tenant may use; repeatable."),
    ]
    retention: Annotated[str | None, typer.Option(help="Retention of ended tasks.")]
    tools: Annotated[
        Several,
        typer.Option("--tool", help="Tool that its workflows and models may use, such as mcp:files/*."),
    ]


@commands.local("set")
def set_(
    tenant: TenantId,
    *,
    clear: Cleared = None,
    none: AllDefaults = False,
    operator: Operator,
    **settings: Unpack[TenantFlags],
) -> None:
    """Change how a tenant is served; settings that you do not name stay."""
    if none is bool(settings or clear):
        raise Misuse("name a setting, for example --kind peer, or give --clear NAME or --none")
    names = tuple(TenantFlags.__annotations__)
    _update(operator, tenant, "settings", settings, names if none else _names_of(clear or (), names))


class AlertFlags(TypedDict, total=False):
    """Options of `trunkline tenant alert`."""

    failure_rate_1h: Annotated[
        float | None, typer.Option("--failure-rate-1h", help="Failure rate of the last hour, from 0 to 1.")
    ]
    daily_cost_usd: Annotated[float | None, typer.Option(help="Amount in US dollars.")]
    orphaned_skills: Annotated[int | None, typer.Option(help="Number of skills that never succeeded.")]
    cooldown: Annotated[str | None, typer.Option(help="Minimum time between equal alerts.")]


@commands.local("alert")
def alert(
    tenant: TenantId,
    *,
    clear: Cleared = None,
    none: AllDefaults = False,
    operator: Operator,
    **alerts: Unpack[AlertFlags],
) -> None:
    """Set the limits above which receivers are notified; limits that you do not name stay."""
    if none is bool(alerts or clear):
        raise Misuse("name a limit, for example --daily-cost-usd 10, or give --clear NAME or --none")
    names = tuple(AlertFlags.__annotations__)
    _update(operator, tenant, "alerts", alerts, names if none else _names_of(clear or (), names))


@commands.local("rotate")
def rotate(tenant: TenantId, *, operator: Operator) -> None:
    """Replace the key of a tenant and print it once; the previous key is revoked."""
    _print_token(operator, operator.ask("POST", f"{_path(tenant)}:rotate"))


@commands.local("delete")
def delete(tenant: TenantId, *, operator: Operator) -> None:
    """Delete a tenant; its data is deleted after the retention, the audit log stays."""
    gone = operator.ask("DELETE", _path(tenant))
    operator.print(gone, f"tenant {gone['id']} is deleted; its data goes with retention")


@commands.local("audit")
def audit(*, limit: Count = 50, operator: Operator) -> None:
    """List the audit log of tenants, newest first."""
    found = list(islice(operator.each(AUDIT), limit))
    rows = [f"{one['at']}  {one['action']:<14}  {one['tenant']}  by {one['by']}" for one in found]
    operator.print(found, *rows)


def _names_of(cleared: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the names to clear, each given by its name or by that of its option.

    Raises:
        Misuse: a name is unknown.
    """
    # --kind and --tool set lists, which the API names in the plural.
    known = {one: name for name in names for one in (name, name.removesuffix("s"))}
    spelled = [one.removeprefix("--").replace("-", "_") for one in cleared]
    for one in spelled:
        if one not in known:
            raise Misuse(f"--clear {one}: unknown name; give one of {', '.join(names)}")
    return [known[one] for one in spelled]


def _update(
    operator: Operator, tenant: str, member: str, values: Mapping[str, Any], removed: Collection[str]
) -> None:
    """Change some values of a tenant: the API replaces all of a member, so the others are sent again."""
    matching = [one for one in operator.each(TENANTS) if one["id"] == tenant]
    found: dict[str, Any] = matching[0][member] if matching else {}
    kept = {name: value for name, value in found.items() if name not in removed}
    _change(operator, tenant, {member: {**kept, **values}})


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
