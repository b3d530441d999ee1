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


class _CardInterface(WireStruct, frozen=True):
    url: str
    protocol_binding: str
    protocol_version: str


class _CardCapabilities(WireStruct, frozen=True):
    streaming: bool
    push_notifications: bool
    extended_agent_card: bool
    extensions: tuple[Extension, ...] = ()


class _ApiKeyDocument(WireStruct, frozen=True):
    location: str
    name: str
    description: str = ""


class _HttpAuth(WireStruct, frozen=True):
    scheme: str
    bearer_format: str = ""
    description: str = ""


class _OpenId(WireStruct, frozen=True):
    open_id_connect_url: str
    description: str = ""


class _Scheme(WireStruct, frozen=True):
    """The 1.0 wrapper; in a hybrid card it also carries the members of the 0.3 scheme."""

    api_key_security_scheme: _ApiKeyDocument | None = None
    http_auth_security_scheme: _HttpAuth | None = None
    open_id_connect_security_scheme: _OpenId | None = None
    type: str = ""
    location: str = msgspec.field(default="", name="in")
    name: str = ""
    scheme: str = ""
    bearer_format: str = ""
    open_id_connect_url: str = ""
    description: str = ""


class _CardInterface03(Struct, frozen=True):
    url: str
    transport: str


class _Scopes(Struct, frozen=True):
    list: tuple[str, ...] = ()


class _Requirement(Struct, frozen=True):
    schemes: dict[str, _Scopes]


class _CardDocument(WireStruct, frozen=True, kw_only=True):
    name: str
    description: str
    version: str
    supported_interfaces: tuple[_CardInterface, ...]
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    capabilities: _CardCapabilities
    security_schemes: dict[str, _Scheme] = {}
    security_requirements: tuple[_Requirement, ...] = ()
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[Skill, ...]
    # Below: the top-level members of 0.3, unset in a pure 1.0 card.
    protocol_version: str = ""
    url: str = ""
    preferred_transport: str = ""
    additional_interfaces: tuple[_CardInterface03, ...] = ()
    supports_authenticated_extended_card: bool | None = None
    security: tuple[dict[str, tuple[str, ...]], ...] = ()


def card_v1(card: Card) -> bytes:
    """The card as 1.0 has it, and nothing else: strict readers refuse members they do not know."""
    return msgspec.json.encode(_pure(card))


def card_hybrid(card: Card) -> bytes:
    """One card for readers of both versions: 1.0 with the top-level members of 0.3."""
    pure = _pure(card)
    hybrid = msgspec.structs.replace(
        pure,
        security_schemes={name: _for_both(scheme) for name, scheme in card.schemes.items()},
        protocol_version="0.3.0",
        url=card.rpc_url,
        preferred_transport="JSONRPC",
        # 0.3 wants the main url listed here again.
        additional_interfaces=(
            _CardInterface03(card.rpc_url, "JSONRPC"),
            _CardInterface03(card.rest_url, "HTTP+JSON"),
        ),
        supports_authenticated_extended_card=card.extended_card,
        security=tuple({name: () for name in names} for names in card.requirements),
    )
    return msgspec.json.encode(hybrid)


def _pure(card: Card) -> _CardDocument:
    return _CardDocument(
        name=card.name,
        description=card.description,
        version=card.version,
        supported_interfaces=(
            _CardInterface(card.rpc_url, "JSONRPC", "1.0"),
            _CardInterface(card.rest_url, "HTTP+JSON", "1.0"),
            _CardInterface(card.rpc_url, "JSONRPC", "0.3"),
            # Clients of 0.3 put `/v1/…` behind this url themselves.
            _CardInterface(card.rest_url, "HTTP+JSON", "0.3"),
        ),
        provider=card.provider,
        icon_url=card.icon_url,
        documentation_url=card.documentation_url,
        capabilities=_CardCapabilities(card.streaming, card.push, card.extended_card, card.extensions),
        security_schemes={name: _wrapped(scheme) for name, scheme in card.schemes.items()},
        security_requirements=tuple(
            _Requirement({name: _Scopes() for name in names}) for names in card.requirements
        ),
        default_input_modes=card.default_input_modes,
        default_output_modes=card.default_output_modes,
        skills=card.skills,
    )


def _wrapped(scheme: Scheme) -> _Scheme:
    if isinstance(scheme, ApiKeyScheme):
        return _Scheme(api_key_security_scheme=_ApiKeyDocument("header", scheme.header, scheme.description))
    if isinstance(scheme, OpenIdScheme):
        return _Scheme(open_id_connect_security_scheme=_OpenId(scheme.url, scheme.description))
    http = _HttpAuth("Bearer", scheme.bearer_format, scheme.description)
    return _Scheme(http_auth_security_scheme=http)


def _for_both(scheme: Scheme) -> _Scheme:
    """The wrapper with the members of a 0.3 scheme beside it; each side's readers skip the other's."""
    both = msgspec.structs.replace(_wrapped(scheme), description=scheme.description)
    if isinstance(scheme, ApiKeyScheme):
        return msgspec.structs.replace(both, type="apiKey", location="header", name=scheme.header)
    if isinstance(scheme, OpenIdScheme):
        return msgspec.structs.replace(both, type="openIdConnect", open_id_connect_url=scheme.url)
    return msgspec.structs.replace(both, type="http", scheme="Bearer", bearer_format=scheme.bearer_format)
