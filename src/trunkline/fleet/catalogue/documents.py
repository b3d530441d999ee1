"""Entries by the API or by an announcement, and what operators say of any entry: kept as documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import Conflict, InvalidParams
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry import Entry, faulty_entry
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.files import ENTRIES_LIMIT
from trunkline.fleet.catalogue.listed import Override
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import TENANT_BYTES, Mirror
from trunkline.store.parts import Docs

ENTRY_KIND, OVERRIDE_KIND = "catalogue", "catalogue_override"
# Of the entries that a tenant may have, as many are those of one key that announces agents.
ANNOUNCED_LIMIT = 1000
LONGEST_TTL_S = 300


class KeptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it was given, by whom and when, with its sealed credentials; `until` ends an announced one.

    Moments are in milliseconds.
    """

    owner: Literal["api", "announce"]
    raw: dict[str, Any]
    by: str
    sealed: str = ""
    until: int = 0
    at: int = 0


class KeptOverride(Struct, frozen=True, kw_only=True):
    """What an operator said of an entry, and of which revision of it."""

    override: Override
    revision: str


def _disabled_override(_name: str, _now: int) -> bytes:
    return msgspec.json.encode(KeptOverride(override="disabled", revision=""))


ENTRIES: DocumentKind[KeptEntry] = DocumentKind(ENTRY_KIND, json_decoder(KeptEntry))
# Without its document an agent that an operator disabled would take work.
OVERRIDES: DocumentKind[KeptOverride] = DocumentKind(
    OVERRIDE_KIND, json_decoder(KeptOverride), _disabled_override
)


