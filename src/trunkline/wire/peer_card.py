"""The lenient reader of other agents' cards, of every version and dialect."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.errors import ParseError, Unreadable
from trunkline.wire.card import Extension, Provider, Skill
from trunkline.wire.decode_errors import UNREADABLE, check_structure
from trunkline.wire.error_reader import printable
from trunkline.wire.peer_schemes import PeerScheme, items, members, read_security, take, text, texts

__all__ = ["Interface", "PeerCard", "PeerScheme", "read_card"]


# Whoever looks for one that works tries them in turn: a card must not send callers all over the world.
INTERFACES = 32


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
    except (*UNREADABLE, ParseError):
        raise Unreadable(f"this is no agent card but: {printable(raw)}") from None
    if not isinstance(found, dict):
        raise Unreadable(f"an agent card is a JSON object; this is: {printable(raw)}")
    document = cast("dict[str, Any]", found)
    if not document.keys() & _TELLING:
        raise Unreadable(f"this JSON is no agent card, as it has neither name nor url: {printable(raw)}")
    return _Reader(document).card()


_TELLING = {"name", "url", "skills", "supportedInterfaces", "supported_interfaces", "protocolVersion"}
_BINDINGS = {
    "jsonrpc": "JSONRPC",
    "jsonrpc2.0": "JSONRPC",
    "httpjson": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
}


class _Reader:
    """Reads one card and notes what is odd about it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._oddities: list[str] = []

    def card(self) -> PeerCard:
        """The whole card."""
        document = self._document
        capabilities = members(take(document, "capabilities"))
        if "capabilities" not in document:
            self._odd("capabilities are missing: it is taken to neither stream nor push")
        schemes, requirements = read_security(document, self._odd)
        return PeerCard(
            name=self._text("name"),
            description=self._text("description"),
            version=self._text("version"),
            interfaces=self._interfaces(),
            skills=self._skills(),
            default_input_modes=texts(take(document, "defaultInputModes")),
            default_output_modes=texts(take(document, "defaultOutputModes")),
            streaming=self._flag(capabilities, "streaming"),
            push=self._flag(capabilities, "pushNotifications"),
            extended_card=self._flag(capabilities, "extendedAgentCard")
            or self._flag(document, "supportsAuthenticatedExtendedCard"),
            extensions=_extensions(capabilities),
            provider=_provider(take(document, "provider")),
            schemes=schemes,
            requirements=requirements,
            oddities=tuple(self._oddities),
            document=document,
        )

    def _odd(self, what: str) -> None:
        if what not in self._oddities:
            self._oddities.append(what)

    def _text(self, name: str) -> str:
        found = take(self._document, name)
        if isinstance(found, str) and found:
            return found
        self._odd(f"{name} is missing" if found is None else f"{name} is no text")
        return ""

    def _flag(self, holder: dict[str, Any], name: str) -> bool:
        found = take(holder, name)
        if found in ("true", "True"):
            self._odd(f"{name} is a text, not true or false")
            return True
        return found is True

    def _interfaces(self) -> tuple[Interface, ...]:
        listed = [self._interface(one) for one in items(take(self._document, "supportedInterfaces"))]
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
        url = text(take(given, "url"))
        if not url:
            self._odd("supportedInterfaces: an entry has no url")
            return None
        version = _version(take(given, "protocolVersion"))
        if not version:
            self._odd("supportedInterfaces: an entry has no protocolVersion")
        binding = text(take(given, "protocolBinding")) or text(take(given, "transport"))
        if not binding:
            self._odd("supportedInterfaces: an entry has no protocolBinding; JSONRPC is taken")
        return Interface(url, _binding(binding), version, text(take(given, "tenant")))

    def _old_interfaces(self, *, alone: bool) -> list[Interface]:
        """Those of 0.3 and before: one address, and others beside it."""
        document = self._document
        url = text(take(document, "url"))
        version = _version(take(document, "protocolVersion"))
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
        main = Interface(url, _binding(text(take(document, "preferredTransport"))), version, "", words)
        others = [
            Interface(text(take(one, "url")), _binding(text(take(one, "transport"))), version, "", words)
            for one in items(take(document, "additionalInterfaces"))
            if text(take(one, "url"))
        ]
        return [main, *others]

    def _skills(self) -> tuple[Skill, ...]:
        if "skills" not in self._document:
            self._odd("skills are missing")
        found: list[Skill] = []
        for one in items(take(self._document, "skills")):
            skill_id = text(take(one, "id")) or text(take(one, "name"))
            if not skill_id:
                self._odd("skills: one has neither id nor name")
                continue
            if not text(take(one, "id")):
                self._odd(f"skills: {skill_id!a} has no id")
            found.append(
                Skill(
                    skill_id,
                    text(take(one, "name")) or skill_id,
                    text(take(one, "description")),
                    texts(take(one, "tags")),
                    texts(take(one, "examples")),
                    texts(take(one, "inputModes")),
                    texts(take(one, "outputModes")),
                )
            )
        return tuple(found)


def _binding(given: str) -> str:
    plain = "".join(letter for letter in given.lower() if letter.isalnum() or letter == ".")
    return _BINDINGS.get(plain, given) if plain else "JSONRPC"


def _version(given: object) -> str:
    # A number is a text whose quotes were forgotten.
    if isinstance(given, int | float) and not isinstance(given, bool):
        return str(given)
    return text(given).strip().removeprefix("v")


def _extensions(capabilities: dict[str, Any]) -> tuple[Extension, ...]:
    return tuple(
        Extension(
            text(take(one, "uri")),
            text(take(one, "description")),
            take(one, "required") is True,
            members(take(one, "params")) or None,
        )
        for one in items(take(capabilities, "extensions"))
        if text(take(one, "uri"))
    )


def _provider(given: object) -> Provider | None:
    if isinstance(given, str) and given:
        return Provider(given, "")
    known = members(given)
    name = text(take(known, "organization")) or text(take(known, "name"))
    return Provider(name, text(take(known, "url"))) if name else None
