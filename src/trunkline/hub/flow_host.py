"""A host of workflows alone: `trunkline flow serve`. It has the runs of its store, and no agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.agent.agent import Agent
from trunkline.auth.identity import Identity, Verifier
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS
from trunkline.config import Settings
from trunkline.flow.operator import OperatorConfig
from trunkline.host import Host
from trunkline.hub.flows import HostFlows
from trunkline.hub.front import RefusedWork
from trunkline.run.executor import Executor
from trunkline.run.node import BackgroundWork
from trunkline.server.card import Cards
from trunkline.server.site import Site
from trunkline.store.mirror import Mirror
from trunkline.wire.card import Card

NAME = "workflows"
_ABOUT = "Runs workflows; their REST API is at /v1/workflows and /v1/executions."
_TEXT = ("text/plain",)


class FlowHost:
    """Workflows behind one address; `host` serves them."""

    executor: Executor = RefusedWork()
    mirrors: Sequence[Mirror[Any]] = ()

    def __init__(self, config: OperatorConfig, flags: Mapping[str, object]) -> None:
        """Take what the operator has set up, and settings that win over all others.

        Raises:
            Misuse: a setting does not fit.
        """
        self.flows = HostFlows(config)
        agent = Agent(NAME, description=_ABOUT)
        self.host = Host([(agent, flags)], self)
        for mount in self.flows.api.mounts():
            self.host.mounts.add(mount)

    # What the host asks of its fleet.

    def identity(self, settings: Settings, tokens: Verifier | None) -> tuple[Keyring, Identity]:
        """Keys of the settings and the tokens that the environment has for workflows."""
        keyring = Keyring(settings.keys)
        keyring.take_named(self.flows.config.tokens)
        return keyring, Identity(keyring, tokens, ANONYMOUS)

    def assemble(self, host: Host) -> Site:
        """The site at the origin: a card that says where the API is."""
        self._runner = host.runner
        self._runs = self.flows.assemble(host)
        card = Card(
            name=NAME,
            description=_ABOUT,
            version="1",
            rpc_url="",
            rest_url="",
            skills=(),
            default_input_modes=_TEXT,
            default_output_modes=_TEXT,
            streaming=True,
        )
        self._site = host.sites.make(NAME, card, host.settings)
        return self._site

    def find_site(self, tenant: str, name: str) -> Site | None:
        """There are no agents but the one at the origin."""
        del tenant, name
        return None

    @property
    def shared(self) -> bool:
        """There is nothing that one tenant sees and another does not."""
        return False

    @property
    def hides_cards(self) -> bool:
        """Return False: there is one card."""
        return False

    def cards(self, tenant: str | None) -> Cards:
        """The cards that everybody is shown."""
        del tenant
        return self._site.cards

    async def start(self) -> list[BackgroundWork]:
        """Carry the runs."""
        self.flows.tell()
        await self._runner.carry([self._runner.agent(self._runner.origin), self._runs])
        return []

    async def close(self) -> None:
        """Let go of everything that the engine holds."""
        await self.flows.close()
