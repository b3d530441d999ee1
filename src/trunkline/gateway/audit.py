"""What operators did with tenants: who, what, when, and the tenant before and after. No secret is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import random_bits
from trunkline.fleet.call import ApiPage
from trunkline.server.admin import KeyFacts
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.parts import Docs
from trunkline.store.records import AddedDoc, Doc
from trunkline.wire.spellings import timestamp

KIND = "audit"
# Ids count down, so that the store gives the newest first.
_LATEST_MS = 10**14
_PAGE = 200


class AuditRow(Struct, frozen=True, kw_only=True):
    """One act: its moment, who did it, and what it changed; None before it was made or after it is gone."""

    at: str
    by: str
    action: str
    tenant: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


AUDIT: DocumentKind[AuditRow] = DocumentKind(KIND, json_decoder(AuditRow))


class Audit:
    """The acts of operators in the documents of a store; they stay when their tenant is gone."""

    def __init__(self, docs: Docs, now_ms: Callable[[], int]) -> None:
        self._docs = docs
        self._now = now_ms

    def row(
        self,
        by: str,
        action: str,
        tenant: str,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> AddedDoc:
        """An act as it is written down: beside what it changes, so that neither is without the other."""
        now = self._now()
        row = AuditRow(at=timestamp(now), by=by, action=action, tenant=tenant, before=before, after=after)
        return AddedDoc(KIND, f"{_LATEST_MS - now:014d}{random_bits(64):016x}", msgspec.json.encode(row))

    def key_row(self, by: str, action: str, facts: KeyFacts) -> AddedDoc:
        """An act on a key as it is written down: whose it is and what it may do, and nothing of the key."""
        known = {"owner": facts.owner, "scopes": list(facts.scopes)}
        before = None if action == "key.created" else known
        return self.row(by, action, facts.tenant, before, None if action == "key.revoked" else known)

    async def page(self, limit: int, after: str, tenant: str = "") -> ApiPage:
        """A page of acts, newest first: all, or those on one tenant.

        Raises:
            StoreError: the store does not answer.
        """
        rows: list[AuditRow] = []
        while len(rows) < limit:
            found = await self._docs.list(DEFAULT_TENANT, KIND, after, _PAGE)
            for doc in found:
                after = doc.id
                row = _shown(doc)
                if tenant in ("", row.tenant):
                    rows.append(row)
                    if len(rows) == limit:
                        return ApiPage(list(rows), after)
            if len(found) < _PAGE:
                break
        return ApiPage(list(rows))


def _shown(doc: Doc) -> AuditRow:
    """Return the row of a document; one that is damaged is shown as that."""
    row = AUDIT.read_or_set_aside(DEFAULT_TENANT, doc)
    if row is not None:
        return row
    moment = doc.id[:14]
    at = timestamp(_LATEST_MS - int(moment)) if moment.isdecimal() and len(moment) == 14 else ""
    return AuditRow(at=at, by="", action="document.damaged", tenant="", after={"id": doc.id})
