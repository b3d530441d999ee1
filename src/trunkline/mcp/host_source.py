"""The agents of a host as tools: those that a caller may ask, and its own tasks with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from trunkline.auth.principal import ANONYMOUS, Principal
from trunkline.bridge.tool import SkillFilter, Tool
from trunkline.bridge.tools import TOOLS_LIMIT, FoundAgent, offered_tools
from trunkline.mcp.local_agent import LocalAgent
from trunkline.mcp.task_agent import Offer
from trunkline.server.operations import Operations
from trunkline.wire.card import Card, card_v1
from trunkline.wire.peer_card import PeerCard, read_card
from trunkline.wire.types import Correlation

_PREFIX = "a2a"
# Tools are made of cards once for each tenant, and again when a card has changed.
_TENANTS_KEPT = 64


class ServedAgent(Struct, frozen=True):
    """An agent of the host: its name and card, and the operations by which its tasks are made and found."""

    name: str
    card: PeerCard
    operations: Operations


_Cards = list[tuple[str, PeerCard]]
Listing = Callable[[Principal], Iterable[ServedAgent]]


class HostSource:
    """Offers the skills of the agents that are listed for a caller."""

    def __init__(self, listed: Listing) -> None:
        self._listed = listed
        self._made: OrderedDict[str, tuple[_Cards, list[tuple[Tool, str]]]] = OrderedDict()

    async def offers(self, caller: Principal | None, correlation: Correlation | None) -> Mapping[str, Offer]:
        """Return the tools of the caller's tenant, whose calls are the caller's own tasks."""
        principal = caller or ANONYMOUS
        served = self._served(principal)
        agents = {name: LocalAgent(one.operations, principal, correlation) for name, one in served.items()}
        tools = self._tools(principal.tenant, served)
        return {tool.name: Offer(tool, agents[name]) for tool, name in tools}

    def _served(self, principal: Principal) -> dict[str, ServedAgent]:
        """Return the first agents, up to as many skills as there may be tools.

        A tenant may list thousands of agents with a thousand skills each, and every request comes by here.
        """
        served: dict[str, ServedAgent] = {}
        left = TOOLS_LIMIT
        for one in self._listed(principal):
            if left <= 0:
                break
            served[one.name] = one
            left -= max(len(one.card.skills), 1)
        return served

    def _tools(self, tenant: str, served: Mapping[str, ServedAgent]) -> list[tuple[Tool, str]]:
        cards = [(one.name, one.card) for one in served.values()]
        known = self._made.get(tenant)
        if known is None or known[0] != cards:
            found = [FoundAgent(name, f"here:{name}", card, None) for name, card in cards]
            tools = [(tool, one.name) for tool, one in offered_tools(found, SkillFilter(), _PREFIX)]
            known = self._made[tenant] = cards, tools
            if len(self._made) > _TENANTS_KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(tenant)
        return known[1]


def peer_card(card: Card) -> PeerCard:
    """A card of our own as a reader of cards has it."""
    return read_card(card_v1(card))
