"""Kinds of documents: how the body of each is read, and what becomes of one that is damaged.

A document is damaged if its kind cannot decode it. One that grants nothing is set aside: it counts as absent,
the log names it, and the next write replaces it. One that grants something fails closed for its own tenant.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.log.encoding import DECODE_ERRORS
from trunkline.store.parts import Docs
from trunkline.store.records import Doc

log = logging.getLogger("trunkline.store")
PAGE = 500
_REASON_LENGTH = 200
T = TypeVar("T")


class DocumentKind(Struct, Generic[T], frozen=True):
    """A kind of documents: its name in the store and the decoder of a body by its document's ID.

    `stand_in` is set where the absence of a document would grant something. It returns the body that replaces
    a removed document, given the time in milliseconds.
    """

    name: str
    decode: Callable[[str, bytes], T]
    stand_in: Callable[[str, int], bytes] | None = None

    def read(self, doc_id: str, body: bytes) -> T:
        """Return the value of a document.

        Raises:
            StoreError: the document is damaged; the error has it as `damaged_document`.
        """
        try:
            return self.decode(doc_id, body)
        except DECODE_ERRORS as error:
            raise StoreError.damaged_doc(self.name, doc_id, str(error)[:_REASON_LENGTH]) from None

    def read_or_set_aside(self, tenant: str, doc: Doc) -> T | None:
        """Return the value of a document, or None after logging that it is damaged."""
        try:
            return self.read(doc.id, doc.body)
        except StoreError as error:
            log_damaged(tenant, self.name, doc.id, error)
            return None


Kinds = Mapping[str, DocumentKind[Any]]


class DamagedDocument(Struct, frozen=True):
    """A document that its kind cannot decode, and why."""

    tenant: str
    kind: str
    id: str
    reason: str


class DocumentScan(Struct):
    """The counts of a scan of all documents; `unread` are of kinds that this version does not know."""

    documents: int = 0
    unread: int = 0


def json_decoder(of: Any) -> Callable[[str, bytes], Any]:
    """Return the decoder of documents that are JSON of a type."""
    decode = msgspec.json.Decoder(of).decode
    return lambda _, body: decode(body)


def log_damaged(tenant: str, kind: str, doc_id: str, error: Exception) -> None:
    """Log that a document is damaged."""
    log.error("document.damaged kind=%s id=%a tenant=%a error=%a", kind, doc_id, tenant, str(error))


async def find_damaged(docs: Docs, kinds: Kinds, scan: DocumentScan) -> AsyncIterator[DamagedDocument]:
    """Decode every document of a store, count it in the scan, and yield those that are damaged."""
    for name in await docs.kinds():
        kind, after = kinds.get(name), ("", "")
        while page := await docs.list_all(name, after, PAGE):
            after = (page[-1].tenant, page[-1].id)
            scan.documents += len(page)
            if kind is None:
                scan.unread += len(page)
                continue
            for doc in page:
                try:
                    kind.read(doc.id, doc.body)
                except StoreError as error:
                    yield DamagedDocument(doc.tenant, name, doc.id, error.damage)


async def repair(
    docs: Docs, kinds: Kinds, now: int, *, tenant: str, kind: str, doc_id: str, body: bytes | None
) -> str:
    """Replace a damaged document by this body, or remove it; return `restored`, `replaced` or `removed`.

    A document whose absence would grant something is replaced by its kind's stand-in.

    Raises:
        Misuse: there is no such document, it is not damaged, or the body cannot be decoded either.
    """
    known = kinds.get(kind)
    doc = None if known is None else await docs.get(tenant, kind, doc_id)
    if known is None or doc is None:
        text = f"document {doc_id!r} of kind {kind!r} and tenant {tenant!r} not found; see store check"
        raise Misuse(text, hint="trunkline store check")
    try:
        known.read(doc_id, doc.body)
    except StoreError:
        pass
    else:
        raise Misuse(f"document {doc_id!r} of kind {kind} is not damaged, so it is not repaired")
    done = "restored" if body is not None else "removed" if known.stand_in is None else "replaced"
    if body is None and known.stand_in is not None:
        body = known.stand_in(doc_id, now)
    try:
        if body is None:
            await docs.delete(tenant, kind, doc_id, doc.body)
        else:
            known.read(doc_id, body)
            await docs.put(tenant, kind, doc_id, body, doc.rev)
    except Conflict:
        raise Misuse(f"document {doc_id!r} of kind {kind} has just been changed; run store check") from None
    except StoreError as error:
        if not error.damage:
            raise
        raise Misuse(f"the given document is damaged too: {error.damage}") from None
    return done
