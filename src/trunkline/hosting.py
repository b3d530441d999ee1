"""What one agent has on a host: an executor that the runner carries, typed operations, a card and a site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import DriftMonitor
from trunkline.agent.executor import SkillExecutor
from trunkline.config import Settings, host_layer, load
from trunkline.errors import Misuse
from trunkline.http.host_check import HostCheck, hosts_of
from trunkline.peer.callbacks import Following
from trunkline.peer.executor import PeerExecutor, remote_id
from trunkline.peer.remote import LacksSkill, Reachable, ToolCaller, lacks_nothing
from trunkline.run.hops import Bounds
from trunkline.run.node import HostedAgent
from trunkline.run.push_configs import PushConfigs
from trunkline.run.runner import Runner
from trunkline.server.admission import Admission
from trunkline.server.card import Cards
from trunkline.server.encoding import EncodedOperations
from trunkline.server.operations import OpenTask, Operations
from trunkline.server.site import Site
from trunkline.wire.card import Card


class ExecutorFactory(Struct, frozen=True):
    """Makes the executors of agents that are made of skills.

    `local` are the agents that they may call, `tools` those of the operator's MCP servers, and `lacks` knows
    which skills such an agent has not.
    """

    drift: DriftMonitor
    bounds: Bounds
    local: Collection[str]
    following: Following
    tools: ToolCaller | None = None
    lacks: LacksSkill = lacks_nothing

    def of(self, agent: Agent, own: Settings, *, id: str = "") -> tuple[HostedAgent, HostedAgent]:
        """An agent under an id, and what follows the remote tasks that its skills ask for."""
        name = id or agent.id
        reachable = Reachable(remote_id(name), agent.peers, self.local, self.tools, self.lacks)
        executor = SkillExecutor(
            agent.name, agent.skills, agent.default, own, self.drift, bounds=self.bounds, reachable=reachable
        )
        elsewhere = PeerExecutor(agent.peers, following=self.following)
        return (
            HostedAgent(name, executor, own.stall_limit, own.kept_s, final_message=own.final_message),
            HostedAgent(reachable.remote, elsewhere, own.task_max_age, own.kept_s),
        )


class SiteFactory(Struct):
    """Makes the sites of agents, all behind one admission; they may come and go while the host serves."""

    _runner: Runner
    _admission: Admission
    pushes: bool
    _configs: PushConfigs | None = None
    # By agent id. Whoever pushes says so to each when the store is open.
    _operations: dict[str | None, Operations] = {}

    def refuse_work_by(self, check: Callable[[str, str], None]) -> None:
        """Have somebody asked who refuses work of a tenant and principal before it is read."""
        self._admission.check_work = check

    def of(self, agent: Agent, own: Settings) -> Site:
        """The site of an agent that is made of skills."""
        private = [skill.id for skill in agent.skills.values() if not skill.public]
        return self.make(agent.id, agent.card(), own, private)

    def make(
        self,
        agent: str | None,
        card: Card,
        own: Settings,
        private: Collection[str] = (),
        *,
        open_task: OpenTask | None = None,
    ) -> Site:
        """The site of an agent by its id and card, or with None that of all; `open_task` takes its messages.

        Raises:
            Misuse: the card cannot be shown.
        """
        operations = Operations(
            self._runner, agent, wait_limit_s=own.wait_limit, streaming=card.streaming, open_task=open_task
        )
        operations.push.configs = self._configs
        self._operations[agent] = operations
        encoded = EncodedOperations(operations)
        return self.showing(encoded, self.cards(card, own, private), own)

    def cards(self, card: Card, own: Settings, private: Collection[str] = ()) -> Cards:
        """The cards of an agent.

        Raises:
            Misuse: the card cannot be shown.
        """
        return Cards(self.whole(card), own, self._admission.identity, HostCheck(hosts_of(own)), private)

    def whole(self, card: Card) -> Card:
        """A card that says of push what is so on this host."""
        return replace(card, push=self.pushes)

    def showing(self, operations: EncodedOperations, cards: Cards, own: Settings) -> Site:
        """A site with these operations and cards: tenants may be shown the same agent differently."""
        return Site(operations, cards, self._admission, own)

    def push_by(self, configs: PushConfigs) -> None:
        """Have all operations, also those that are made later, keep push configs here."""
        self._configs = configs
        for operations in self._operations.values():
            operations.push.configs = configs

    def forget(self, agent: str) -> None:
        """Let go of the operations of an agent that has no site any more."""
        self._operations.pop(agent, None)


def check_agents(agents: Sequence[Agent]) -> None:
    """Let agents pass that can be served together.

    Raises:
        Misuse: one has no skill, or two have one id.
    """
    known: dict[str, Agent] = {}
    for agent in agents:
        if not agent.skills:
            raise Misuse(f"agent {agent.name} has no skill; decorate a function with @agent.skill")
        if agent.id in known:
            raise Misuse(
                f"{known[agent.id].name!r} and {agent.name!r} of this host both have the id {agent.id!r}; "
                "give one of them another: Agent(…, id=…)"
            )
        known[agent.id] = agent


def settings_of(agents: Sequence[tuple[Agent, Mapping[str, object]]]) -> list[Settings]:
    """The settings of each agent: its own ones for its site, those of all for the host."""
    authors = host_layer([(agent.name, agent.settings) for agent, _ in agents])
    flags = host_layer([(agent.name, given) for agent, given in agents])
    return [load({**authors, **agent.settings}, {**flags, **given}) for agent, given in agents]
