"""The lenient reader of other agents' cards, of every version and dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.errors import ParseError, Unreadable
from trunkline.wire.card import SCHEME_WRAPPERS, Extension, Provider, Skill
from trunkline.wire.decode import DECODE_ERRORS, check_structure
from trunkline.wire.error_reader import as_list, as_object, excerpt, take, text

# Whoever looks for one that works tries them in turn: a card must not send callers all over the world.
INTERFACES = 32


class PeerScheme(Struct, frozen=True):
    """How an agent wants to be shown who calls. `kind`: apiKey, http, oauth2, openIdConnect or mutualTLS."""

    kind: str
    # Of an apiKey: where it goes (header, query, cookie) and under which name.
    place: str = ""
    name: str = ""
    # Of http: Bearer, Basic …
    scheme: str = ""
    # Of oauth2: the flow of client credentials; of openIdConnect: the address of its discovery.
    token_url: str = ""
    scopes: tuple[str, ...] = ()
    discovery_url: str = ""


class Interface(Struct, frozen=True):
    """A place where an agent is spoken to. `binding` is JSONRPC, HTTP+JSON, GRPC or a vendor's word."""

    url: str
    binding: str = "JSONRPC"
    version: str = ""
    tenant: str = ""
    # Which version's methods and objects it takes when those are not of the version that it says: some agents
    # call themselves 1.0 and speak 0.3.
    words: str = ""


