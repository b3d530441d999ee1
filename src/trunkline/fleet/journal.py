"""Journals: the bounded log of what has no task, such as a ceremony or an entry of the catalogue.

A journal is one document of its subject. It holds the newest rows, and the little that its subject must know
to go on: both are changed together, by compare-and-set, so that replicas never disagree on either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from trunkline.errors import Conflict, StoreError
from trunkline.log.encoding import DECODE_ERRORS
from trunkline.store.documents import DocumentKind, log_damaged
from trunkline.store.parts import Docs

KIND = "journal"
ROWS = 200
ROWS_BYTES = 64 << 10
# How often somebody else may be faster before a change is given up.
_ATTEMPTS = 50
_PAUSE_S = 0.01
_PAGE = 100
# Sorts behind every subject.
_LAST = "\U0010ffff"


class JournalRow(Struct, frozen=True, omit_defaults=True):
    """One thing that happened: when (in milliseconds), what kind of thing, and its particulars."""

    at: int
    kind: str
    about: dict[str, Any] = {}


class Journal(Struct, frozen=True, omit_defaults=True):
    """The rows of a subject, oldest first, and its own state in the form that the subject gives it."""

    rows: tuple[JournalRow, ...] = ()
    state: Raw = Raw(b"null")

    def with_rows(self, rows: Sequence[JournalRow]) -> Journal:
        """This journal with rows added; the oldest go where it would hold too many."""
        kept: list[JournalRow] = []
        size = 0
        for row in reversed((*self.rows, *rows)):
            size += len(_encoder.encode(row))
            if len(kept) == ROWS or size > ROWS_BYTES:
                break
            kept.append(row)
        return replace(self, rows=tuple(reversed(kept)))


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Journal)
JOURNALS: DocumentKind[Journal] = DocumentKind(KIND, lambda _, body: _decoder.decode(body))
Revise = Callable[[Journal], Journal | None]
State = TypeVar("State")


def read_state(journal: Journal, of: type[State], otherwise: State) -> State:
    """Return the state in a journal, or `otherwise` if it has none or one that cannot be decoded."""
    try:
        known = msgspec.json.decode(journal.state, type=of | None)
    except DECODE_ERRORS:
        return otherwise
    return otherwise if known is None else known


class Journals:
    """The journals of a store, by tenant and subject: `ceremony:standup`, `agent:writer`.

    A damaged journal counts as empty, and the next row replaces it.
    """

    def __init__(self, docs: Docs, state: Any = Any) -> None:
        """Read the journals of a store.

        Args:
            docs: the documents of the store.
            state: the type of the states; one that cannot be decoded is logged.
        """
        self._docs = docs
        self._state = state

    async def read(self, tenant: str, subject: str) -> Journal:
        """The journal of a subject; an empty one if nothing has happened.

        Raises:
            StoreError: the store does not answer.
        """
        return (await self._read(tenant, subject))[0]

    async def add(self, tenant: str, subject: str, *rows: JournalRow) -> None:
        """Write down what happened.

        Raises:
            StoreError: it was not written.
        """
        await self.change(tenant, subject, lambda journal: journal.with_rows(rows))

    async def change(self, tenant: str, subject: str, revise: Revise) -> Journal:
        """Put what `revise` makes of a journal in its place; gives the journal as it stands then.

        It is asked again as long as others are faster, and answers None where nothing is to be changed.

        Raises:
            StoreError: it was not written.
        """
        for attempt in range(_ATTEMPTS):
            journal, rev = await self._read(tenant, subject)
            revised = revise(journal)
            if revised is None:
                return journal
            try:
                await self._docs.put(tenant, KIND, subject, _encoder.encode(revised), rev)
            except Conflict:
                await asyncio.sleep(_PAUSE_S * attempt)
                continue
            return revised
        raise StoreError(f"the journal of {subject} is changed by others all the time")

    async def delete(self, tenant: str, subject: str, journal: Journal | None = None) -> bool:
        """Delete the journal of a subject, or only if it is still `journal`; return whether it was."""
        body = None if journal is None else _encoder.encode(journal)
        return await self._docs.delete(tenant, KIND, subject, body)

    async def subjects(self, kind: str) -> list[tuple[str, str]]:
        """Return the tenant and the subject of every journal of a kind such as `ceremony`."""
        prefix, found, after = f"{kind}:", list[tuple[str, str]](), ("", "")
        # The first journal of each tenant leads to those of the kind, so that no others are read.
        while first := await self._docs.list_all(KIND, after, 1):
            tenant, last = first[0].tenant, prefix
            while page := await self._docs.list(tenant, KIND, last, _PAGE):
                named = [doc.id for doc in page if doc.id.startswith(prefix)]
                found += [(tenant, subject) for subject in named]
                if len(named) < _PAGE:
                    break
                last = named[-1]
            after = tenant, _LAST
        return found

    async def _read(self, tenant: str, subject: str) -> tuple[Journal, int]:
        doc = await self._docs.get(tenant, KIND, subject)
        if doc is None:
            return Journal(), 0
        journal = JOURNALS.read_or_set_aside(tenant, doc) or Journal()
        try:
            msgspec.json.decode(journal.state, type=self._state | None)
        except DECODE_ERRORS as error:
            log_damaged(tenant, KIND, subject, error)
        return journal, doc.rev
