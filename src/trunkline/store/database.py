"""What both databases are to the parts of a store: named statements, one life, hints.

Nothing here is SQL; how statements are run is in `sqlite/` and `postgres/`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from trunkline.errors import Misuse, StoreError
from trunkline.store.group_commit import Entry, GroupCommit
from trunkline.store.hints import DOC_POLL_EVERY, HintBroadcast
from trunkline.store.records import DocHint, Hint

T = TypeVar("T")

PATIENCE = 60.0
_NEW, _OPEN, _CLOSED = "the store is not open", "", "the store is closed"


class Rows(Protocol):
    """Runs a statement by its name, and gives the rows that it finds or has changed."""

    async def __call__(self, name: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """The rows; the tenant is a parameter of every statement, None is all of them."""
        ...


class Database(ABC):
    """A database with its named statements, opened and closed as the store on it is."""

    # The texts of the statements, by their names.
    sql: Mapping[str, str]

    def __init__(self, name: str, submit: Callable[[list[Entry]], None], *, read_only: bool) -> None:
        """Take how errors call it, and what writes a group of appends."""
        self.name = name
        self._read_only = read_only
        # Why nothing is asked of it now; nothing while it is open.
        self._refusal = _NEW
        # The version of the schema before it was opened, and after.
        self.migrated = (0, 0)
        self.hints = HintBroadcast[Hint]()
        self.doc_hints = HintBroadcast[DocHint](DOC_POLL_EVERY)
        self.group_commit = GroupCommit(submit, self.hints)

    @abstractmethod
    def now_ms(self) -> int | None:
        """What to take for the time; None is the database's own."""

    async def rows(self, name: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """The rows that a named statement finds."""
        return await self.rows_of(self.sql[name], tenant, **values)

    @abstractmethod
    async def rows_of(self, text: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """The rows that a text of statements finds that was put together from several."""

    @abstractmethod
    async def write(self, name: str, tenant: str | None = None, /, **values: Any) -> Sequence[Any]:
        """Run one statement, once, that may change rows; gives those that it names."""

    @abstractmethod
    async def transaction(self, call: Callable[[Rows], Awaitable[T]], tenant: str | None = None) -> T:
        """Run several statements, all or none: a `StoreError` of the call undoes them.

        Invariant: the call waits for nothing else, as SQLite runs it in a thread where there is no loop.
        """

    def tell_docs(self, kind: str) -> None:
        """Tell whoever listens that documents of a kind have changed."""
        self.doc_hints.tell([DocHint(kind)])

    def check(self) -> None:
        """Refuse what comes before `open` or after `close`."""
        if self._refusal:
            raise StoreError(self._refusal)

    def check_writable(self) -> None:
        """Refuse changes, too, of what was opened to be read."""
        self.check()
        if self._read_only:
            raise StoreError(f"{self.name} was opened to be read only")

    async def open(self) -> None:
        """See `Store`."""
        if self._refusal is not _NEW:
            raise Misuse("a store is opened once; make another one")
        self._refusal = _CLOSED
        await self._open()
        self._refusal = _OPEN

    async def close(self) -> None:
        """See `Store`."""
        if self._refusal is not _OPEN:
            return
        self._refusal = _CLOSED
        try:
            async with asyncio.timeout(PATIENCE):
                await self._close()
        except TimeoutError:
            raise StoreError(f"{self.name} did not finish writing within {PATIENCE:.0f} s") from None
        finally:
            self.hints.end()
            self.doc_hints.end()

    @abstractmethod
    async def _open(self) -> None:
        """Dial or open it, bring its schema up to date, and take appends."""

    @abstractmethod
    async def _close(self) -> None:
        """Finish what was taken, then let go."""


class StorePart:
    """A part of a store, which does its work by the statements of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def check_version(name: str, version: int, newest: int) -> None:
    """See that a schema is none of a newer version of ours.

    Raises:
        StoreError: it is; the message names the way out.
    """
    if version > newest:
        raise StoreError(
            f"{name} was written by a newer trunkline (schema {version}, this one knows {newest}); "
            "upgrade trunkline or choose another --store"
        )


def check_readable(name: str, version: int, newest: int) -> None:
    """See that a schema can be read as it is.

    Raises:
        StoreError: it is too old; the message names the way out.
    """
    if version < newest:
        raise StoreError(
            f"{name} has schema {version} and this trunkline reads {newest}: run trunkline store migrate"
        )