class PeerCard(Struct, frozen=True, kw_only=True):
    """What another agent says of itself. `document` is the card as it came, whole."""

    name: str
    description: str = ""
    version: str = ""
    interfaces: tuple[Interface, ...] = ()
    skills: tuple[Skill, ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    streaming: bool = False
    push: bool = False
    extended_card: bool = False
    extensions: tuple[Extension, ...] = ()
    provider: Provider | None = None
    schemes: dict[str, PeerScheme] = {}
    requirements: tuple[tuple[str, ...], ...] = ()
    # What is odd about it, in words; the reader understood it all the same.
    oddities: tuple[str, ...] = ()
    document: dict[str, Any] = {}


def read_card(raw: bytes) -> PeerCard:
    """A card, however it is spelled.

    Raises:
        Unreadable: it is no card; the text says why.
    """
    try:
        check_structure(raw)
        found = msgspec.json.decode(raw)
    except (*DECODE_ERRORS, ParseError):
        raise Unreadable(f"this is no agent card but: {excerpt(raw)}") from None
    if not isinstance(found, dict):
        raise Unreadable(f"an agent card is a JSON object; this is: {excerpt(raw)}")
    document = cast("dict[str, Any]", found)
    if not document.keys() & _TELLING:
        raise Unreadable(f"this JSON is no agent card, as it has neither name nor url: {excerpt(raw)}")
    return _CardReader(document).card()


_TELLING = {"name", "url", "skills", "supportedInterfaces", "supported_interfaces", "protocolVersion"}
_BINDINGS = {
    "jsonrpc": "JSONRPC",
    "jsonrpc2.0": "JSONRPC",
    "httpjson": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
}


class _CardReader:
    """Reads one card and notes what is odd about it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._oddities: list[str] = []

    def card(self) -> PeerCard:
        """The whole card."""
        document = self._document
        capabilities = members(document, "capabilities")
        if "capabilities" not in document:
            self._odd("capabilities are missing: it is taken to neither stream nor push")
        schemes, requirements = read_security(document, self._odd)
        return PeerCard(
            name=self._text("name"),
            description=self._text("description"),
            version=self._text("version"),
            interfaces=self._interfaces(),
            skills=self._skills(),
            default_input_modes=texts(document, "defaultInputModes"),
            default_output_modes=texts(document, "defaultOutputModes"),
            streaming=self._flag(capabilities, "streaming"),
            push=self._flag(capabilities, "pushNotifications"),
            extended_card=self._flag(capabilities, "extendedAgentCard")
            or self._flag(document, "supportsAuthenticatedExtendedCard"),
            extensions=_extensions(capabilities),
            provider=_provider(document),
            schemes=schemes,
            requirements=requirements,
            oddities=tuple(self._oddities),
            document=document,
        )

    def _odd(self, what: str) -> None:
        if what not in self._oddities:
            self._oddities.append(what)

    def _text(self, name: str) -> str:
        found = text(self._document, name)
        if not found:
            self._odd(f"{name} is missing" if take(self._document, name) is None else f"{name} is no text")
        return found

    def _flag(self, holder: dict[str, Any], name: str) -> bool:
        found = take(holder, name)
        if found in ("true", "True"):
            self._odd(f"{name} is a text, not true or false")
            return True
        return found is True

    def _interfaces(self) -> tuple[Interface, ...]:
        listed = [self._interface(one) for one in items(self._document, "supportedInterfaces")]
        found = [one for one in listed if one is not None]
        known = {(one.url.rstrip("/"), one.binding, one.version[:1]) for one in found}
        for one in self._old_interfaces(alone=not found):
            key = (one.url.rstrip("/"), one.binding, one.version[:1])
            if key not in known:
                known.add(key)
                found.append(one)
        if not found:
            self._odd("it names no address; that of the card is taken")
        if len(found) > INTERFACES:
            self._odd(f"it names {len(found)} interfaces; only the first {INTERFACES} are looked at")
        return tuple(found[:INTERFACES])

    def _interface(self, given: dict[str, Any]) -> Interface | None:
        url = text(given, "url")
        if not url:
            self._odd("supportedInterfaces: an entry has no url")
            return None
        version = _version(given)
        if not version:
            self._odd("supportedInterfaces: an entry has no protocolVersion")
        binding = text(given, "protocolBinding", "transport")
        if not binding:
            self._odd("supportedInterfaces: an entry has no protocolBinding; JSONRPC is taken")
        return Interface(url, _binding(binding), version, text(given, "tenant"))

    def _old_interfaces(self, *, alone: bool) -> list[Interface]:
        """The interfaces of a card of 0.3 and before: one address, and others beside it."""
        document = self._document
        url = text(document, "url")
        version = _version(document)
        if not url:
            return []
        words = ""
        if not version:
            if alone:
                self._odd("protocolVersion is missing; 0.3 is taken")
            version = "0.3"
        elif version.startswith("1") and alone:
            self._odd(f"protocolVersion is {version} in a card laid out as in 0.3; 0.3 is spoken to it")
            words = "0.3"
        main = Interface(url, _binding(text(document, "preferredTransport")), version, "", words)
        others = [
            Interface(text(one, "url"), _binding(text(one, "transport")), version, "", words)
            for one in items(document, "additionalInterfaces")
            if text(one, "url")
        ]
        return [main, *others]

    def _skills(self) -> tuple[Skill, ...]:
        if "skills" not in self._document:
            self._odd("skills are missing")
        found: list[Skill] = []
        for one in items(self._document, "skills"):
            skill_id = text(one, "id", "name")
            if not skill_id:
                self._odd("skills: one has neither id nor name")
                continue
            if not text(one, "id"):
                self._odd(f"skills: {skill_id!a} has no id")
            found.append(
                Skill(
                    skill_id,
                    text(one, "name") or skill_id,
                    text(one, "description"),
                    texts(one, "tags"),
                    texts(one, "examples"),
                    texts(one, "inputModes"),
                    texts(one, "outputModes"),
                )
            )
        return tuple(found)


def _binding(given: str) -> str:
    plain = "".join(letter for letter in given.lower() if letter.isalnum() or letter == ".")
    return _BINDINGS.get(plain, given) if plain else "JSONRPC"


def _version(given: dict[str, Any]) -> str:
    found = take(given, "protocolVersion")
    # A number is a text whose quotes were forgotten.
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    return text(given, "protocolVersion").strip().removeprefix("v")


def _extensions(capabilities: dict[str, Any]) -> tuple[Extension, ...]:
    return tuple(
        Extension(
            text(one, "uri"),
            text(one, "description"),
            take(one, "required") is True,
            members(one, "params") or None,
        )
        for one in items(capabilities, "extensions")
        if text(one, "uri")
    )


def _provider(document: dict[str, Any]) -> Provider | None:
    given = members(document, "provider")
    # Some give no more than its name.
    name = text(given, "organization", "name") or text(document, "provider")
    return Provider(name, text(given, "url")) if name else None


_KINDS = {kind.lower(): kind for kind in SCHEME_WRAPPERS}
_OLD = {
    "bearer": PeerScheme("http", scheme="Bearer"),
    "basic": PeerScheme("http", scheme="Basic"),
    "apikey": PeerScheme("apiKey", place="header", name="X-API-Key"),
    "oauth2": PeerScheme("oauth2"),
}

Requirements = tuple[tuple[str, ...], ...]


def read_security(
    document: dict[str, Any], odd: Callable[[str], None]
) -> tuple[dict[str, PeerScheme], Requirements]:
    """The schemes of a card by name, and which of them go together; `odd` is told what is unusual."""
    schemes: dict[str, PeerScheme] = {}
    for name, given in members(document, "securitySchemes").items():
        scheme = _scheme(given)
        if scheme is None:
            odd(f"securitySchemes: {name!a} is of no known kind")
        else:
            schemes[name] = scheme
    requirements = tuple(
        tuple(members(one, "schemes")) if "schemes" in one else tuple(one)
        for one in items(document, "securityRequirements") or items(document, "security")
    )
    if schemes or requirements:
        return schemes, requirements
    for word in texts(members(document, "authentication"), "schemes"):
        known = _OLD.get("".join(letter for letter in word.lower() if letter.isalnum()))
        odd(f"authentication.schemes, as before 0.2.5, asks for {word!a}")
        if known is not None:
            schemes[word] = known
    return schemes, tuple((name,) for name in schemes)


def _scheme(value: object) -> PeerScheme | None:
    """A scheme in the wrapper of 1.0 or with the `type` of 0.3."""
    given = as_object(value)
    for kind, wrapper in SCHEME_WRAPPERS.items():
        inner = take(given, wrapper)
        if isinstance(inner, dict):
            return _of_kind(kind, cast("dict[str, Any]", inner))
    kind = _KINDS.get(text(given, "type").lower(), "")
    return _of_kind(kind, given) if kind else None


def _of_kind(kind: str, given: dict[str, Any]) -> PeerScheme:
    if kind == "apiKey":
        place = text(given, "location", "in") or "header"
        return PeerScheme(kind, place=place, name=text(given, "name"))
    if kind == "http":
        return PeerScheme(kind, scheme=text(given, "scheme"))
    if kind == "oauth2":
        flow = members(members(given, "flows"), "clientCredentials")
        scopes = tuple(members(flow, "scopes")) or texts(flow, "scopes")
        metadata = text(given, "oauth2MetadataUrl")
        return PeerScheme(kind, token_url=text(flow, "tokenUrl"), scopes=scopes, discovery_url=metadata)
    if kind == "openIdConnect":
        return PeerScheme(kind, discovery_url=text(given, "openIdConnectUrl"))
    return PeerScheme(kind)


def texts(given: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts in a member that is a list; a lone one counts as a list of it."""
    found = take(given, name)
    listed = [found] if isinstance(found, str) and found else as_list(found)
    return tuple(one for one in listed if isinstance(one, str))


def members(given: dict[str, Any], name: str) -> dict[str, Any]:
    """A member that is an object; an empty one if it is none."""
    return as_object(take(given, name))


def items(given: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in a member that is a list; none if it is no list."""
    return [cast("dict[str, Any]", one) for one in as_list(take(given, name)) if isinstance(one, dict)]
