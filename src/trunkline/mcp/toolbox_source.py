"""The tools of a toolbox for a server of MCP: agents that clients call, for whoever sits at this machine."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.auth.principal import Principal
from trunkline.bridge.tools import Toolbox
from trunkline.client.client import Client
from trunkline.mcp.task_agent import ClientAgent, Offer


class ToolboxSource:
    """Offers the tools of a toolbox that have a client behind them."""

    def __init__(self, box: Toolbox) -> None:
        agents: dict[int, ClientAgent] = {}
        self._offers: dict[str, Offer] = {}
        for tool in box:
            peer = box.peer(tool.name)
            if isinstance(peer, Client):
                self._offers[tool.name] = Offer(tool, agents.setdefault(id(peer), ClientAgent(peer)))

    async def offers(self, caller: Principal | None) -> Mapping[str, Offer]:
        """The same tools for everybody."""
        del caller
        return self._offers
