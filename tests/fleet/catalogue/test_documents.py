"""The documents of a catalogue: which of them end, and what it takes to look for those."""

from __future__ import annotations

import asyncio
import sys

from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.documents import ENTRY_KIND, CatalogueDocuments, KeptEntry
from trunkline.store.url import store_from_url


def kept(name: str, until: int = 0) -> KeptEntry:
    owner = "announce" if until else "api"
    return KeptEntry(owner=owner, raw={"name": name, "url": "http://agent.example"}, by="me", until=until)


async def calls_of_sweep(documents: CatalogueDocuments) -> int:
    """How many functions are called to end what is over."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        await documents.sweep()
    finally:
        sys.setprofile(None)
    return count


def test_only_what_was_announced_is_looked_at_for_its_end() -> None:
    async def main() -> None:
        store = store_from_url("memory:")
        await store.open()
        catalogue = Catalogue()
        now = [1000]
        documents = CatalogueDocuments(store.docs, catalogue, lambda: now[0])
        few = await calls_of_sweep(documents)
        for place in range(500):
            await documents.put("north", f"a{place}", kept(f"a{place}"))
        await documents.put("north", "gone", kept("gone", 2000))
        await documents.put("north", "taken", kept("taken", 2000))
        await documents.put("north", "taken", kept("taken"), over=kept("taken", 2000))
        await documents.refresh()
        assert await calls_of_sweep(documents) < few + 100
        now[0] = 2000
        await documents.sweep()
        assert await store.docs.get("north", ENTRY_KIND, "gone") is None
        assert catalogue.find("north", "gone") is None and catalogue.find("north", "taken") is not None
        await store.close()

    asyncio.run(main())
