"""Checks of what the card says."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from trunkline.doctor.finding import ERROR, PASSED, WARNING, CheckVerdict, failed, judge, of_agent, skipped
from trunkline.doctor.json_access import items, members, parsed, snake_members, text
from trunkline.doctor.subject import Subject

_SHARED = ("name", "description", "version", "capabilities")
_LISTS = ("defaultInputModes", "defaultOutputModes", "skills")
_MEDIA = re.compile(r"[a-z0-9*][a-z0-9!#$&^_.+*-]*/[a-z0-9*][a-z0-9!#$&^_.+*-]*(\s*;.*)?", re.IGNORECASE)
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bsk-[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bghp_[A-Za-z0-9]{30,}"
    r"|\bBearer\s+[A-Za-z0-9._-]{20,}|\bxox[bp]-[0-9A-Za-z-]{10,}"
)
_WRAPPERS = frozenset(
    f"{kind}SecurityScheme" for kind in ("apiKey", "httpAuth", "oauth2", "openIdConnect", "mtls")
)
_TYPES = frozenset(("apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"))


@of_agent(
    "card-required-members",
    ERROR,
    "§4.4.1, CARD-02",
    means="Clients that check cards refuse this one.",
    fix="Add the missing members; lists must have at least one entry.",
)
async def required(subject: Subject) -> CheckVerdict:
    """Everything that must be there is there, in the layout of its version."""
    card = subject.card
    missing = [name for name in _SHARED if not text(card.get(name)) and name != "capabilities"]
    missing += [name for name in _LISTS if not items(card.get(name))]
    if not isinstance(card.get("capabilities"), dict):
        missing.append("capabilities")
    if not items(card.get("supportedInterfaces")):
        older = [name for name in ("url", "protocolVersion") if not text(card.get(name))]
        missing += ["supportedInterfaces"] if len(older) == 2 else older
    return judge(not missing, f"missing or empty: {', '.join(missing)}")


@of_agent(
    "card-members-camel-case",
    ERROR,
    "§5.5, CARD-09",
    means="Clients do not see members under these names.",
    fix="Spell members in camelCase, such as protocolVersion and defaultInputModes.",
)
async def camel_case(subject: Subject) -> CheckVerdict:
    """No member has an underscore."""
    odd = list(snake_members(subject.card))
    return judge(not odd, f"spelled with underscores: {', '.join(odd[:5])}")


@of_agent(
    "card-layout-matches-version",
    ERROR,
    "§4.4.1, A.2",
    means="The card says one version and has the layout of another; clients pick the wrong dialect or none.",
    fix="List 1.0 interfaces under supportedInterfaces, and keep url and protocolVersion for 0.3.",
)
async def layout(subject: Subject) -> CheckVerdict:
    """1.0 is declared in the layout of 1.0, older versions in theirs."""
    declared = text(subject.card.get("protocolVersion"))
    if declared.startswith("1") and not items(subject.card.get("supportedInterfaces")):
        return failed(f"protocolVersion is {declared}, but there are no supportedInterfaces")
    return PASSED


@of_agent(
    "card-interface-members",
    ERROR,
    "§8.3.1, CARD-03",
    means="Clients cannot tell where to call or in which protocol.",
    fix="Give each interface url, protocolBinding and protocolVersion (0.3: url and transport).",
)
async def interface_members(subject: Subject) -> CheckVerdict:
    """Each interface is whole."""
    lacking = [
        f"{where} lacks {name}"
        for where, one, names in _interfaces(subject.card)
        for name in names
        if not text(one.get(name))
    ]
    return judge(not lacking, "; ".join(lacking))


@of_agent(
    "card-interface-version",
    WARNING,
    "§3.6, CARD-05",
    means="Clients compare Major.Minor; another form may match nothing.",
    fix="Write the protocolVersion of an interface as Major.Minor: 1.0 or 0.3.",
)
async def interface_version(subject: Subject) -> CheckVerdict:
    """Versions of interfaces are Major.Minor."""
    versions = [text(members(one).get("protocolVersion")) for one in _listed(subject)]
    odd = [one for one in versions if one and not re.fullmatch(r"[0-9]+\.[0-9]+", one)]
    return judge(not odd, f"protocolVersion {', '.join(odd)}")


@of_agent(
    "card-binding-names",
    WARNING,
    "§5.8, CARD-13",
    means="Clients do not know this binding and skip the interface.",
    fix="Use JSONRPC, HTTP+JSON or GRPC; name a binding of your own by a URI.",
)
async def bindings(subject: Subject) -> CheckVerdict:
    """Bindings are the standard ones, or URIs."""
    names = [text(members(one).get("protocolBinding")) for one in _listed(subject)]
    names += [text(members(one).get("transport")) for one in items(subject.card.get("additionalInterfaces"))]
    names.append(text(subject.card.get("preferredTransport")))
    odd = [one for one in names if one and one not in ("JSONRPC", "HTTP+JSON", "GRPC") and ":" not in one]
    return judge(not odd, f"unknown: {', '.join(odd)}")


@of_agent(
    "card-skills",
    ERROR,
    "§4.4.5, CARD-10",
    means="Routers and planners choose by id, description and tags; this skill cannot be chosen.",
    fix="Give every skill id, name, description and at least one tag.",
)
async def skills(subject: Subject) -> CheckVerdict:
    """Each skill is whole."""
    lacking: list[str] = []
    for place, skill in enumerate(map(members, items(subject.card.get("skills")))):
        lacking += [
            f"skills[{place}].{name}" for name in ("id", "name", "description") if not text(skill.get(name))
        ]
        if not items(skill.get("tags")):
            lacking.append(f"skills[{place}].tags")
    return judge(not lacking, f"missing or empty: {', '.join(lacking[:8])}")


@of_agent(
    "card-skill-ids-unique",
    ERROR,
    "§4.4.5",
    means="A caller who names a skill may reach another one.",
    fix="Give each skill an id of its own.",
)
async def unique(subject: Subject) -> CheckVerdict:
    """No two skills share an id."""
    names = [text(members(one).get("id")) for one in items(subject.card.get("skills"))]
    twice = sorted({one for one in names if one and names.count(one) > 1})
    return judge(not twice, f"used more than once: {', '.join(twice)}")


@of_agent(
    "card-modes",
    WARNING,
    "§4.4.1",
    means="Clients match modes as media types; a word such as `text` matches nothing.",
    fix="Write modes as media types: text/plain, application/json.",
)
async def modes(subject: Subject) -> CheckVerdict:
    """Modes are media types."""
    card = subject.card
    found = [*items(card.get("defaultInputModes")), *items(card.get("defaultOutputModes"))]
    for skill in map(members, items(card.get("skills"))):
        found += [*items(skill.get("inputModes")), *items(skill.get("outputModes"))]
    odd = sorted({str(one) for one in found if not _MEDIA.fullmatch(text(one))})
    return judge(not odd, f"no media types: {', '.join(odd[:5])}")


@of_agent(
    "card-provider",
    ERROR,
    "§4.4.2, CARD-10",
    means="Clients that check cards refuse this one.",
    fix="Give the provider both organization and url, or leave it out.",
)
async def provider(subject: Subject) -> CheckVerdict:
    """A provider is whole."""
    if "provider" not in subject.card:
        return skipped("the card names no provider")
    found = members(subject.card.get("provider"))
    lacking = [name for name in ("organization", "url") if not text(found.get(name))]
    return judge(not lacking, f"provider lacks {', '.join(lacking)}")


@of_agent(
    "card-security-schemes",
    ERROR,
    "§4.5, CARD-11",
    means="Clients cannot tell which credentials to send.",
    fix="Make each scheme one of the known kinds, and name in the requirements only schemes that are there.",
)
async def security_schemes(subject: Subject) -> CheckVerdict:
    """Schemes are of a known kind, and requirements name existing ones."""
    schemes = members(subject.card.get("securitySchemes"))
    wrong = [f"{name} is of no known kind" for name, one in schemes.items() if not _is_scheme(members(one))]
    wrong += [f"{name} is required but not described" for name in required_of(subject.card) - set(schemes)]
    return judge(not wrong, "; ".join(sorted(wrong)))


@of_agent(
    "card-no-secrets",
    ERROR,
    "§14.3, CARD-12",
    means="The card is public: whoever reads it has the secret.",
    fix="Take it out of the card, and make a new one.",
)
async def secrets(subject: Subject) -> CheckVerdict:
    """Nothing in the card looks like a secret."""
    for path, said in _texts(subject.card, ""):
        if _SECRET.search(said):
            return failed(f"{path.lstrip('.')} looks like a secret")
    return PASSED


@of_agent(
    "card-signature",
    ERROR,
    "§8.4.2, SIG-01",
    means="Clients that check signatures refuse the card.",
    fix="Put alg and kid into the protected header of each signature (base64url of a JSON object).",
)
async def signature(subject: Subject) -> CheckVerdict:
    """Each signature says how it was made."""
    signatures = items(subject.card.get("signatures"))
    if not signatures:
        return skipped("the card is not signed")
    for place, one in enumerate(map(members, signatures)):
        header = members(parsed(_decoded(text(one.get("protected")))))
        lacking = [name for name in ("alg", "kid") if not text(header.get(name))]
        if lacking or not text(one.get("signature")):
            return failed(f"signatures[{place}] lacks {', '.join(lacking) or 'signature'}")
    return PASSED


def required_of(card: dict[str, Any]) -> set[str]:
    """The names of all schemes that the card requires."""
    newer = [members(members(one).get("schemes") or one) for one in items(card.get("securityRequirements"))]
    older = [members(one) for one in items(card.get("security"))]
    return {name for one in [*newer, *older] for name in one}


def _is_scheme(one: dict[str, Any]) -> bool:
    wrappers = [name for name in one if name in _WRAPPERS]
    return len(wrappers) == 1 or text(one.get("type")) in _TYPES


def _listed(subject: Subject) -> list[Any]:
    return items(subject.card.get("supportedInterfaces"))


def _interfaces(card: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    for place, one in enumerate(items(card.get("supportedInterfaces"))):
        names = ("url", "protocolBinding", "protocolVersion")
        yield f"supportedInterfaces[{place}]", members(one), names
    for place, one in enumerate(items(card.get("additionalInterfaces"))):
        yield f"additionalInterfaces[{place}]", members(one), ("url", "transport")


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    for name, inner in members(value).items():
        yield from _texts(inner, f"{path}.{name}")
    for place, inner in enumerate(items(value)):
        yield from _texts(inner, f"{path}[{place}]")


def _decoded(encoded: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return b""
