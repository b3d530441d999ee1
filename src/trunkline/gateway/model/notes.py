"""What agents keep between tasks: notes that can be searched, and lists of what is to be done.

Each agent of a tenant has one document of each kind; whoever comes second in a change reads it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.fleet.catalogue.model_entry import ModelMemory
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.parts import Docs

TEXT_LIMIT = 8192
_BYTES_LIMIT = 1 << 20
# For all agents of a tenant together, also those that are gone.
TENANT_BYTES = 64 << 20
_TRIES = 20
_WORD = re.compile(r"\w+")
_DAY_MS = 86_400_000
_SHOWN = 20


class Note(Struct, frozen=True, omit_defaults=True):
    """A note, or something to be done; `id` is of the call that made it, so that it is made once."""

    id: str
    text: str
    at: int
    done: bool = False


Notes = DocumentKind[tuple[Note, ...]]
NOTES: Notes = DocumentKind("model.notes", json_decoder(tuple[Note, ...]))
TODOS: Notes = DocumentKind("model.todos", json_decoder(tuple[Note, ...]))
_LIMITS = {NOTES.name: 1000, TODOS.name: 200}


class NoteBook:
    """The notes of one kind, by tenant and agent. Damaged notes are neither shown nor replaced."""

    def __init__(self, docs: Docs, kind: Notes) -> None:
        self._docs = docs
        self._kind = kind

    async def read(self, tenant: str, agent: str) -> tuple[Note, ...]:
        """Return all notes of an agent, the oldest first.

        Raises:
            Misuse: they are damaged.
        """
        return (await self._read(tenant, agent))[0]

    async def add(self, tenant: str, agent: str, note: Note) -> None:
        """Keep a note, unless it was kept before.

        Raises:
            Misuse: it is too long, or there are too many.
        """
        if not note.text.strip() or len(note.text.encode()) > TEXT_LIMIT:
            raise Misuse(f"give a text of at most {TEXT_LIMIT} bytes")

        def added(known: tuple[Note, ...]) -> tuple[Note, ...]:
            return known if any(one.id == note.id for one in known) else (*known, note)

        await self._change(tenant, agent, added)

    async def finish(self, tenant: str, agent: str, note_id: str) -> None:
        """Mark something as done.

        Raises:
            Misuse: there is none of this id.
        """

        def finished(known: tuple[Note, ...]) -> tuple[Note, ...]:
            _check(known, note_id)
            return tuple(replace(one, done=True) if one.id == note_id else one for one in known)

        await self._change(tenant, agent, finished)

    async def delete(self, tenant: str, agent: str, note_id: str) -> None:
        """Forget a note; one that is gone already is no fault."""
        await self._change(tenant, agent, lambda known: tuple(one for one in known if one.id != note_id))

    async def _is_full(self, tenant: str, size: int) -> bool:
        # What this agent has is counted twice, and another may write at once: a bound, not a count.
        return await self._docs.size(tenant, self._kind.name) + size > TENANT_BYTES

    async def _read(self, tenant: str, agent: str) -> tuple[tuple[Note, ...], int]:
        doc = await self._docs.get(tenant, self._kind.name, agent)
        if doc is None:
            return (), 0
        try:
            return self._kind.read(doc.id, doc.body), doc.rev
        except StoreError as error:
            raise Misuse(str(error)) from None

    async def _change(
        self, tenant: str, agent: str, change: Callable[[tuple[Note, ...]], tuple[Note, ...]]
    ) -> None:
        for _ in range(_TRIES):
            known, rev = await self._read(tenant, agent)
            changed = change(known)
            if changed == known:
                return
            body = msgspec.json.encode(changed)
            is_large = len(body) > _BYTES_LIMIT and len(changed) > len(known)
            if len(changed) > _LIMITS[self._kind.name] or is_large:
                raise Misuse("there are too many; delete one first")
            if len(changed) > len(known) and await self._is_full(tenant, len(body)):
                raise Misuse(
                    f"the agents of a tenant keep at most {TENANT_BYTES >> 20} MiB; delete some first"
                )
            try:
                await self._docs.put(tenant, self._kind.name, agent, body, rev)
                return
            except Conflict:
                continue
        raise Misuse("it is being changed all the time; try again")


def search(notes: Sequence[Note], query: str, memory: ModelMemory, now_ms: int) -> list[Note]:
    """The notes that have most words of a query, newer ones before old ones as far as these grow old."""
    wanted = {word.lower() for word in _WORD.findall(query)}

    def score(note: Note) -> float:
        words = {word.lower() for word in _WORD.findall(note.text)}
        share = len(wanted & words) / max(len(wanted), 1)
        if not memory.age_decay:
            return share
        age = max(now_ms - note.at, 0) / _DAY_MS / memory.age_half_life_days
        return share * max(0.5**age, memory.age_floor)

    scored = [(score(one), one.at, one) for one in notes]
    found = sorted([one for one in scored if one[0] > 0], key=lambda one: (-one[0], -one[1]))
    return [one for _, _, one in found[:_SHOWN]]


def listed(notes: Sequence[Note]) -> str:
    """Notes as a model reads them, a line each."""
    rows = [f"{one.id}: {'(done) ' if one.done else ''}{one.text}" for one in notes]
    return "\n".join(rows) or "There are none."


def _check(known: Sequence[Note], note_id: str) -> None:
    if not any(one.id == note_id for one in known):
        raise Misuse(f"there is none with the id {note_id[:80]!r}")
