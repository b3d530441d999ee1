"""`trunkline deliveries …`: what became of notifications, and posting one of them again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import ask, settings_for
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.server.admin import PREFIX
from trunkline.store.records import DeliveryRecord
from trunkline.wire.spellings import timestamp

DELIVERIES = PREFIX + "deliveries"
_PAGE = 1000
# Wider than any row: where a terminal is narrower its lines wrap, and nothing is left out.
_WIDE = 250
_COLOURS = {"pending": "yellow", "done": "green", "dead": "red", "dropped": "dim"}


class DeliveryFilter(msgspec.Struct, frozen=True):
    """Which deliveries are meant; what is empty does not narrow."""

    task: str = ""
    state: str = ""
    tenant: str = ""


def show_all(url: str | None, chosen: DeliveryFilter, limit: int, *, as_json: bool) -> None:
    """Print the newest deliveries."""
    found = list(islice(_each(settings_for(url), chosen, min(limit, _PAGE)), limit))
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    table = Table(
        "id", "state", "tries", "last answer", "last try", "next try", "target", box=box.SIMPLE_HEAD
    )
    table.columns[0].no_wrap = True
    for one in found:
        state = Text(one.state, _COLOURS.get(one.state, ""))
        # As texts: what others have chosen must not be read as markup.
        cells = (one.note, _time(one.at), _time(one.due), one.host)
        table.add_row(Text(one.id), state, str(one.attempts), *[Text(cell) for cell in cells])
    Console(highlight=False, width=_WIDE).print(table if found else "no such deliveries")


def show(url: str | None, delivery_id: str, *, as_json: bool) -> None:
    """Print all that is known of one delivery.

    Raises:
        Misuse: there is none of this id.
    """
    task_id = _checked(delivery_id).partition("_")[0]
    every = _each(settings_for(url), DeliveryFilter(task=task_id), _PAGE)
    found = next((one for one in every if one.id == delivery_id), None)
    if found is None:
        raise Misuse(f"there is no delivery {delivery_id}; trunkline deliveries list shows them")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    lines = {
        "id": found.id,
        "tenant": found.tenant,
        "task": found.task_id,
        "event": str(found.seq),
        "config": found.target,
        "target": found.host,
        "state": found.state,
        "tries": str(found.attempts),
        "last answer": found.note,
        "last try": _time(found.at),
        "next try": _time(found.due),
    }
    for name, text in lines.items():
        # A config's id is its caller's, who may have put anything printable into it.
        print(f"{name:<12} {text}".rstrip())


def replay(url: str | None, delivery_id: str) -> None:
    """Post one again that has ended, under its id."""
    ask(settings_for(url), "POST", f"{DELIVERIES}/{_checked(delivery_id)}:replay")
    print(f"delivery {delivery_id} is due again")


def replay_dead(url: str | None, chosen: DeliveryFilter) -> None:
    """Post all again that were given up."""
    query = {"task": chosen.task, "tenant": chosen.tenant}
    answer = ask(settings_for(url), "POST", f"{DELIVERIES}:replay", query=query)
    print(f"{answer['replayed']} deliveries are due again")


def _each(settings: Settings, chosen: DeliveryFilter, page: int) -> Iterator[DeliveryRecord]:
    query = {**msgspec.structs.asdict(chosen), "limit": str(page), "after": ""}
    while True:
        answer = ask(settings, "GET", DELIVERIES, query=query)
        found = msgspec.convert(answer["deliveries"], list[DeliveryRecord])
        yield from found
        if len(found) < page:
            return
        query["after"] = found[-1].id


def _checked(delivery_id: str) -> str:
    if not delivery_id.isascii() or not delivery_id.replace("_", "").replace("-", "").isalnum():
        raise Misuse(f"{delivery_id!r} is not the id of a delivery; trunkline deliveries list shows them")
    return delivery_id


def _time(moment: int | None) -> str:
    return timestamp(moment) if moment else ""
