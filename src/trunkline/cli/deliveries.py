"""`trunkline deliveries …`: what became of notifications, and posting one of them again."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import Operator, checked_id
from trunkline.cli.console import print_json
from trunkline.cli.parsing import Commands, Count, ListedId, OfTenant, StoreUrl
from trunkline.errors import Misuse
from trunkline.server.admin import PREFIX
from trunkline.store.records import DeliveryRecord
from trunkline.wire.spellings import timestamp

commands = Commands()
_ID = re.compile("[_-]*[A-Za-z0-9][A-Za-z0-9_-]*")
_checked = partial(checked_id, _ID.fullmatch, "delivery", "deliveries list")
OfTask = Annotated[str, typer.Option("--task", metavar="ID", help="Show only deliveries of this task.")]
DELIVERIES = PREFIX + "deliveries"
# Wider than any row: where a terminal is narrower its lines wrap, and nothing is left out.
_WIDE = 250
_LABELS = {
    "id": "id", "tenant": "tenant", "task_id": "task", "seq": "event", "target": "config", "host": "target",
    "state": "state", "attempts": "tries", "note": "last answer", "at": "last try", "due": "next try",
}  # fmt: skip
_COLOURS = {"pending": "yellow", "done": "green", "dead": "red", "dropped": "dim"}


@commands.local("list")
def list_(
    *,
    task: OfTask = "",
    state: Annotated[str, typer.Option(help="State: pending, done, dead or dropped.")] = "",
    tenant: OfTenant = "",
    limit: Count = 100,
    operator: Operator,
) -> None:
    """List webhook deliveries, those of the newest tasks first."""
    every = operator.rows(DELIVERIES, DeliveryRecord, limit, task=task, state=state, tenant=tenant)
    found = list(islice(every, limit))
    if operator.as_json:
        print_json(found, compact=True)
        return
    table = Table(
        "id", "state", "tries", "last answer", "last try", "next try", "target", box=box.SIMPLE_HEAD
    )
    table.columns[0].no_wrap = True
    for one in found:
        coloured = Text(one.state, _COLOURS.get(one.state, ""))
        # As texts: what others have chosen must not be read as markup.
        cells = (one.note, _time(one.at), _time(one.due), one.host)
        table.add_row(Text(one.id), coloured, str(one.attempts), *[Text(cell) for cell in cells])
    Console(highlight=False, width=_WIDE).print(table if found else "no such deliveries")


@commands.local("show")
def show(delivery_id: ListedId, *, operator: Operator) -> None:
    """Show one delivery with its attempts."""
    every = operator.rows(DELIVERIES, DeliveryRecord, task=_checked(delivery_id).partition("_")[0])
    found = next((one for one in every if one.id == delivery_id), None)
    if found is None:
        raise Misuse(f"there is no delivery {delivery_id!r}", hint="trunkline deliveries list")
    times = {"at": _time(found.at), "due": _time(found.due)}
    # A config's id is its caller's, who may have put anything printable into it.
    known = [(label, times.get(name, getattr(found, name))) for name, label in _LABELS.items()]
    operator.print(found, *[f"{label:<12} {text}".rstrip() for label, text in known])


@commands.local("replay")
def replay(
    delivery_id: ListedId = "",
    *,
    dead: Annotated[bool, typer.Option("--dead", help="Repeat all dead deliveries.")] = False,
    task: OfTask = "",
    tenant: OfTenant = "",
    store: StoreUrl = None,
) -> None:
    """Repeat a delivery that has ended, or all dead ones, under the same IDs."""
    if bool(delivery_id) is dead:
        raise Misuse("name one delivery, or say --dead")
    if dead:
        answer = Operator(store).ask("POST", f"{DELIVERIES}:replay", task=task, tenant=tenant)
        print(f"{answer['replayed']} deliveries are due again")
    else:
        Operator(store).ask("POST", f"{DELIVERIES}/{_checked(delivery_id)}:replay")
        print(f"delivery {delivery_id} is due again")


def _time(moment: int | None) -> str:
    return timestamp(moment) if moment else ""
