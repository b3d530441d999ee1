"""What keeps a catalogue true beside its files: documents, cards and their history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from trunkline.auth.vault import Vault
from trunkline.errors import StoreError
from trunkline.fleet.catalogue.agents import ABOUT, AgentsApi, CatalogueParts
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.discovery import CARD_REFRESH_S, CardDiscovery
from trunkline.fleet.catalogue.documents import CatalogueDocuments
from trunkline.fleet.catalogue.history import CatalogueHistory
from trunkline.fleet.health.health_records import AgentHealth
from trunkline.fleet.journal import Journals
from trunkline.fleet.route import ApiRoute, routes_of
from trunkline.net.egress import Egress
from trunkline.peer.clients import PeerClients
from trunkline.store.parts import Docs

log = logging.getLogger("trunkline.fleet")
SWEEP_S = 1.0


class CatalogueService:
    """Follows documents and cards for a catalogue; `clients` are those by which its agents are called."""

    def __init__(
        self,
        catalogue: Catalogue,
        docs: Docs,
        now_ms: Callable[[], int],
        *,
        agent_egress: Callable[[str, str], Egress],
        probe_egress: Callable[[str], Egress],
        vault: Vault | None,
        card_refresh_s: float = CARD_REFRESH_S,
        health: Callable[[str, str], AgentHealth] = lambda tenant, name: AgentHealth(),
    ) -> None:
        self.catalogue = catalogue
        self.clients = PeerClients(
            egress=agent_egress, reveal=None if vault is None else partial(vault.open, about=ABOUT)
        )
        self.documents = CatalogueDocuments(docs, self.catalogue, now_ms)
        self.discovery = CardDiscovery(self.catalogue, self.clients, now_ms, refresh_s=card_refresh_s)
        self.history = CatalogueHistory(self.catalogue, Journals(docs, dict[str, Any]), now_ms)
        self._parts = CatalogueParts(
            catalogue=self.catalogue,
            documents=self.documents,
            discovery=self.discovery,
            history=self.history,
            agent_egress=agent_egress,
            probe_egress=probe_egress,
            vault=vault,
            now_ms=now_ms,
            health=health,
        )

    def routes(self) -> list[ApiRoute]:
        """The routes of the operator's API over this catalogue."""
        return routes_of(AgentsApi(self._parts))

    async def start(self) -> None:
        """Read the documents.

        Raises:
            StoreError: the store does not answer.
        """
        await self.documents.refresh()

    async def run(self) -> None:
        """Follow everything until cancelled; owned by who serves the catalogue."""
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self.documents.entries.follow(),
                    self.documents.overrides.follow(),
                    self.discovery.run(),
                    self.history.run(),
                    self._sweep(),
                ):
                    group.create_task(work)
        finally:
            await self.clients.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.documents.sweep()
            except StoreError as error:
                log.warning("catalogue.sweep_failed error=%s", error)
