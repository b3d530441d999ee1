"""The agents of a hub's catalogue as its server of MCP offers them to a caller."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from trunkline.auth.principal import Principal
from trunkline.config import Settings
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.routing.dispatcher import Dispatcher
from trunkline.hub.front import opening
from trunkline.mcp.host_source import HostSource, ServedAgent
from trunkline.run.runner import Runner
from trunkline.server.operations import Operations
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard

_AWAY = ("disabled", "invalid")
# As many as a catalogue may have; names come and go.
_KEPT = 10_000


def tools_of_catalogue(
    catalogue: Catalogue, runner: Runner, dispatcher: Dispatcher, settings: Settings
) -> HostSource:
    """What offers each skill of each agent of the caller's tenant; its tasks are dispatched like others."""
    kept: dict[str, Operations] = {}

    def operations(name: str) -> Operations:
        if name not in kept:
            if len(kept) == _KEPT:
                kept.clear()
            kept[name] = Operations(
                runner,
                None,
                wait_limit_s=settings.wait_limit,
                streaming=True,
                open_task=opening(dispatcher, name),
            )
        return kept[name]

    def listed(caller: Principal) -> Iterator[ServedAgent]:
        for one in catalogue.listed(caller.tenant):
            if one.state not in _AWAY:
                yield ServedAgent(one.entry.name, _card(one), operations(one.entry.name))

    return HostSource(listed)


def _card(listed: Listed) -> PeerCard:
    """The card of the agent, with the skills that its entry gives it."""
    skills = tuple([Skill(one.id, one.name, one.description, one.tags) for one in listed.skills])
    card = listed.card or PeerCard(name=listed.entry.name)
    known = {one.id: one for one in card.skills}
    # What the card itself says of a skill's media types is kept.
    told = [replace(known[one.id], **_said(one)) if one.id in known else one for one in skills]
    return replace(card, description=listed.description, skills=tuple(told))


def _said(skill: Skill) -> dict[str, str]:
    said = {"name": skill.name, "description": skill.description}
    return {name: value for name, value in said.items() if value}
