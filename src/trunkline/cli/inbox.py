"""`trunkline inbox …`: what tasks ask, and answering it, on the store or through its server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import ask, settings_for
from trunkline.cli.console import one_line, print_field
from trunkline.cli.live import watch_page
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.log.ids import is_task_id

INBOX = "/api/inbox"
_PAGE = 200
_FIELDS = {
    "taskId": "task", "question": "question", "agent": "agent", "skill": "skill", "principal": "asked for",
    "text": "text", "choices": "choices", "schema": "schema", "proposal": "proposal", "askedAt": "asked",
    "deadline": "deadline", "closedAt": "closed", "outcome": "outcome", "answeredBy": "answered by",
}  # fmt: skip


def show_all(url: str | None, state: str, tenant: str, limit: int, *, as_json: bool) -> None:
    """Print questions, newest first."""
    found = list(islice(_each(settings_for(url), state, tenant), limit))
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    for one in found:
        print(f"{one['taskId']}  {one['askedAt']}  {one['agent']}  {one_line(one['text'])}")
    if not found:
        print(f"no {state} questions")


def watch(
    url: str | None, tenant: str, limit: int, *, console: Console, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show the open questions, newest first, until it is interrupted."""
    settings = settings_for(url)
    watch_page(lambda: _page(list(islice(_each(settings, "open", tenant), limit))), console, sleep)


def _page(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return Text("no open questions")
    table = Table("task", "asked", "until", "agent", "question", box=box.SIMPLE_HEAD)
    for one in found:
        choices = f" ({', '.join(one['choices'])})" if one.get("choices") else ""
        cells = (
            one["taskId"],
            one["askedAt"],
            one.get("deadline", ""),
            one["agent"],
            one_line(one["text"] + choices),
        )
        table.add_row(*[Text(cell) for cell in cells])
    return Group(table, Text("trunkline inbox answer TASK TEXT answers one"))


def show(url: str | None, task_id: str, tenant: str, *, as_json: bool) -> None:
    """Print all that is known of the open question of a task, else of its last one.

    Raises:
        Misuse: it asks and asked nothing.
    """
    settings = settings_for(url)
    for state in ("open", "closed"):
        for one in _each(settings, state, tenant):
            if one["taskId"] != task_id:
                continue
            if as_json:
                print(msgspec.json.encode(one).decode())
                return
            for name, label in _FIELDS.items():
                value = one.get(name, "")
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                if text:
                    print_field(label, text)
            return
    raise Misuse(f"task {task_id!r} asks nothing; trunkline inbox list shows what is asked")


def answer(url: str | None, task_id: str, tenant: str, form: dict[str, Any], *, as_json: bool) -> None:
    """Answer the question of a task.

    Raises:
        Misuse: it is no task, or the server that has the store refused it.
        Refused: it is not asked now, or the answer does not fit.
    """
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the id of a task; trunkline inbox list shows them")
    said = ask(settings_for(url), "POST", f"{INBOX}/{task_id}", form, query={"tenant": tenant})
    print(
        msgspec.json.encode(said).decode() if as_json else f"task {task_id} has its answer: {said['state']}"
    )


def _each(settings: Settings, state: str, tenant: str) -> Iterator[dict[str, Any]]:
    query = {"state": state, "tenant": tenant, "limit": str(_PAGE), "after": ""}
    while True:
        page = ask(settings, "GET", INBOX, query=query)
        yield from page["items"]
        if page["next"] is None:
            return
        query["after"] = page["next"]
