"""What the catalogue takes of a card, and when it is asked for again. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from trunkline.errors import Unreadable
from trunkline.fleet.catalogue.entry import EntrySkill, SkillEffect
from trunkline.fleet.catalogue.listed import CardFacts
from trunkline.net.egress import shown
from trunkline.wire.card import Skill, plain_name, plain_prose
from trunkline.wire.peer_card import PeerCard

_FIRST_PAUSE_S = 2.0
_TEXT, _SKILLS, _TAGS, _VERSION = 4096, 1000, 64, 32
# The extension by which a card declares effects, and limits on what is read of it.
_EFFECTS = "/effect-domain-v1"
_EFFECTS_OF_SKILL, _EFFECT_NAME = 64, 256
# What is kept of a card: that of its skills, and that of all else.
_SKILL_BYTES, _CARD_BYTES = 256 << 10, 64 << 10


def kept_of(card: PeerCard) -> PeerCard:
    """A card as it is kept for as long as the agent is listed: without its document, and not of any size.

    Raises:
        Unreadable: it is too large beside its skills; of these, those that are too many are left out.
    """
    skills: list[Skill] = []
    room = _SKILL_BYTES
    for one in card.skills[:_SKILLS]:
        room -= len(msgspec.json.encode(one))
        if room < 0:
            break
        skills.append(one)
    kept = replace(card, skills=(), document={})
    if len(msgspec.json.encode(kept)) > _CARD_BYTES:
        raise Unreadable(
            f"the card has over {_CARD_BYTES} bytes beside its skills, which is more than is kept"
        )
    return replace(kept, skills=tuple(skills))


def facts_of(card: PeerCard, url: str, at: int) -> CardFacts:
    """What a card says of an agent that is called at this address; what it says too much is left out."""
    skills = {
        one.id: EntrySkill(
            id=one.id,
            name=plain_name(one.name or one.id)[:_TEXT],
            description=plain_prose(one.description)[:_TEXT],
            tags=tuple(plain_name(tag)[:_TEXT] for tag in one.tags[:_TAGS]),
        )
        for one in card.skills[:_SKILLS]
        if one.id and len(one.id) <= _TEXT and one.id.isprintable()
    }
    named = {".".join((one.words or one.version).split(".")[:2]) for one in card.interfaces}
    versions = [one for one in named if one and len(one) <= _VERSION and one.isprintable()]
    return CardFacts(
        at=at,
        description=plain_prose(card.description)[:_TEXT],
        skills=tuple(skills.values()),
        streaming=card.streaming,
        push=card.push,
        versions=tuple(sorted(versions)),
        note=_mismatch(card, url),
        card=card,
        effects=effects_of(card),
    )


def effects_of(card: PeerCard) -> dict[str, tuple[SkillEffect, ...]]:
    """Return the effects that a card declares, by skill id; malformed declarations are left out."""
    found: dict[str, tuple[SkillEffect, ...]] = {}
    for extension in card.extensions:
        declared = (extension.params or {}).get("skills")
        if not extension.uri.endswith(_EFFECTS) or not isinstance(declared, Mapping):
            continue
        for skill, about in list(cast("Mapping[str, Any]", declared).items())[:_SKILLS]:
            listed = cast("Mapping[str, Any]", about).get("effects") if isinstance(about, Mapping) else None
            given = cast("list[Any]", listed)[:_EFFECTS_OF_SKILL] if isinstance(listed, list) else []
            if effects := tuple([one for one in map(_effect, given) if one is not None]):
                found[skill] = effects
    return found


def _effect(given: Any) -> SkillEffect | None:
    try:
        effect = msgspec.convert(given, SkillEffect)
    except msgspec.ValidationError:
        return None
    names = (effect.domain, effect.path)
    is_named = all([0 < len(one) <= _EFFECT_NAME and one.isprintable() for one in names])
    is_sane = math.isfinite(effect.delta) and 0 <= effect.confidence <= 1
    return effect if is_named and is_sane else None


def _mismatch(card: PeerCard, url: str) -> str:
    """The operator's address is the one that is called; a card that names others is worth a word."""
    own = _place(url)
    others = [one.url for one in card.interfaces if _place(one.url) not in ("", own)]
    if not others:
        return ""
    return f"its card names {shown(others[0])[:200]}; the address of its entry is called all the same"


def _place(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        # What leads nowhere is not the address of the entry either.
        return url


def pause_s(refresh_s: float, failures: int, draw: float) -> float:
    """How long until the card is asked for again; `draw` is from 0 to 1, so that not all ask at once."""
    if not failures:
        return refresh_s * (1 + 0.1 * draw)
    return min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20), refresh_s) * (0.5 + 0.5 * draw)
