"""The model agents of a hub: what they work with, put together on its host. Needs the extra `model`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trunkline.agent.agent import Agent
from trunkline.clock import now_ms
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry_reader import Variable
from trunkline.fleet.catalogue.listed import CardFacts
from trunkline.fleet.catalogue.model_entry import ModelEntry
from trunkline.fleet.ceremonies.api import CeremonyApi
from trunkline.gateway.model.agent import card_facts, model_agent
from trunkline.gateway.model.files import input_modes
from trunkline.gateway.model.folder import FILES
from trunkline.gateway.model.notes import NOTES, TODOS, NoteBook
from trunkline.gateway.model.providers import ProviderModels, entry_model
from trunkline.gateway.model.tools import ModelParts, ToolPolicy
from trunkline.host import Host
from trunkline.net.fetch import Fetcher
from trunkline.run.spending import Meter


class HostModels:
    """Makes model agents, and knows whether an entry can be one."""

    def __init__(
        self,
        host: Host,
        catalogue: Catalogue,
        variable: Variable,
        *,
        workspace: Path,
        ceremonies: CeremonyApi,
        policy: ToolPolicy,
        meter: Meter,
        own: Fetcher,
        search_url: str = "",
    ) -> None:
        self._egress = host.egress
        self._parts = ModelParts(
            models=ProviderModels(variable, workspace),
            agents=catalogue.listed,
            fetcher=host.fetchers.find,
            egress=host.fetchers.shared_egress,
            mcp=host.tools,
            policy=policy,
            meter=meter,
            files=workspace / FILES,
            notes=NoteBook(host.store.docs, NOTES),
            todos=NoteBook(host.store.docs, TODOS),
            ceremonies=ceremonies,
            now_ms=now_ms,
            own=own,
            search_url=search_url,
        )

    def facts(self, entry: ModelEntry) -> CardFacts:
        """What the card of an agent says.

        Raises:
            Misuse: its model cannot be asked: its provider is unknown, lacks a library or a key, or is not
                for tenants.
        """
        # Nobody is called yet, so any rule will do.
        egress = self._egress if entry.foreign else None
        model = entry_model(self._parts.models, entry, entry.model, egress)
        if entry.advisor is not None:
            entry_model(self._parts.models, entry, entry.advisor.model, egress)
        return card_facts(entry, now_ms(), input_modes(model))

    def agent(self, name: str, entry_of: Callable[[str], ModelEntry | None]) -> Agent:
        """The agent of a name, whose entry each tenant may have another."""
        return model_agent(name, entry_of, self._parts)

    async def close(self) -> None:
        """Let go of the connections to providers."""
        await self._parts.models.close()
