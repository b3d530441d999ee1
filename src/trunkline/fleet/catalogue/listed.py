"""An agent as the catalogue lists it: its entry, with what its card and its outcomes say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from trunkline.fleet.catalogue.breaker import BreakerState
from trunkline.fleet.catalogue.entry import Entry, EntrySkill, SkillEffect
from trunkline.wire.card import plain_name
from trunkline.wire.peer_card import PeerCard

ListedState = Literal["ready", "discovering", "unreachable", "invalid", "disabled"]
# What an operator said of an entry, whoever owns it.
Override = Literal["", "enabled", "disabled", "draining"]
_REASONS = {"disabled": "an operator disabled it", "draining": "an operator drains it"}
_SKILLS_LIMIT, _VERSION_LENGTH = 1000, 80


class ListedSkill(EntrySkill, frozen=True, kw_only=True):
    """A skill, its origin, and the effects that the agent's card declares for it."""

    source: Literal["file", "card", "api"]
    effects: tuple[SkillEffect, ...] = ()


class CardFacts(Struct, frozen=True, kw_only=True):
    """What a card says that the catalogue needs; `at` is when it came, in milliseconds.

    `note` is what is odd about it, `private` are the skills that only who is let in is shown. `card` is the
    whole of it; `input_modes` are those of an agent that has none.
    """

    at: int
    description: str = ""
    skills: tuple[EntrySkill, ...] = ()
    private: tuple[EntrySkill, ...] = ()
    streaming: bool = False
    push: bool = False
    versions: tuple[str, ...] = ()
    note: str = ""
    card: PeerCard | None = None
    input_modes: tuple[str, ...] = ()
    # By skill id.
    effects: Mapping[str, tuple[SkillEffect, ...]] = {}
    # The bytes of JSON that are kept of a fetched card; 0 for an agent that the hub runs itself.
    size: int = 0


class Listed(Struct, frozen=True, kw_only=True):
    """An agent of a tenant as it is now; `card_at` is 0 before the first card.

    Its `private` skills are done for who names the agent and the skill, and nobody is led to them.
    `operator_reason` is the reason for operators where `reason` hides it from a tenant.
    """

    entry: Entry
    state: ListedState
    reason: str = ""
    operator_reason: str = ""
    description: str = ""
    skills: tuple[ListedSkill, ...] = ()
    private: tuple[EntrySkill, ...] = ()
    streaming: bool = False
    push: bool = False
    versions: tuple[str, ...] = ()
    card_at: int = 0
    card: PeerCard | None = None
    input_modes: tuple[str, ...] = ()
    breaker: BreakerState = "closed"

    @property
    def full_reason(self) -> str:
        """Return the reason as operators see it."""
        return self.operator_reason or self.reason

    @property
    def version(self) -> str:
        """The version that the agent's own card says; empty where there is none."""
        return "" if self.card is None else plain_name(self.card.version)[:_VERSION_LENGTH]

    @property
    def known_skills(self) -> frozenset[str] | None:
        """The ids of its skills; None while nobody knows them: no card was read, and its entry names none."""
        if not self.skills and not self.card_at:
            return None
        # Who names one that is not shown to everybody knows of it.
        return frozenset([one.id for one in (*self.skills, *self.private)])

    def has(self, skill: str) -> bool:
        """Whether the agent has a skill."""
        return any(one.id == skill for one in self.skills)


def list_entry(entry: Entry, facts: CardFacts | None, failure: str, override: Override) -> Listed:
    """An entry with what is known of it: its own skills win, and its card decides how it is spoken to."""
    state, reason = _state(entry, facts, failure, override)
    return Listed(
        entry=entry,
        state=state,
        reason=reason,
        description=entry.description or ("" if facts is None else facts.description),
        skills=_skills(entry, facts),
        private=() if facts is None else _private(entry, facts),
        streaming=entry.streaming if facts is None else facts.streaming,
        push=facts is not None and facts.push,
        versions=() if facts is None else facts.versions,
        card_at=0 if facts is None else facts.at,
        card=None if facts is None else facts.card,
        input_modes=() if facts is None else facts.input_modes,
    )


def _state(
    entry: Entry, facts: CardFacts | None, failure: str, override: Override
) -> tuple[ListedState, str]:
    if entry.fault:
        return "invalid", entry.fault
    if override in _REASONS:
        return "disabled", _REASONS[override]
    if not entry.enabled and override != "enabled":
        return "disabled", "its entry says enabled: false"
    if failure:
        return ("unreachable" if entry.kind == "peer" else "invalid"), failure
    return ("discovering", "") if facts is None else ("ready", facts.note)


def _skills(entry: Entry, facts: CardFacts | None) -> tuple[ListedSkill, ...]:
    own = {one.id: one for one in entry.skills}
    source: Literal["file", "api"] = "file" if entry.owner == "file" else "api"
    facts = facts or CardFacts(at=0)
    effects = facts.effects
    found = [_listed_skill(one, source, effects) for one in own.values()]
    found += [_listed_skill(one, "card", effects) for one in facts.skills if one.id not in own]
    return tuple(found[:_SKILLS_LIMIT])


def _private(entry: Entry, facts: CardFacts) -> tuple[EntrySkill, ...]:
    shown = {one.id for one in entry.skills}
    return tuple([one for one in facts.private if one.id not in shown])


def _listed_skill(
    skill: EntrySkill,
    source: Literal["file", "card", "api"],
    effects: Mapping[str, tuple[SkillEffect, ...]],
) -> ListedSkill:
    return ListedSkill(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        tags=skill.tags,
        source=source,
        effects=effects.get(skill.id, ()),
    )
