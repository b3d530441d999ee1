"""Checks of where the card is found, how it is served and what it says."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from trunkline.doctor.check import ERROR, INFO, WARNING, Family, assume, expect, expect_answer
from trunkline.doctor.exchange import items, members, objects, parsed, snake_members, text
from trunkline.doctor.subject import CARD, LEGACY, Subject, is_card
from trunkline.net.http import HttpRequest
from trunkline.wire.card import SCHEME_WRAPPERS

discovery = Family("discovery")


@discovery.agent("card-found", ERROR, "§8.2, CARD-01, AG-01")
async def found(subject: Subject) -> None:
    """The card is at the well-known path of 0.3 and 1.0.

    Means: Clients look for the card at /.well-known/agent-card.json and find nothing, so they cannot call.
    Fix: Serve the card as JSON with status 200 at /.well-known/agent-card.json.
    """
    seen = subject.cards.get(CARD) or await subject.get_card(subject.base + CARD)
    expect_answer(is_card(seen), seen)


@discovery.agent("card-legacy-path", WARNING, "0.2.6 §5.3, AG-01")
async def legacy(subject: Subject) -> None:
    """The card is at the older path too, and is the same.

    Means: Older clients look at /.well-known/agent.json; to them this agent does not exist.
    Fix: Serve the same card at /.well-known/agent.json too.
    """
    seen = subject.cards.get(LEGACY) or await subject.get_card(subject.base + LEGACY)
    expect_answer(is_card(seen), seen)
    newer = subject.cards.get(CARD)
    if newer is not None and newer.status == 200:
        expect(seen.json == newer.json, "the two paths serve different cards", newer, seen)


@discovery.agent("card-content-type", WARNING, "§8.2, CARD-01")
async def content_type(subject: Subject) -> None:
    """The card says that it is JSON.

    Means: Strict clients refuse a card that is not served as JSON.
    Fix: Send Content-Type: application/json with the card.
    """
    seen = subject.card_exchange
    good = seen.media_type == "application/json" or seen.media_type.endswith("+json")
    expect(good, f"Content-Type is {seen.headers.get('content-type', 'missing')}", seen)


@discovery.agent("card-public", WARNING, "§8.2, AG-23")
async def public(subject: Subject) -> None:
    """The card needs no credentials.

    Means: Without the card nobody can learn which credentials the agent wants.
    Fix: Serve the public card without credentials; keep what is private for the extended card.
    """
    assume(subject.credentials, "no credentials were given, and the card came")
    path = CARD if CARD in subject.cards and subject.cards[CARD].status == 200 else LEGACY
    seen = await subject.get_card(subject.base + path, known=False)
    expect_answer(seen.status == 200, seen)


@discovery.agent("card-cache-control", WARNING, "§8.6.1, CARD-06")
async def cache_control(subject: Subject) -> None:
    """The card says how long it may be kept.

    Means: Clients do not know how long they may keep the card, and fetch it before every call.
    Fix: Send Cache-Control with max-age, for example max-age=300.
    """
    seen = subject.card_exchange
    value = seen.headers.get("cache-control", "")
    expect("max-age" in value or "no-" in value, f"Cache-Control is {value or 'missing'}", seen)


@discovery.agent("card-etag", WARNING, "§8.6.1, CARD-07")
async def etag(subject: Subject) -> None:
    """The card has an ETag, and a client that knows it hears 304.

    Means: Clients cannot ask whether the card has changed, and load all of it each time.
    Fix: Send an ETag with the card and answer 304 to If-None-Match with the same one.
    """
    seen = subject.card_exchange
    tag = seen.headers.get("etag", "")
    expect(tag, "there is no ETag", seen)
    again = await subject.get_card(seen.request.url, headers=(("If-None-Match", tag),))
    expect(again.status == 304, f"If-None-Match: {tag} gives HTTP {again.status}", again)


@discovery.agent("card-head", INFO, "RFC 9110 §9.1")
async def head(subject: Subject) -> None:
    """HEAD is answered.

    Means: Monitors and proxies that ask by HEAD see an agent that is not there.
    Fix: Answer HEAD like GET, without a body.
    """
    url = subject.card_exchange.request.url
    seen = await subject.client.fetch(HttpRequest("HEAD", url, subject.credentials), "card")
    expect_answer(200 <= seen.status < 300, seen)


card = Family("card")

_TEXTS = ("name", "description", "version")
_INTERFACES = {
    "supportedInterfaces": ("url", "protocolBinding", "protocolVersion"),
    "additionalInterfaces": ("url", "transport"),
}
_LISTS = ("defaultInputModes", "defaultOutputModes", "skills")
_MEDIA = re.compile(r"[a-z0-9*][a-z0-9!#$&^_.+*-]*/[a-z0-9*][a-z0-9!#$&^_.+*-]*(\s*;.*)?", re.IGNORECASE)
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bsk-[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bghp_[A-Za-z0-9]{30,}"
    r"|\bBearer\s+[A-Za-z0-9._-]{20,}|\bxox[bp]-[0-9A-Za-z-]{10,}"
)


@card.agent("card-required-members", ERROR, "§4.4.1, CARD-02")
async def required(subject: Subject) -> None:
    """Everything that must be there is there, in the layout of its version.

    Means: Clients that check cards refuse this one.
    Fix: Add the missing members; lists must have at least one entry, but for the skills of 0.3.
    """
    newer = bool(items(subject.card.get("supportedInterfaces")))
    missing = _empty(subject.card, *_TEXTS) + [name for name in _LISTS if not items(subject.card.get(name))]
    if not newer and subject.card.get("skills") == []:
        # In 0.3 an agent may have none to name.
        missing.remove("skills")
    if not isinstance(subject.card.get("capabilities"), dict):
        missing.append("capabilities")
    if not newer:
        older = _empty(subject.card, "url", "protocolVersion")
        missing += ["supportedInterfaces"] if len(older) == 2 else older
    expect(not missing, f"missing or empty: {', '.join(missing)}")


@card.agent("card-members-camel-case", ERROR, "§5.5, CARD-09")
async def camel_case(subject: Subject) -> None:
    """No member has an underscore.

    Means: Clients do not see members under these names.
    Fix: Spell members in camelCase, such as protocolVersion and defaultInputModes.
    """
    odd = list(snake_members(subject.card))
    expect(not odd, f"spelled with underscores: {', '.join(odd[:5])}")


@card.agent("card-layout-matches-version", ERROR, "§4.4.1, A.2")
async def layout(subject: Subject) -> None:
    """1.0 is declared in the layout of 1.0, older versions in theirs.

    Means: The card says one version and has the layout of another; clients pick the wrong dialect or none.
    Fix: List 1.0 interfaces under supportedInterfaces, and keep url and protocolVersion for 0.3.
    """
    declared = text(subject.card.get("protocolVersion"))
    good = not declared.startswith("1") or items(subject.card.get("supportedInterfaces"))
    expect(good, f"protocolVersion is {declared}, but there are no supportedInterfaces")


@card.agent("card-interface-members", ERROR, "§8.3.1, CARD-03")
async def interface_members(subject: Subject) -> None:
    """Each interface is whole.

    Means: Clients cannot tell where to call or in which protocol.
    Fix: Give each interface url, protocolBinding and protocolVersion (0.3: url and transport).
    """
    lacking = [
        f"{where}[{index}] lacks {name}"
        for where, names in _INTERFACES.items()
        for index, interface in enumerate(objects(subject.card.get(where)))
        for name in _empty(interface, *names)
    ]
    expect(not lacking, "; ".join(lacking))


@card.agent("card-interface-version", WARNING, "§3.6, CARD-05")
async def interface_version(subject: Subject) -> None:
    """Versions of interfaces are Major.Minor.

    Means: Clients compare Major.Minor; another form may match nothing.
    Fix: Write the protocolVersion of an interface as Major.Minor: 1.0 or 0.3.
    """
    versions = [text(one.get("protocolVersion")) for one in objects(subject.card.get("supportedInterfaces"))]
    odd = [one for one in versions if one and not re.fullmatch(r"[0-9]+\.[0-9]+", one)]
    expect(not odd, f"protocolVersion {', '.join(odd)}")


@card.agent("card-binding-names", WARNING, "§5.8, CARD-13")
async def bindings(subject: Subject) -> None:
    """Bindings are the standard ones, or URIs.

    Means: Clients do not know this binding and skip the interface.
    Fix: Use JSONRPC, HTTP+JSON or GRPC; name a binding of your own by a URI.
    """
    names = [text(one.get("protocolBinding")) for one in objects(subject.card.get("supportedInterfaces"))]
    names += [text(one.get("transport")) for one in objects(subject.card.get("additionalInterfaces"))]
    names.append(text(subject.card.get("preferredTransport")))
    odd = [one for one in names if one and one not in ("JSONRPC", "HTTP+JSON", "GRPC") and ":" not in one]
    expect(not odd, f"unknown: {', '.join(odd)}")


@card.agent("card-skills", ERROR, "§4.4.5, CARD-10")
async def skills(subject: Subject) -> None:
    """Each skill is whole.

    Means: Routers and planners choose by id, description and tags; this skill cannot be chosen.
    Fix: Give every skill id, name, description and at least one tag.
    """
    lacking: list[str] = []
    for index, skill in enumerate(objects(subject.card.get("skills"))):
        names = _empty(skill, "id", "name", "description") + ([] if items(skill.get("tags")) else ["tags"])
        lacking += [f"skills[{index}].{name}" for name in names]
    expect(not lacking, f"missing or empty: {', '.join(lacking[:8])}")


@card.agent("card-skill-ids-unique", ERROR, "§4.4.5")
async def unique(subject: Subject) -> None:
    """No two skills share an id.

    Means: A caller who names a skill may reach another one.
    Fix: Give each skill an id of its own.
    """
    names = [text(one.get("id")) for one in objects(subject.card.get("skills"))]
    twice = sorted({one for one in names if one and names.count(one) > 1})
    expect(not twice, f"used more than once: {', '.join(twice)}")


@card.agent("card-modes", WARNING, "§4.4.1")
async def modes(subject: Subject) -> None:
    """Modes are media types.

    Means: Clients match modes as media types; a word such as `text` matches nothing.
    Fix: Write modes as media types: text/plain, application/json.
    """
    found = [one for name in _LISTS[:2] for one in items(subject.card.get(name))]
    for skill in objects(subject.card.get("skills")):
        found += [*items(skill.get("inputModes")), *items(skill.get("outputModes"))]
    odd = sorted({str(one) for one in found if not _MEDIA.fullmatch(text(one))})
    expect(not odd, f"no media types: {', '.join(odd[:5])}")


@card.agent("card-provider", ERROR, "§4.4.2, CARD-10")
async def provider(subject: Subject) -> None:
    """A provider is whole.

    Means: Clients that check cards refuse this one.
    Fix: Give the provider both organization and url, or leave it out.
    """
    assume(subject.card.get("provider") is not None, "the card names no provider")
    lacking = _empty(members(subject.card.get("provider")), "organization", "url")
    expect(not lacking, f"provider lacks {', '.join(lacking)}")


@card.agent("card-security-schemes", ERROR, "§4.5, CARD-11")
async def security_schemes(subject: Subject) -> None:
    """Schemes are of a known kind, and requirements name existing ones.

    Means: Clients cannot tell which credentials to send.
    Fix: Make each scheme one of the known kinds, and name in the requirements only schemes that are there.
    """
    schemes = members(subject.card.get("securitySchemes"))
    wrong = [f"{name} is of no known kind" for name, one in schemes.items() if not _is_scheme(members(one))]
    undescribed = required_schemes(subject.card) - set(schemes)
    wrong += [f"{name} is required but not described" for name in undescribed]
    expect(not wrong, "; ".join(sorted(wrong)))


@card.agent("card-no-secrets", ERROR, "§14.3, CARD-12")
async def secrets(subject: Subject) -> None:
    """Nothing in the card looks like a secret.

    Means: The card is public: whoever reads it has the secret.
    Fix: Take it out of the card, and make a new one.
    """
    for path, value in _texts(subject.card, ""):
        expect(not _SECRET.search(value), f"{path.lstrip('.')} looks like a secret")


@card.agent("card-signature", ERROR, "§8.4.2, SIG-01")
async def signature(subject: Subject) -> None:
    """Each signature says how it was made.

    Means: Clients that check signatures refuse the card.
    Fix: Put alg and kid into the protected header of each signature (base64url of a JSON object).
    """
    signatures = objects(subject.card.get("signatures"))
    assume(signatures, "the card is not signed")
    for index, one in enumerate(signatures):
        header = members(parsed(_decoded(text(one.get("protected")))))
        lacking = _empty(header, "alg", "kid") or _empty(one, "signature")
        expect(not lacking, f"signatures[{index}] lacks {', '.join(lacking)}")


def required_schemes(card: dict[str, Any]) -> set[str]:
    """The names of all schemes that the card requires."""
    newer = [members(one.get("schemes") or one) for one in objects(card.get("securityRequirements"))]
    return {name for one in [*newer, *objects(card.get("security"))] for name in one}


def _is_scheme(one: dict[str, Any]) -> bool:
    wrappers = one.keys() & SCHEME_WRAPPERS.values()
    return len(wrappers) == 1 or text(one.get("type")) in SCHEME_WRAPPERS


def _empty(value: dict[str, Any], *names: str) -> list[str]:
    """The members that are missing, or empty, or no texts."""
    return [name for name in names if not text(value.get(name))]


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    for name, inner in members(value).items():
        yield from _texts(inner, f"{path}.{name}")
    for index, inner in enumerate(items(value)):
        yield from _texts(inner, f"{path}[{index}]")


def _decoded(encoded: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""
