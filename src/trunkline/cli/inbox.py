"""`trunkline inbox …`: what tasks ask, and answering it, on the store or through its server."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import INBOX, Operator
from trunkline.cli.console import field_lines, one_line, watch_page
from trunkline.cli.json_input import read_json
from trunkline.cli.parsing import Commands, Count, OfTenant, Watch
from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.log.ids import is_task_id

commands = Commands()
AskingTask = Annotated[str, typer.Argument(metavar="TASK", help="ID of the task that asks.")]
_LISTING = "trunkline inbox list"
_LABELS = {
    "taskId": "task", "state": "state", "question": "question", "agent": "agent", "skill": "skill",
    "principal": "asked for", "text": "text", "choices": "choices", "schema": "schema",
    "proposal": "proposal", "askedAt": "asked", "deadline": "deadline", "closedAt": "closed",
    "outcome": "outcome", "answeredBy": "answered by",
}  # fmt: skip


@commands.local("list")
def list_(
    *,
    closed: Annotated[
        bool, typer.Option("--closed", help="Show closed questions instead of open ones.")
    ] = False,
    tenant: OfTenant = "",
    limit: Count = 100,
    watch: Watch = False,
    operator: Operator,
) -> None:
    """List the open questions of a tenant's tasks, newest first."""
    if watch and (operator.as_json or closed):
        raise Misuse("--watch shows a table of open questions; leave out JSON and --closed")
    state = "closed" if closed else "open"

    def look() -> list[dict[str, Any]]:
        return list(islice(operator.each(INBOX, state=state, tenant=tenant), limit))

    if watch:
        watch_page(lambda: _page(look()))
        return
    found = look()
    rows = ["  ".join([one["taskId"], one["askedAt"], one["agent"], *_end(one), _line(one)]) for one in found]
    operator.print(found, *rows or [f"no {state} questions"])


def _line(one: dict[str, Any], *, more: bool = False) -> str:
    """What is asked, on one line; a login is said to be one."""
    login = "login: " if one.get("state") == "auth-required" else ""
    choices = f" ({', '.join(one['choices'])})" if more and one.get("choices") else ""
    return one_line(login + one["text"] + choices)


def _end(one: dict[str, Any]) -> list[str]:
    """What became of a question that is closed, and by whom."""
    by = one.get("answeredBy")
    return [f"{one['outcome']} by {by}" if by else one["outcome"]] if "outcome" in one else []


def _page(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return Text("no open questions")
    table = Table(box=box.SIMPLE_HEAD)
    # Whole on any terminal: it is what an answer is addressed to.
    table.add_column("task", no_wrap=True, min_width=36)
    for name in ("asked", "left", "agent", "question"):
        table.add_column(name)
    for one in found:
        asked, left = f"{_span(-_ms_to(one['askedAt']))} ago", _span(_ms_to(one.get("deadline", "")))
        table.add_row(*map(Text, (one["taskId"], asked, left, one["agent"], _line(one, more=True))))
    return Group(table, Text("trunkline inbox answer TASK TEXT answers one"))


def _ms_to(moment: str) -> int:
    """The time to a moment of the API; nothing to none."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000) - now_ms() if moment else 0


def _span(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s" if ms else ""


@commands.local("show")
def show(task_id: AskingTask, *, tenant: OfTenant = "", operator: Operator) -> None:
    """Show the question of a task."""
    # The one that is open, else the last that was.
    for state in ("open", "closed"):
        for one in operator.each(INBOX, state=state, tenant=tenant):
            if one["taskId"] == task_id:
                # The state is the one that the task had while it asked; a closed question has an outcome.
                shown = {**one, "state": ""} if "outcome" in one else one
                operator.print(one, *field_lines(shown, _LABELS))
                return
    raise Misuse(f"task {task_id!r} has no open question", hint=_LISTING)


@commands.local("answer")
def answer(
    task_id: AskingTask,
    text: Annotated[str, typer.Argument(help="Answer; with --reject, the reason.")] = "",
    *,
    data: Annotated[str, typer.Option(help="Answer as JSON.")] = "",
    accept: Annotated[bool, typer.Option("--accept", help="Answer with the proposal of the task.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Reject the question.")] = False,
    question: Annotated[
        str, typer.Option(metavar="ID", help="ID of the question; answer only if it is still open.")
    ] = "",
    tenant: OfTenant = "",
    operator: Operator,
) -> None:
    """Answer the question of a task with a text, with data or with its proposal, or reject it."""
    if sum((accept, reject, bool(data), bool(text) and not reject)) != 1:
        raise Misuse("give one of TEXT, --data, --accept and --reject", hint="--accept")
    form: dict[str, object] = {"decision": "respond", "text": text}
    if accept:
        form = {"decision": "accept"}
    elif reject:
        form = {"decision": "reject", "text": text}
    elif data:
        form = {"decision": "edit", "data": read_json(data, "--data")}
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the ID of a task", hint=_LISTING)
    form["question"] = question
    said = operator.ask("POST", f"{INBOX}/{task_id}", form, tenant=tenant)
    operator.print(said, f"task {task_id} has its answer: {said['state']}")
