"""What happened to each entry of the catalogue, kept in its journal: its text, card, state and breaker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from trunkline.errors import StoreError
from trunkline.fleet.catalogue.catalogue import OF_FILES, Catalogue, Key
from trunkline.fleet.catalogue.entry import EVERY_TENANT, Entry
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.journal import Journal, JournalRow, Journals, read_state
from trunkline.net.egress import shown

log = logging.getLogger("trunkline.fleet")
# How many wait to be written down before a pause is made behind each, and how long that is.
MANY, PAUSE_S = 200, 0.005
_LONGEST = 200


class CatalogueHistory:
    """Writes down every change of a catalogue, once for all replicas; `run` is owned by who serves it."""

    def __init__(self, catalogue: Catalogue, journals: Journals, now_ms: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._journals = journals
        self._now = now_ms
        # Which entries have changed since they were written down; None is one that is gone.
        self._waiting: dict[Key, Entry | None] = {}
        self._woken = asyncio.Event()
        catalogue.changed.append(self._note)
        for key, entry in catalogue.entries().items():
            self._note(key, None, entry)

    def _note(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        self._waiting[key] = after or before
        self._woken.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self.write()

    async def write(self) -> None:
        """Write down what has changed."""
        while self._waiting:
            if len(self._waiting) > MANY:
                # Requests come first: at a start each of thousands is looked at, and seldom has one changed.
                await asyncio.sleep(PAUSE_S)
            key = next(iter(self._waiting))
            entry = self._waiting.pop(key)
            if entry is None:
                continue
            try:
                row = await self._written(key, home(key, entry))
            except StoreError as error:
                log.warning("catalogue.history_lost agent=%s error=%s", key[1], error)
                continue
            if row is not None:
                members = ",".join(sorted(row.about)) if row.kind == "changed" else "-"
                log.info(f"catalogue.{row.kind} agent=%s members=%s", key[1], members)

    async def _written(self, key: Key, tenant: str) -> JournalRow | None:
        """Write down what is other of one entry; gives the row of it."""
        listed = self._catalogue.find(tenant, key[1]) if self._catalogue.entry(key) else None
        rows: Sequence[JournalRow] = ()

        def revise(journal: Journal) -> Journal | None:
            nonlocal rows
            made = revised(journal, listed, self._now())
            rows = () if made is None else made.rows[-1:]
            return made

        await self._journals.change(tenant, f"agent:{key[1]}", revise)
        return rows[0] if rows else None

    async def rows(self, tenant: str, entry: Entry) -> Sequence[JournalRow]:
        """The rows of an entry's journal, the oldest first."""
        key = (OF_FILES if entry.owner == "file" else tenant), entry.name
        return (await self._journals.read(home(key, entry), f"agent:{entry.name}")).rows


def home(key: Key, entry: Entry) -> str:
    """The tenant whose store keeps the journal of an entry."""
    first = entry.tenants[0]
    return key[0] or ("default" if first == EVERY_TENANT else first)


def revised(journal: Journal, listed: Listed | None, now: int) -> Journal | None:
    """A journal with a row of what is other than when it was last written; None where nothing is."""
    before = read_state(journal, dict[str, Any], {})
    after = {} if listed is None else snapshot(listed)
    if listed is not None and listed.state == "discovering" and before:
        # Each start of a process begins so; what matters is what is found.
        return None
    changed = {name: [before.get(name), after.get(name)] for name in {**before, **after}}
    changed = {name: pair for name, pair in changed.items() if pair[0] != pair[1]}
    if not changed:
        return None
    kind = "changed" if before and after else "added" if after else "removed"
    about = {name: pair if kind == "changed" else pair[kind == "added"] for name, pair in changed.items()}
    row = JournalRow(now, kind, about)
    return replace(journal.with_rows([row]), state=Raw(msgspec.json.encode(after or None)))


def snapshot(listed: Listed) -> dict[str, Any]:
    """What is compared of an agent, and shown of its changes; no header and no credential."""
    entry = listed.entry
    return {
        "revision": entry.revision,
        "state": listed.state,
        "reason": listed.full_reason[:_LONGEST],
        "url": "" if entry.peer is None else shown(entry.peer.url),
        "skills": [one.id for one in listed.skills[:_LONGEST]],
        "streaming": listed.streaming,
        "push": listed.push,
        "versions": [*listed.versions],
        "breaker": listed.breaker,
    }
