"""`trunkline dispatch`, `route …` and `a2a …`: work for the agents of a hub, and who does it and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from trunkline.cli.admin import TASKS_API, Operator
from trunkline.cli.console import escape_controls
from trunkline.cli.hub_tasks import AT_WORK, EVERY_S, AbsenceNotices, inbox_command, note_unlisted, print_task
from trunkline.cli.json_input import read_json
from trunkline.cli.next_command import command_line, print_next
from trunkline.cli.parsing import Commands, Several, StoreUrl, Tenant
from trunkline.errors import Misuse
from trunkline.fleet.routing.a2a_tool import perform_line
from trunkline.log.ids import is_task_id

commands, routes, remote_agents = Commands(), Commands(), Commands()
commands.add_typer(routes, name="route")
commands.add_typer(remote_agents, name="a2a")
DISPATCH, ROUTE = "/api/dispatch", "/api/route"
RemoteName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent on the hub.")]
Skill = Annotated[str, typer.Option("--skill", help="Skill to request.")]
Effect = Annotated[
    str, typer.Option("--effect", help='Prefer agents that declare this effect: "domain:path" or a domain.')
]
Context = Annotated[str, typer.Option("--context-id", help="ID of the conversation.")]


@commands.local("dispatch")
def dispatch(
    message: Annotated[str, typer.Argument(metavar="[MESSAGE]", help="The text of the message.")] = "",
    *,
    data: Annotated[
        str, typer.Option(metavar="JSON|PATH|-", help="Data of the message: JSON, a file or standard input.")
    ] = "",
    skill: Skill = "",
    effect: Effect = "",
    agent: Annotated[Several, typer.Option(help="Agent by name, or `all`; repeatable.")] = None,
    context_id: Context = "",
    correlation_id: Annotated[
        str, typer.Option(help="Idempotency key: a repeated dispatch with the same ID returns the same task.")
    ] = "",
    wait: Annotated[float, typer.Option(min=0, max=3600, help="Maximum time to wait, in seconds.")] = 30.0,
    tenant: Tenant = "",
    operator: Operator,
) -> None:
    """Send a message to one or more agents, by name or by skill, and print its tasks.

    It waits until each task ends or asks something, or for --wait seconds. Exit code 1 if a task failed.
    """
    if not message and not data:
        raise Misuse("there is nothing to dispatch: give a message, --data or both", hint="TEXT")
    form = {
        "message": message, "skill": skill, "targets": agent, "contextId": context_id,
        "correlationId": correlation_id, "metadata": {"effectHint": effect} if effect else None,
    }  # fmt: skip
    given = {name: value for name, value in form.items() if value}
    given |= {"data": read_json(data, "--data")} if data else {}
    tasks: list[dict[str, Any]] = operator.ask("POST", DISPATCH, given, tenant=tenant)["tasks"]
    left, absences = wait, AbsenceNotices()
    while True:
        # Only a task that is read by its ID has its whole result and its question.
        tasks = [operator.ask("GET", f"{TASKS_API}/{one['taskId']}", tenant=tenant) for one in tasks]
        if left <= 0 or not any([one["state"] in AT_WORK for one in tasks]):
            break
        for one in tasks:
            absences.report(one, partial(operator.ask, tenant=tenant))
        time.sleep(min(EVERY_S, left))
        left -= EVERY_S
    operator.print({"tasks": tasks})
    for one in [] if operator.as_json else tasks:
        print_task(one)
        _print_next(one, operator.store or "", tenant)
    if any([one["state"] == "rejected" for one in tasks]):
        note_unlisted(partial(operator.ask, tenant=tenant), agents=agent or (), skill=skill)
    raise typer.Exit(int(any([one["state"] in ("failed", "rejected") for one in tasks])))


def _print_next(task: Mapping[str, Any], store: str, tenant: str) -> None:
    if task["state"] in AT_WORK:
        options = {"--hub": store, "--tenant": tenant}
        print_next(command_line("task watch", task["taskId"], options=options))
    elif task["state"].endswith("-required"):
        print_next(inbox_command(task, store, tenant))


@routes.local("explain")
def explain(
    task_id: Annotated[str, typer.Argument(metavar="[TASK]", help="ID of an existing task.")] = "",
    *,
    skill: Skill = "",
    effect: Effect = "",
    agent: Annotated[str, typer.Option(help="Agent by name.")] = "",
    context_id: Context = "",
    tenant: Tenant = "",
    operator: Operator,
) -> None:
    """Show why an agent was chosen for a task, or which one would be chosen now."""
    query = {"skill": skill, "effect": effect, "agent": agent, "contextId": context_id}
    if bool(task_id) is any(query.values()):
        text = "give either the ID of a task, or one or more of --skill, --effect, --agent and --context-id"
        raise Misuse(text, hint="trunkline route explain --skill SKILL")
    if task_id and not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the ID of a task", hint="trunkline task list")
    path = f"{TASKS_API}/{task_id}/route" if task_id else ROUTE
    found = operator.ask("GET", path, **query, tenant=tenant)
    why = f"{found['refusal']}: {found['reason']}" if found.get("refusal") else found["reason"]
    operator.print(found, why, *map(_candidate, found["candidates"]))


def _candidate(one: dict[str, Any]) -> str:
    parts = "  ".join([f"{name} {value:.4g}" for name, value in one["parts"].items()])
    excluded = one.get("excluded")
    return f"  {one['agent']}  {one['score']:.3f}  {f'not now: {excluded}' if excluded else parts}"


@remote_agents.local("list")
def list_(*, tenant: Tenant = "", store: StoreUrl = None) -> None:
    """List the remote agents of the hub."""
    _perform(store, tenant, "list")


@remote_agents.local("card")
def card(name: RemoteName, *, tenant: Tenant = "", store: StoreUrl = None) -> None:
    """Show the card of a remote agent."""
    _perform(store, tenant, f"card {name}")


@remote_agents.local("call")
def call(
    name: RemoteName,
    message: Annotated[list[str], typer.Argument(metavar="MESSAGE", help="Text of the message.")],
    *,
    tenant: Tenant = "",
    store: StoreUrl = None,
) -> None:
    """Send a message to a remote agent and print its answer."""
    _perform(store, tenant, f"call {name} {' '.join(message)}")


def _perform(url: str | None, tenant: str, line: str) -> None:
    """Perform a line of `/a2a` on the hub of a store and print its result."""
    operator = Operator(url)

    async def asked(method: str, path: str, body: dict[str, Any] | None) -> Any:
        # It has a loop of its own.
        return await asyncio.to_thread(operator.ask, method, f"/api{path}", body, tenant=tenant)

    said = asyncio.run(perform_line(line, asked))
    print(escape_controls(said))
    raise typer.Exit(int(said.partition("\n")[2].startswith("ERR: ")))