class CatalogueDocuments:
    """The documents of a catalogue, which it learns as they are loaded.

    A damaged entry is listed as invalid. An entry whose override is damaged is disabled.
    """

    def __init__(self, docs: Docs, catalogue: Catalogue, now_ms: Callable[[], int]) -> None:
        self._docs = docs
        self._catalogue = catalogue
        self._now = now_ms
        # The entries that end where nobody renews them.
        self._announced: set[tuple[str, str]] = set()
        self.entries = Mirror(
            docs, ENTRIES, self._take, set_aside=self._list_damaged, tenant_bytes=TENANT_BYTES
        )
        self.overrides = Mirror(docs, OVERRIDES, self._override, set_aside=self._disable)

    async def refresh(self) -> None:
        """Load what has changed.

        Raises:
            StoreError: the store does not answer.
        """
        await self.entries.refresh()
        await self.overrides.refresh()

    def kept(self, tenant: str, name: str) -> KeptEntry | None:
        """The document of an entry; one that has ended is none."""
        found = self.entries.documents.get((tenant, name))
        return None if found is None or self._ended(found.value) else found.value

    def is_damaged(self, tenant: str, name: str) -> bool:
        """Return whether the document of an entry is damaged."""
        return (tenant, name) in self.entries.damaged

    async def put(self, tenant: str, name: str, kept: KeptEntry, *, over: KeptEntry | None = None) -> None:
        """Keep an entry in the place of the one that it was judged by, or of none.

        Raises:
            Conflict: somebody has changed it meanwhile; it is known after a refresh.
            InvalidParams: the tenant has as many as it may.
        """
        known = self.entries.documents.get((tenant, name))
        if self.kept(tenant, name) != over:
            raise Conflict(0 if known is None else known.rev)
        if known is None:
            self._check_room(tenant, kept)
        body = msgspec.json.encode(kept)
        await self.entries.put(tenant, name, body, expected_rev=self.entries.rev(tenant, name))

    def _check_room(self, tenant: str, kept: KeptEntry) -> None:
        # Of each tenant by itself: none can take the room of others.
        if self._catalogue.count(tenant) >= ENTRIES_LIMIT:
            raise InvalidParams(
                f"a catalogue has at most {ENTRIES_LIMIT} entries; remove one first",
                conflict="CATALOGUE_FULL",
            )
        if kept.owner != "announce":
            return
        announced = [self.entries.documents.get(key) for key in self._announced if key[0] == tenant]
        if sum([one is not None and one.value.by == kept.by for one in announced]) >= ANNOUNCED_LIMIT:
            raise InvalidParams(
                f"one key announces at most {ANNOUNCED_LIMIT} agents", field="name", conflict="CATALOGUE_FULL"
            )

    async def delete(self, tenant: str, name: str) -> None:
        """Forget an entry, and what was said of it."""
        await self._docs.delete(tenant, ENTRY_KIND, name)
        await self._docs.delete(tenant, OVERRIDE_KIND, name)
        await self.refresh()

    async def put_override(self, tenant: str, name: str, kept: KeptOverride) -> None:
        """Keep what an operator says of an entry.

        Raises:
            Conflict: another process has changed it meanwhile.
        """
        rev = self.overrides.rev(tenant, name)
        await self.overrides.put(tenant, name, msgspec.json.encode(kept), expected_rev=rev)

    async def sweep(self) -> None:
        """End the announced entries that were not renewed."""
        for tenant, name in list(self._announced):
            found = self.entries.documents.get((tenant, name))
            if found is not None and self._ended(found.value):
                self._catalogue.take(tenant, name, None)
                # Renewed elsewhere in this moment: then it is somebody's new document.
                current = await self._docs.get(tenant, ENTRY_KIND, name)
                if current is not None and current.rev == found.rev:
                    await self._docs.delete(tenant, ENTRY_KIND, name)
        await self.refresh()

    def _ended(self, kept: KeptEntry) -> bool:
        # One that would hold for longer than any may was announced by a clock that was ahead then.
        left = kept.until - self._now()
        return kept.until > 0 and not 0 < left <= 2 * LONGEST_TTL_S * 1000

    def _take(self, tenant: str, name: str, kept: KeptEntry | None) -> None:
        if kept is not None and kept.until:
            self._announced.add((tenant, name))
        else:
            self._announced.discard((tenant, name))
        entry = None if kept is None or self._ended(kept) else self._read(tenant, name, kept)
        self._catalogue.take(tenant, name, entry)

    def _read(self, tenant: str, name: str, kept: KeptEntry) -> Entry:
        """The entry that a document stands for; what this version cannot read is kept to be seen."""
        try:
            entry = read_entry(kept.raw, kept.owner, tenant=tenant, searches=self._catalogue.searches)
        except InvalidParams as error:
            return faulty_entry(name, kept.owner, f"{error.field}: {error.message}", (tenant,))
        if entry.model is not None:
            return replace(entry, model=replace(entry.model, foreign=True), changed_at=kept.at)
        if entry.peer is None:
            return replace(entry, changed_at=kept.at)
        fault = entry.fault
        if kept.raw.get("auth") and not kept.sealed:
            # Of an export, which holds no credentials: without them the agent would be called as by nobody.
            fault = f"auth.credentials: an export has none; give them again with PUT /api/agents/{name}"
        return replace(
            entry,
            peer=replace(entry.peer, foreign=True, sealed=kept.sealed),
            fault=fault,
            announced_by=kept.by if kept.owner == "announce" else "",
        )

    def _override(self, tenant: str, name: str, kept: KeptOverride | None) -> None:
        if kept is None:
            self._catalogue.take_override(tenant, name, "")
        else:
            self._catalogue.take_override(tenant, name, kept.override, kept.revision)

    def _list_damaged(self, tenant: str, name: str, reason: str) -> None:
        fault = f"its document is damaged: {reason}; remove the agent, or run trunkline store repair"
        self._catalogue.take(tenant, name, faulty_entry(name, "api", fault, (tenant,)))

    def _disable(self, tenant: str, name: str, _reason: str) -> None:
        self._catalogue.take_override(tenant, name, "disabled")
