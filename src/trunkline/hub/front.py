"""The hub as an agent of its own: its card lists the skills of all agents, and its messages are routed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import ValidationError, convert
from msgspec.structs import replace

from trunkline.agent.agent import IDEMPOTENT
from trunkline.agent.declaration import REPORTED
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.config import Settings
from trunkline.errors import InvalidParams, RouteNotFound
from trunkline.fleet.catalogue.catalogue import Catalogue, Key
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.routing.dispatcher import Dispatcher, DispatchOrder
from trunkline.hosting import SiteFactory
from trunkline.hub.agent_cards import card_of
from trunkline.hub.workspace import HubFile
from trunkline.log.events import PushTarget
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.server.caller import Caller
from trunkline.server.card import Cards
from trunkline.server.operations import OpenTask
from trunkline.server.site import Site
from trunkline.store.records import Dedup
from trunkline.wire.card import Card, Skill
from trunkline.wire.types import Metadata, SendRequest

_VERSION = "1"
_SKILLS_LIMIT = 1000
# How many skills of agents are read for one card: the agents of a tenant may have millions.
_SKILLS_READ = 10 * _SKILLS_LIMIT
_CARDS_LIMIT = 256
_MODES_LIMIT = 64
_TEXT = ("text/plain",)
_HINTS = ("skillHint", "skill", "skillId")
_TARGETS = "targets"


class RefusedWork:
    """The executor of tasks that no agent could be given: they end with their beginning, so none is run."""

    works_elsewhere = False

    def admit(self, request: SendRequest) -> str:
        """Refuse: the hub itself does nothing.

        Raises:
            InvalidParams: always.
        """
        del request
        raise InvalidParams("the hub itself has no skill; name one of an agent's", field="metadata.skillHint")

    def named(self, name: str) -> str:
        """Refuse: the hub itself has no skill.

        Raises:
            RouteNotFound: always.
        """
        raise RouteNotFound(f"the hub itself has no skill {name!r}")

    def on_crash(self, skill: str) -> OnCrash:
        """Say that a task fails: nothing was begun that could be gone on with."""
        del skill
        return OnCrash.FAIL

    async def run(self, work: Work) -> Verdict:
        """Refuse: there is nothing to run.

        Raises:
            InvalidParams: always.
        """
        raise InvalidParams("the hub itself does no work")

    async def close(self) -> None:
        """Do nothing: nothing is held."""


class Front:
    """The site at the origin: what comes there is dispatched, and the tasks of all agents are found."""

    def __init__(
        self, about: HubFile, catalogue: Catalogue, dispatcher: Dispatcher, sites: SiteFactory, own: Settings
    ) -> None:
        self._about = about
        self._catalogue = catalogue
        self._sites = sites
        self._own = own
        self.site: Site = sites.make(
            None, hub_card(about, catalogue.listed(DEFAULT_TENANT)), own, open_task=opening(dispatcher)
        )
        # By tenant, the longest unread first.
        self._cards: dict[str, Cards] = {}
        self._stub = sites.cards(stub_card(about), own)
        self._stub.show(stub_card(about), extends=True)

    def cards(self, tenant: str | None) -> Cards:
        """The cards that a tenant is shown, or a caller that has not said who it is."""
        if tenant is None:
            return self._stub
        cards = self._cards.pop(tenant, None)
        if cards is None:
            card = hub_card(self._about, self._catalogue.listed(tenant))
            cards = self._sites.cards(card, self._own)
            cards.show(self._sites.whole(card), extends=True)
        self._cards[tenant] = cards
        if len(self._cards) > _CARDS_LIMIT:
            del self._cards[next(iter(self._cards))]
        return cards

    def renew(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        """Show the skills that there are now."""
        del key, before, after
        self._cards.clear()
        self.site.cards.show_next(
            lambda: self._sites.whole(hub_card(self._about, self._catalogue.listed(DEFAULT_TENANT)))
        )


def opening(dispatcher: Dispatcher, agent: str = "") -> OpenTask:
    """How messages at an address become tasks: those of this agent, or without one of whom they name.

    Of a message that goes to several agents it is the first one's task.
    """

    async def open_task(
        caller: Caller, request: SendRequest, dedup: Dedup | None, push: PushTarget | None, rest_s: float
    ) -> Feed:
        message, principal = request.message, caller.principal
        if agent and dedup is not None:
            # Sent to two agents by their addresses, one message id makes two tasks.
            dedup = replace(dedup, key=f"{agent}\x1f{dedup.key}")
        named = (agent,) if agent else _targets(message.metadata) or _targets(request.metadata)
        opened = await dispatcher.dispatch(
            DispatchOrder(
                tenant=principal.tenant,
                principal=principal.name,
                message=message,
                skill=_skill(message.metadata) or _skill(request.metadata),
                targets=named,
                trigger="a2a",
                metadata=_rest(request.metadata),
                output_modes=request.accepted_output_modes,
                dedup=dedup,
                push=push,
                trace=caller.trace,
                correlation=request.correlation,
                flat=request.flat,
                extensions=None if caller.extensions is None else caller.extensions.named,
            ),
            rest_s=rest_s,
        )
        return opened[0].feed

    return open_task


def stub_card(about: HubFile) -> Card:
    """What a hub of several tenants tells everybody: that it is there, and nothing of its agents."""
    text = "Has an agent of one's own do the work; the extended card lists the skills."
    skill = Skill(id="route", name="Route", description=text, tags=("routed",))
    return _card(about, (skill,))


def hub_card(about: HubFile, agents: Iterable[Listed]) -> Card:
    """The card of a hub: each skill once, with the names of the agents that have it among its tags.

    It reads and writes what any of its agents does: a client sends no file where the card names text alone.
    """
    skills: dict[str, Skill] = {}
    reads: set[str] = set()
    writes: set[str] = set()
    left = _SKILLS_READ
    for listed in agents:
        if listed.state in ("disabled", "invalid"):
            continue
        if left <= 0:
            break
        card = card_of(listed)
        left -= max(len(card.skills), 1)
        reads.update(card.default_input_modes)
        writes.update(card.default_output_modes)
        for one in card.skills:
            known = skills.get(one.id)
            if known is None and len(skills) == _SKILLS_LIMIT:
                continue
            tags = ("routed",) if known is None else known.tags
            reads.update(one.input_modes)
            writes.update(one.output_modes)
            skills[one.id] = Skill(one.id, one.name, one.description, (*tags, listed.entry.name))
    return _card(about, tuple(skills.values()), sorted(reads), sorted(writes))


def _card(
    about: HubFile, skills: tuple[Skill, ...], reads: Sequence[str] = (), writes: Sequence[str] = ()
) -> Card:
    return Card(
        name=about.name,
        description=about.description,
        version=_VERSION,
        rpc_url="",
        rest_url="",
        skills=skills,
        default_input_modes=tuple(reads[:_MODES_LIMIT]) or _TEXT,
        default_output_modes=tuple(writes[:_MODES_LIMIT]) or _TEXT,
        extensions=(*REPORTED, IDEMPOTENT),
    )


def _skill(metadata: Metadata | None) -> str:
    for name in _HINTS if metadata else ():
        wanted = (metadata or {}).get(name)
        if isinstance(wanted, str):
            return wanted
        if wanted is not None:
            raise InvalidParams("the name of a skill is a text", field=f"metadata.{name}")
    return ""


def _targets(metadata: Metadata | None) -> tuple[str, ...]:
    wanted = (metadata or {}).get(_TARGETS)
    if wanted is None:
        return ()
    try:
        return tuple(convert(wanted, list[str]))
    except ValidationError:
        raise InvalidParams("the targets are a list of names", field=f"metadata.{_TARGETS}") from None


def _rest(metadata: Metadata | None) -> Metadata | None:
    """The metadata of a request without what is said anew of each task."""
    if not metadata:
        return None
    return {key: value for key, value in metadata.items() if key not in (*_HINTS, _TARGETS)} or None
