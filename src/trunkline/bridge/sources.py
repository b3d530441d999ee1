"""Where tools come from: cards, clients, addresses and agents in this process, each with its card."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import cast

from msgspec import Struct

from trunkline.agent.agent import Agent
from trunkline.bridge.outcome import ToolClient
from trunkline.bridge.tool import SkillFilter
from trunkline.client.client import Client
from trunkline.client.sync import SyncClient
from trunkline.errors import Misuse, TrunklineError
from trunkline.net.egress import shown
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard

log = logging.getLogger("trunkline.bridge")
AgentSource = PeerCard | ToolClient | Agent | str
Source = AgentSource | Iterable[AgentSource] | Mapping[str, AgentSource]


class AgentExtras(Struct, frozen=True):
    """What a registry file says of an agent beside its address: skills to offer, skills that it has too."""

    skill_filter: SkillFilter = SkillFilter()
    skills: tuple[Skill, ...] = ()


class Agents(dict[str, Client]):
    """Clients by name, as a registry file lists them, with what it says beside their addresses.

    Whoever loaded them closes them: `async with load_agents(path) as agents`.
    """

    def __init__(self, clients: Mapping[str, Client], extras: Mapping[str, AgentExtras]) -> None:
        super().__init__(clients)
        self.extras = dict(extras)

    async def __aenter__(self) -> Agents:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all clients."""
        async with AsyncExitStack() as stack:
            for client in self.values():
                stack.push_async_callback(client.close)


class FoundAgent(Struct, frozen=True):
    """An agent that tools are made of: its name here, its card, and the client that reaches it, if any."""

    name: str
    url: str
    card: PeerCard
    peer: ToolClient | None
    extra: AgentExtras = AgentExtras()

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills of the card, each once, and those that only the operator knows of.

        A card may list none; then the agent as a whole is one, without an id.
        """
        known: dict[str, Skill] = {}
        for skill in (*self.card.skills, *self.extra.skills):
            known.setdefault(skill.id, skill)
        whole = Skill("", self.card.name, self.card.description, ())
        return tuple(known.values()) or (whole,)


async def find_agents(given: Source, stack: AsyncExitStack) -> tuple[list[FoundAgent], dict[str, str]]:
    """The agents, in their order, and why others are missing. What is opened for them is the stack's.

    Raises:
        TrunklineError: none of them was found, or what is given is nothing that has skills.
    """
    extras: Mapping[str, AgentExtras] = given.extras if isinstance(given, Agents) else {}
    # Each opens what it needs on its own; all of them ask at the same time.
    rows = [(name, one, *await _opened(one, stack)) for name, one in _listed(given)]
    answers = await asyncio.gather(*(_card_of(one, peer) for _, one, _, peer in rows), return_exceptions=True)
    found: list[FoundAgent] = []
    missing: dict[str, str] = {}
    first: BaseException | None = None
    for (name, _, url, peer), card in zip(rows, answers, strict=True):
        extra = extras.get(name, AgentExtras())
        if isinstance(card, TrunklineError):
            first = first or card
            missing[name or url] = str(card)
            log.warning("tools.agent_missing agent=%s error=%r", name or shown(url), str(card))
            if not extra.skills:
                continue
            card = PeerCard(name=name)
        if isinstance(card, BaseException):
            raise card
        url = url or next((interface.url for interface in card.interfaces), "")
        found.append(FoundAgent(name or card.name, url, card, peer, extra))
    if first is not None and not found:
        raise first
    return found, missing


def _listed(given: Source) -> list[tuple[str, AgentSource]]:
    if isinstance(given, Mapping):
        return list(cast("Mapping[str, AgentSource]", given).items())
    if isinstance(given, str | PeerCard | Agent) or not isinstance(given, Iterable):
        return [("", given)]
    return [("", one) for one in given]


async def _opened(one: AgentSource, stack: AsyncExitStack) -> tuple[str, ToolClient | None]:
    """The address by which an agent is told from another of the same name, and the client that reaches it.

    Where the address is empty, that of its card counts.
    """
    if isinstance(one, PeerCard):
        return "", None
    if isinstance(one, Agent):
        return f"inside:{one.name}", await _in_process_client(one, stack)
    if isinstance(one, str):
        return one, await stack.enter_async_context(Client(one))
    if isinstance(one, SyncClient):
        raise Misuse("tools are called with await; make them of a Client, not of a SyncClient")
    if not callable(getattr(one, "card", None)) or not callable(getattr(one, "send", None)):
        raise Misuse(f"tools are made of cards, clients, agents and addresses, not of {type(one).__name__}")
    own = getattr(one, "url", "")
    return own if isinstance(own, str) else "", one


async def _in_process_client(agent: Agent, stack: AsyncExitStack) -> ToolClient:
    """A client of an agent in this process, which runs for as long as the tools do."""
    app = agent.asgi()
    await stack.enter_async_context(app.lifespan())
    keys = app.host.settings.keys
    http_client = InProcessHttpClient(app)
    stack.push_async_callback(http_client.close)
    return await stack.enter_async_context(
        Client("http://localhost/a2a", http_client=http_client, api_key=keys[0] if keys else "")
    )


async def _card_of(one: AgentSource, peer: ToolClient | None) -> PeerCard:
    if isinstance(one, PeerCard):
        return one
    assert peer is not None
    return await peer.card()
