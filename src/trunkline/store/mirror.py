"""A mirror: the documents of one kind, decoded, in memory, as the store had them a moment ago.

Whatever of this process needs documents at hand for each request keeps them here: keys, signing keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from trunkline.errors import InvalidParams, Misuse, StoreError
from trunkline.store.documents import DocumentKind, log_damaged
from trunkline.store.parts import Docs
from trunkline.store.records import START, AddedDoc, Cursor, Doc, DocChange, Poll

log = logging.getLogger("trunkline.store")
PAGE = 500
# Of documents that callers write, a tenant has so many bytes of each kind; what one fills is not the others'.
TENANT_BYTES = 16 << 20
T = TypeVar("T")


class Mirrored(Struct, Generic[T], frozen=True):
    """A document as it was read: its value, its revision, and how many bytes it has in the store."""

    value: T
    rev: int
    size: int


class SetAside(Struct, frozen=True):
    """A damaged document: its revision, its size in the store, and why it cannot be decoded."""

    rev: int
    size: int
    reason: str


class Mirror(Generic[T]):
    """The documents of one kind by tenant and ID; `changed` is called for each that is new, changed or gone.

    A damaged document counts as gone, is listed in `damaged`, and is reported to `set_aside`. That callback
    fails closed for kinds whose absence would grant something.
    """

    def __init__(
        self,
        docs: Docs,
        kind: DocumentKind[T],
        changed: Callable[[str, str, T | None], None] = lambda tenant, doc_id, value: None,
        *,
        set_aside: Callable[[str, str, str], None] = lambda tenant, doc_id, reason: None,
        tenant_bytes: int = 0,
    ) -> None:
        """Mirror the documents of a kind; `changed` may refuse one with `Misuse`.

        With `tenant_bytes` no more than that is written for one tenant. What the store has is always loaded:
        otherwise one document could keep every process from its start.
        """
        self._docs = docs
        self._kind = kind
        self._changed = changed
        self._set_aside = set_aside
        self._cursor: Cursor = START
        self._tenant_bytes = tenant_bytes
        self._sizes: Counter[str] = Counter()
        self._refused: dict[tuple[str, str], Misuse] = {}
        self.documents: dict[tuple[str, str], Mirrored[T]] = {}
        self.damaged: dict[tuple[str, str], SetAside] = {}
        # Invariant: what is read or written is taken before the next is begun, so an old reading never
        # comes after a newer one, and nobody's revocation is undone.
        self._turn = asyncio.Lock()

    async def refresh(self) -> None:
        """Load everything that has changed, here or in another process.

        Raises:
            StoreError: the store does not answer.
            Misuse: `changed` refuses a document; all others are loaded.
        """
        await self.catch_up()
        for error in self._refused.values():
            # It is raised as often as somebody looks: its traceback must not grow with each.
            raise error.with_traceback(None)

    async def catch_up(self) -> None:
        """Load everything that has changed and is not refused.

        Raises:
            StoreError: the store does not answer.
        """
        async with self._turn:
            page_is_full = True
            while page_is_full:
                page, self._cursor = await self._docs.changes(self._kind.name, self._cursor, PAGE)
                for change in page:
                    try:
                        self._take(change)
                    except Misuse as error:
                        # Another one's revocation must not wait for it.
                        self._refused[change.tenant, change.id] = error
                page_is_full = len(page) >= PAGE

    async def put(
        self, tenant: str, doc_id: str, body: bytes, *, expected_rev: int, beside: AddedDoc | None = None
    ) -> None:
        """Write a document over the revision `expected_rev`; this process has it at once.

        What goes `beside` is written with it, or neither is.

        Raises:
            Conflict: the document stands at another revision; it is known after a refresh.
            InvalidParams: the tenant has too much of this kind.
        """
        async with self._turn:
            self._check_room(tenant, len(body) - self._size_of((tenant, doc_id)))
            rev = await self._docs.put(tenant, self._kind.name, doc_id, body, expected_rev, beside=beside)
            self._take(DocChange(tenant, doc_id, Doc(doc_id, rev, body)))

    async def follow(self) -> None:
        """Take up what other processes change until the store closes; for stores that processes share."""
        async for hint in self._docs.hints():
            if not isinstance(hint, Poll) and hint.kind != self._kind.name:
                continue
            try:
                await self.refresh()
            except (StoreError, Misuse) as error:
                # What is known stays good; what was revoked elsewhere holds until the store is back.
                log.warning("documents.stale kind=%s error=%s", self._kind.name, error)

    def _check_room(self, tenant: str, growth: int) -> None:
        limit = self._tenant_bytes
        if limit and growth > 0 and self._sizes[tenant] + growth > limit:
            raise InvalidParams(
                f"all of this kind together have at most {limit >> 20} MiB; remove some first",
                conflict="TENANT_FULL",
            )

    def rev(self, tenant: str, doc_id: str) -> int:
        """Return the revision over which a document is written, damaged or not; 0 if there is none."""
        known = self.documents.get((tenant, doc_id)) or self.damaged.get((tenant, doc_id))
        return 0 if known is None else known.rev

    def _size_of(self, key: tuple[str, str]) -> int:
        known = self.documents.get(key) or self.damaged.get(key)
        return 0 if known is None else known.size

    def _take(self, change: DocChange) -> None:
        key, doc, before = (change.tenant, change.id), change.doc, self._size_of((change.tenant, change.id))
        if doc is None:
            self._drop(key)
        else:
            try:
                value = self._kind.read(doc.id, doc.body)
            except StoreError as error:
                self._put_aside(key, doc, error)
            else:
                known = self.documents.get(key)
                if known is None or known.value != value:
                    self._changed(change.tenant, change.id, value)
                self.documents[key] = Mirrored(value, doc.rev, len(doc.body))
                self.damaged.pop(key, None)
        self._sizes[change.tenant] += (0 if doc is None else len(doc.body)) - before
        self._refused.pop(key, None)

    def _drop(self, key: tuple[str, str]) -> None:
        if key in self.documents or key in self.damaged:
            self._changed(*key, None)
            self.documents.pop(key, None)
            self.damaged.pop(key, None)

    def _put_aside(self, key: tuple[str, str], doc: Doc, error: StoreError) -> None:
        known = self.damaged.get(key)
        if known is not None and known.rev == doc.rev:
            return
        self._drop(key)
        log_damaged(key[0], self._kind.name, doc.id, error)
        self.damaged[key] = SetAside(doc.rev, len(doc.body), error.damage)
        self._set_aside(*key, error.damage)
