"""`trunkline ceremony …`: what a hub does by schedule, through the hub that has the store."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from trunkline.cli.admin import Operator, checked_id
from trunkline.cli.console import field_lines, one_line
from trunkline.cli.failure import has_secret
from trunkline.cli.next_command import command_line
from trunkline.cli.parsing import Commands, Count, Members, Tenant, read_members
from trunkline.errors import Misuse
from trunkline.fleet.ceremonies.ceremony import CEREMONY_ID

commands = Commands()
CEREMONIES = "/api/ceremonies"
_EXAMPLE = "0 9 * * 1-5"
CeremonyId = Annotated[str, typer.Argument(metavar="ID", help="ID of the schedule.")]
_LABELS = {
    "id": "id", "name": "name", "owner": "owner", "state": "state", "reason": "reason",
    "schedule": "schedule", "timezone": "timezone", "skill": "skill", "targets": "targets",
    "createdBy": "created by", "description": "description", "message": "message", "data": "data",
    "overlap": "overlap", "misfire": "misfire", "jitterMs": "jitter (ms)", "timeoutMs": "timeout (ms)",
    "notifyChannel": "channel", "notifyWebhook": "webhook", "nextFires": "next fires",
}  # fmt: skip
_checked = partial(checked_id, CEREMONY_ID.fullmatch, "ceremony", "ceremony list")


@commands.local("list")
def list_(*, tenant: Tenant = "", limit: Count = 100, operator: Operator) -> None:
    """List the schedules of a tenant with their next run."""
    found = list(islice(operator.each(CEREMONIES, tenant=tenant), limit))
    operator.print(found, *map(_row, found) if found else ("no ceremonies",))


def _row(one: dict[str, Any]) -> str:
    fires = one["nextFires"]
    planned = one.get("reason") or f"{one['schedule']}  {fires[0] if fires else '-'}"
    return f"{one['id']}  {one['state']}  {planned}  {one_line(one['name'])}".rstrip()


@commands.local("show")
def show(ceremony_id: CeremonyId, *, tenant: Tenant = "", operator: Operator) -> None:
    """Show a schedule with its next five runs."""
    every = operator.each(CEREMONIES, tenant=tenant)
    found = next((one for one in every if one["id"] == ceremony_id), None)
    if found is None:
        raise Misuse(f"there is no ceremony {ceremony_id!r}", hint="trunkline ceremony list")
    operator.print(found, *field_lines({name: value for name, value in found.items() if value}, _LABELS))


@commands.local("create")
def create(
    ceremony_id: CeremonyId,
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="Five cron fields in quotes, or one date and time.")
    ],
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="Skill to request.")],
    *,
    name: Annotated[str, typer.Option(help="Name. Default: the ID.")] = "",
    members: Members = None,
    tenant: Tenant = "",
    operator: Operator,
) -> None:
    """Create a schedule that requests a skill."""
    form = {"id": ceremony_id, "name": name or ceremony_id, "schedule": schedule, "skill": skill}
    place = {
        "--tenant": tenant,
        "--store": "" if has_secret([operator.store or ""]) else operator.store or "",
    }
    try:
        made = _post(operator, tenant, "create", {**form, **read_members(members)})
    except Misuse as error:
        if str(error).startswith("schedule: "):
            error.hint = command_line("ceremony create", ceremony_id, _EXAMPLE, skill, options=place)
        elif str(error).startswith("id: "):
            error.hint = command_line("ceremony show", ceremony_id, options=place)
        raise
    operator.print(made, f"created ceremony {made['id']}: {_next(made)}")


@commands.local("update")
def update(
    ceremony_id: CeremonyId, *, members: Members = None, tenant: Tenant = "", operator: Operator
) -> None:
    """Change members of a schedule; others keep their values."""
    changes = read_members(members)
    if not changes:
        raise Misuse("name what is to be changed, for example --set enabled=true")
    _update(operator, tenant, ceremony_id, changes)


@commands.local("pause")
def pause(ceremony_id: CeremonyId, *, tenant: Tenant = "", operator: Operator) -> None:
    """Pause a schedule; `update ID --set enabled=true` resumes it."""
    _update(operator, tenant, ceremony_id, {"enabled": False})


@commands.local("delete")
def delete(ceremony_id: CeremonyId, *, tenant: Tenant = "", operator: Operator) -> None:
    """Delete a ceremony; its open runs continue, and its history stays for a day."""
    deleted = _post(operator, tenant, f"{_checked(ceremony_id)}/delete", {})
    operator.print(deleted, f"deleted {deleted['id']}")


@commands.local("run")
def run(ceremony_id: CeremonyId, *, tenant: Tenant = "", operator: Operator) -> None:
    """Start a run now."""
    started = _post(operator, tenant, f"{_checked(ceremony_id)}/run", {})
    operator.print(started, f"run {started['runId']} has begun: task {started['taskId']}")


@commands.local("history")
def history(ceremony_id: CeremonyId, *, tenant: Tenant = "", limit: Count = 20, operator: Operator) -> None:
    """List the runs of a schedule, newest first, including skipped and missed ones."""
    path = f"{CEREMONIES}/{_checked(ceremony_id)}/runs"
    found = list(islice(operator.each(path, tenant=tenant, skipped="true"), limit))
    operator.print(found, *map(_run_row, found) if found else ("no runs",))


def _run_row(one: dict[str, Any]) -> str:
    begun = one.get("startedAt") or one.get("plannedAt") or one["since"]
    what = one.get("runId") or one.get("reason") or f"{one['count']} times"
    return f"{begun}  {one['status']}  {what}  {one.get('taskId', '')}".rstrip()


def _update(operator: Operator, tenant: str, ceremony_id: str, changes: dict[str, Any]) -> None:
    made = _post(operator, tenant, f"{_checked(ceremony_id)}/update", changes)
    operator.print(made, f"ceremony {made['id']} is {made['state']}: {_next(made)}")


def _post(operator: Operator, tenant: str, path: str, form: dict[str, Any]) -> Any:
    return operator.ask("POST", f"{CEREMONIES}/{path}", form, tenant=tenant)


def _next(one: dict[str, Any]) -> str:
    fires = one["nextFires"]
    return f"next {fires[0]}" if fires else "nothing is planned"
