"""The card of an agent of the catalogue, as its callers see it: what it can do, at the hub's address. Pure.

Of the card of a remote agent only what is named here is shown: its skills, the media types that it reads and
writes, its version. Its addresses, its security, its provider and its extensions are its own: callers deal
with the hub, whose addresses and schemes are put on the card where it is served.
What agents report the hub hands on, and declares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trunkline.agent.agent import IDEMPOTENT
from trunkline.agent.declaration import REPORTED
from trunkline.fleet.catalogue.entry import EntrySkill
from trunkline.fleet.catalogue.listed import Listed
from trunkline.wire.card import Card, Extension, plain_name, plain_prose
from trunkline.wire.card import Skill as CardSkill
from trunkline.wire.spellings import timestamp

_TEXT = ("text/plain",)
_VERSION = "1"
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+*-]{1,64}/[A-Za-z0-9!#$&^_.+*-]{1,64}")
_MODES, _EXAMPLES, _LONGEST_EXAMPLE, _LONGEST_VERSION = 64, 16, 1024, 64


def card_of(listed: Listed, declared: tuple[Extension, ...] = REPORTED) -> Card:
    """The whole card of an agent, at whose address the hub answers, with the extensions that it declares."""
    name, own = listed.entry.name, listed.card
    detailed = {} if own is None else {one.id: one for one in own.skills}
    skills = tuple([_skill(one, name, detailed.get(one.id)) for one in (*listed.skills, *listed.private)])
    given = _TEXT if listed.entry.model is None else (*_TEXT, "application/json")
    return Card(
        name=listed.entry.title or name,
        description=listed.description or name,
        version=_version(listed),
        rpc_url="",
        rest_url="",
        skills=skills,
        default_input_modes=(listed.input_modes if own is None else _modes(own.default_input_modes)) or _TEXT,
        default_output_modes=(() if own is None else _modes(own.default_output_modes)) or given,
        streaming=True,
        extensions=(*declared, IDEMPOTENT),
    )


def _version(listed: Listed) -> str:
    """That of the agent's own card; a model is another one with each change of its entry."""
    entry, own = listed.entry, listed.card
    if entry.model is not None:
        return timestamp(entry.changed_at) if entry.changed_at else entry.revision
    return ("" if own is None else plain_name(own.version)[:_LONGEST_VERSION]) or _VERSION


def _skill(skill: EntrySkill, agent: str, own: CardSkill | None) -> CardSkill:
    return CardSkill(
        id=skill.id,
        name=skill.name or skill.id,
        description=skill.description or skill.name or skill.id,
        # A skill on a card has at least one.
        tags=skill.tags or (agent,),
        examples=() if own is None else _examples(own.examples),
        input_modes=() if own is None else _modes(own.input_modes),
        output_modes=() if own is None else _modes(own.output_modes),
    )


def _modes(told: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([one for one in told if _MEDIA_TYPE.fullmatch(one)]))[:_MODES]


def _examples(told: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([plain_prose(one)[:_LONGEST_EXAMPLE] for one in told[:_EXAMPLES] if one])
