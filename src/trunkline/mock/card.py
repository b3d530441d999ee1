"""The card of a mock: what its persona declares, in the layout of its quirks, with patches laid over it."""

from __future__ import annotations

from typing import cast

import msgspec

from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import Persona, ScriptedExtension, ScriptedSkill
from trunkline.wire.card import ApiKeyScheme, BearerScheme, Card, Extension, Scheme, Skill, card_hybrid
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.types import Metadata

_V03_MEMBERS = {
    *("protocolVersion", "url", "preferredTransport", "additionalInterfaces", "security"),
    "supportsAuthenticatedExtendedCard",
}
_V1_MEMBERS = {"supportedInterfaces", "securityRequirements"}


def card_document(persona: Persona, quirks: Quirks, base: str, *, deduplicates: bool) -> Metadata:
    """The card as a document; `base` is the address at which it was requested."""
    base = (persona.url or base).rstrip("/")
    card = Card(
        name=persona.name,
        description=persona.description,
        version=persona.version,
        rpc_url=base + quirks.path,
        rest_url=base,
        skills=tuple(_skill(skill) for skill in persona.skills),
        default_input_modes=persona.input_modes,
        default_output_modes=persona.output_modes,
        streaming=persona.streaming,
        push=persona.push,
        extended_card=persona.extended_card,
        extensions=_extensions(persona, deduplicates=deduplicates),
        schemes=_schemes(persona),
        requirements=tuple((name,) for name in _schemes(persona)),
    )
    document: Metadata = msgspec.json.decode(card_hybrid(card))
    return patched(_shaped(document, persona, quirks), persona.card)


def patched(document: Metadata, patch: Metadata) -> Metadata:
    """A document with these members laid over it, at any depth; null leaves one out."""
    found = dict(document)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = patched(found[name], cast("Metadata", value))
        else:
            found[name] = value
    return found


def _shaped(document: Metadata, persona: Persona, quirks: Quirks) -> Metadata:
    document["supportedInterfaces"] = [
        each
        for each in document["supportedInterfaces"]
        if each["protocolVersion"] in persona.versions and each["protocolBinding"] in persona.bindings
    ]
    known = [each for each in document["additionalInterfaces"] if each["transport"] in persona.bindings]
    document["additionalInterfaces"] = known
    if known:
        document["url"], document["preferredTransport"] = known[0]["url"], known[0]["transport"]
    if quirks.card == "1.0" or "0.3" not in persona.versions:
        return _without(document, _V03_MEMBERS)
    if quirks.card == "0.3" or "1.0" not in persona.versions:
        return _without(document, _V1_MEMBERS)
    return document


def _without(document: Metadata, names: set[str]) -> Metadata:
    return {name: value for name, value in document.items() if name not in names}


def _skill(skill: ScriptedSkill) -> Skill:
    name = skill.name or skill.id
    description, tags = skill.description or name, skill.tags or ("mock",)
    return Skill(skill.id, name, description, tags, skill.examples, skill.input_modes, skill.output_modes)


def _extensions(persona: Persona, *, deduplicates: bool) -> tuple[Extension, ...]:
    given = [ScriptedExtension(uri=each) if isinstance(each, str) else each for each in persona.extensions]
    if deduplicates and all(each.uri != IDEMPOTENT_SEND for each in given):
        given.append(
            ScriptedExtension(uri=IDEMPOTENT_SEND, description="A message that comes twice is done once")
        )
    return tuple(Extension(each.uri, each.description, each.required, each.params) for each in given)


def _schemes(persona: Persona) -> dict[str, Scheme]:
    if persona.auth is None:
        return {}
    schemes: dict[str, Scheme] = {}
    if persona.auth.bearer:
        schemes["bearer"] = BearerScheme()
    if persona.auth.api_key:
        schemes["apiKey"] = ApiKeyScheme(persona.auth.header)
    return schemes
