"""The agent card: one canonical `Card`, written as pure 1.0 or as one card that both versions read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.wire.types import Metadata, WireStruct

# Under this URI a card gives the JSON schema of a skill's data part: `{skills: {<id>: {schema: …}}}`.
SKILL_PARAMETERS = "https://trunkline.dev/a2a/ext/skill-parameters/v1"


# In which member 1.0 puts a security scheme, by the `type` that it has in 0.3.
SCHEME_WRAPPERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}


class Skill(WireStruct, frozen=True):
    """A skill as the card lists it."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class Provider(WireStruct, frozen=True):
    """Who runs the agent."""

    organization: str
    url: str


class Extension(WireStruct, frozen=True):
    """A protocol extension the agent speaks."""

    uri: str
    description: str
    required: bool
    params: Metadata | None = None


class ApiKeyScheme(Struct, frozen=True):
    """The security scheme of an API key in a header."""

    header: str
    description: str = ""


class BearerScheme(Struct, frozen=True):
    """The security scheme of a token in `Authorization: Bearer`."""

    bearer_format: str = ""
    description: str = ""


class OpenIdScheme(Struct, frozen=True):
    """The security scheme of a token whose issuer is found by OpenID discovery."""

    url: str
    description: str = ""


Scheme = ApiKeyScheme | BearerScheme | OpenIdScheme


class Card(Struct, frozen=True, kw_only=True):
    """All that a card says, whatever the version. Each requirement lists schemes that go together."""

    name: str
    description: str
    version: str
    rpc_url: str
    rest_url: str
    skills: tuple[Skill, ...]
    default_input_modes: tuple[str, ...] = ("text/plain",)
    default_output_modes: tuple[str, ...] = ("text/plain",)
    streaming: bool = True
    push: bool = False
    extended_card: bool = False
    extensions: tuple[Extension, ...] = ()
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    schemes: dict[str, Scheme] = {}
    requirements: tuple[tuple[str, ...], ...] = ()


_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_CONTROL_BUT_LINES = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f]")


def plain_name(text: str) -> str:
    """A name of somebody else's without what would end a line or steer a terminal."""
    return _CONTROL.sub(" ", text).strip()


def plain_prose(text: str) -> str:
    """A text of somebody else's, which may have several lines, without what would steer a terminal."""
    return _CONTROL_BUT_LINES.sub(" ", text)


def check_card(card: Card) -> None:
    """Check the texts of a card: names go into headers, logs and terminals, and may not end a line there.

    Raises:
        Misuse: one does; the message names it.
    """
    for where, text in _names(card):
        if _CONTROL.search(text):
            raise Misuse(f"{where} holds a line end or another control character: {text[:64]!a}")
    prose = [("the agent's description", card.description)]
    for skill in card.skills:
        prose += [(f"skill {skill.id}: its texts", text) for text in (skill.description, *skill.examples)]
    for where, text in prose:
        if _CONTROL_BUT_LINES.search(text):
            raise Misuse(f"{where} may hold line ends but no other control characters: {text[:64]!a}")


def _names(card: Card) -> Iterator[tuple[str, str]]:
    yield from (("the agent's name", card.name), ("the agent's version", card.version))
    yield from (("icon_url", card.icon_url), ("documentation_url", card.documentation_url))
    if card.provider is not None:
        yield from (("the provider", card.provider.organization), ("the provider's url", card.provider.url))
    for mode in (*card.default_input_modes, *card.default_output_modes):
        yield "a media type", mode
    for skill in card.skills:
        for text in (skill.id, skill.name, *skill.tags, *skill.input_modes, *skill.output_modes):
            yield f"skill {skill.id!a}", text


def card_v1(card: Card) -> bytes:
    """The card as 1.0 has it, and nothing else: strict readers refuse members they do not know."""
    return msgspec.json.encode(_document(card, {name: _wrapped(one) for name, one in _schemes(card)}))


def card_hybrid(card: Card) -> bytes:
    """One card for readers of both versions: 1.0 with the top-level members of 0.3."""
    # The members of a 0.3 scheme stand beside the wrapper; each side's readers skip the other's.
    schemes = {name: {**_wrapped(one), **one} for name, one in _schemes(card)}
    old = {
        "protocolVersion": "0.3.0",
        "url": card.rpc_url,
        "preferredTransport": "JSONRPC",
        # 0.3 wants the main url listed here again.
        "additionalInterfaces": [{"url": url, "transport": binding} for url, binding in _addresses(card)],
        "supportsAuthenticatedExtendedCard": card.extended_card,
    }
    security = [dict.fromkeys(names, ()) for names in card.requirements]
    return msgspec.json.encode({**_document(card, schemes), **old, **_given(security=security)})


def _document(card: Card, schemes: dict[str, Metadata]) -> Metadata:
    requirements = [{"schemes": {name: {"list": ()} for name in names}} for names in card.requirements]
    return {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        # Clients of 0.3 put `/v1/…` behind the url of REST themselves.
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for version in ("1.0", "0.3")
            for url, binding in _addresses(card)
        ],
        **_given(provider=card.provider, iconUrl=card.icon_url, documentationUrl=card.documentation_url),
        "capabilities": {
            "streaming": card.streaming,
            "pushNotifications": card.push,
            "extendedAgentCard": card.extended_card,
            **_given(extensions=card.extensions),
        },
        **_given(securitySchemes=schemes, securityRequirements=requirements),
        "defaultInputModes": card.default_input_modes,
        "defaultOutputModes": card.default_output_modes,
        "skills": card.skills,
    }


def _addresses(card: Card) -> tuple[tuple[str, str], ...]:
    return (card.rpc_url, "JSONRPC"), (card.rest_url, "HTTP+JSON")


def _given(**members: object) -> Metadata:
    """Those members that say anything; the others are left out."""
    return {name: value for name, value in members.items() if value}


def _schemes(card: Card) -> Iterator[tuple[str, Metadata]]:
    """The schemes by name, with the members that they have in 0.3."""
    for name, scheme in card.schemes.items():
        if isinstance(scheme, ApiKeyScheme):
            members = {"type": "apiKey", "in": "header", "name": scheme.header}
        elif isinstance(scheme, OpenIdScheme):
            members = {"type": "openIdConnect", "openIdConnectUrl": scheme.url}
        else:
            members = {"type": "http", "scheme": "Bearer", **_given(bearerFormat=scheme.bearer_format)}
        yield name, {**members, **_given(description=scheme.description)}


def _wrapped(scheme: Metadata) -> Metadata:
    """A scheme of 0.3 in the wrapper of 1.0, which stands for its type; what was `in` is a location."""
    inner = {"location" if name == "in" else name: value for name, value in scheme.items() if name != "type"}
    return {SCHEME_WRAPPERS[scheme["type"]]: inner}
