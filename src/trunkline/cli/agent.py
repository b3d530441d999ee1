"""`trunkline agent …`: the agents of a hub's catalogue, through the hub that has the store."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote

import typer

from trunkline.cli.admin import AGENTS, Operator
from trunkline.cli.console import field_lines, one_line
from trunkline.cli.parsing import Commands, Count, Members, Several, Tenant, read_members
from trunkline.config import secret_text

commands = Commands()
AgentName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent on the hub.")]
_LABELS = {
    "name": "name", "state": "state", "reason": "reason", "kind": "kind", "owner": "owner", "url": "url",
    "description": "description", "tags": "tags", "skills": "skills", "versions": "versions",
    "version": "version", "streaming": "streaming", "push": "push", "cardAt": "card read",
    "breaker": "breaker",
}  # fmt: skip


@commands.local("list")
def list_(*, tenant: Tenant = "", limit: Count = 100, operator: Operator) -> None:
    """List agents with their state, kind, owner and address."""
    found = list(islice(operator.each(AGENTS, tenant=tenant), limit))
    operator.print(found, *map(_row, found) if found else ("no agents",))


@commands.local("show")
def show(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Show one agent with its skills, versions and breaker."""
    found = operator.ask("GET", _path(name), tenant=tenant)
    skills = [skill["id"] for skill in found["skills"]]
    operator.print(found, *field_lines({**found, "skills": skills}, _LABELS))


@commands.local("add")
def add(
    name: AgentName,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the agent.")],
    *,
    skill: Annotated[Several, typer.Option(help="Skill that the card does not list; repeatable.")] = None,
    api_key: Annotated[str, typer.Option(metavar="KEY", help="API key to call it with, or env:NAME.")] = "",
    bearer: Annotated[
        str, typer.Option(metavar="TOKEN", help="Bearer token to call it with, or env:NAME.")
    ] = "",
    members: Members = None,
    tenant: Tenant = "",
    operator: Operator,
) -> None:
    """Register a remote agent, as an entry of agents.yaml would."""
    form: dict[str, Any] = {"name": name, "url": url, **read_members(members)}
    if skill:
        form["skills"] = skill
    if credentials := api_key or bearer:
        scheme = "apiKey" if api_key else "bearer"
        form["auth"] = {"scheme": scheme, "credentials": secret_text(credentials)}
    operator.ask("POST", AGENTS, form, tenant=tenant)
    # The first request reads the card, so that the state which is printed is known.
    added = operator.ask("POST", _path(name, "refresh"), {}, tenant=tenant)
    operator.print(added, _row(added))


@commands.local("remove")
def remove(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Remove an agent that was registered; its open tasks are followed to their end."""
    removed = operator.ask("DELETE", _path(name), tenant=tenant)
    operator.print(removed, f"removed {removed['name']}")


@commands.local("refresh")
def refresh(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Read the card of an agent now."""
    _change(operator, tenant, name, "refresh")


@commands.local("enable")
def enable(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Accept new tasks for an agent again."""
    _change(operator, tenant, name, "enable")


@commands.local("disable")
def disable(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Stop new tasks for an agent."""
    _change(operator, tenant, name, "disable")


@commands.local("drain")
def drain(name: AgentName, *, tenant: Tenant = "", operator: Operator) -> None:
    """Stop new tasks for an agent, and let its open tasks complete."""
    _change(operator, tenant, name, "drain")


def _change(operator: Operator, tenant: str, name: str, action: str) -> None:
    changed = operator.ask("POST", _path(name, action), {}, tenant=tenant)
    operator.print(changed, _row(changed))


def _path(name: str, action: str = "") -> str:
    path = f"{AGENTS}/{quote(name, safe='')}"
    return f"{path}/{action}" if action else path


def _row(one: dict[str, Any]) -> str:
    detail = one.get("reason") or one.get("url", "")
    return f"{one['name']}  {one['state']}  {one['kind']}  {one['owner']}  {one_line(detail)}".rstrip()
