"""`trunkline card get`, and whether a card is as its version of the protocol says."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from trunkline.cli.console import print_field, print_given, print_json
from trunkline.cli.next_command import TEXT, print_next
from trunkline.cli.options import CALLING
from trunkline.cli.parsing import ClientGroup, Commands
from trunkline.cli.session import Session
from trunkline.errors import ExtendedCardNotConfigured, TrunklineError, Unreadable
from trunkline.wire.card import Provider, Skill
from trunkline.wire.peer_card import PeerCard, PeerScheme


class CardGroup(ClientGroup):
    """`card get` is the only thing to do with a card."""

    default = "get"


commands = Commands(CardGroup)


@commands.calling("get", "validate", "extended", *CALLING, "stream")
async def get(session: Session) -> None:
    """Fetch an agent's card and show it."""
    config = session.config
    card = await session.card()
    if config.flag("extended"):
        if not card.extended_card:
            raise ExtendedCardNotConfigured("the card does not say that there is an extended one")
        card = await session.client.extended_card()
    if config.flag("validate") and (wrong := card_faults(card.document)):
        session.finding_card = True
        raise Unreadable("; ".join(wrong))
    if config.as_json:
        print_json(card.document, compact=config.flag("stream"))
        return
    _show(card, verbose=config.flag("verbose"))
    if config.flag("validate"):
        print_field("Valid", "yes")
    try:
        await session.compatible_card()
        print_field("Interface", await session.client.interface())
    except TrunklineError as error:
        print_field("Interface", f"none: {error}")
    print_next(session.command("send", TEXT))


def _show(card: PeerCard, *, verbose: bool) -> None:
    print_field("Name", card.name)
    print_given(Description=card.description, Version=card.version)
    if card.provider is not None:
        print_field("Provider", card.provider.organization)
    capabilities = {"Streaming": card.streaming, "Push": card.push, "Extended card": card.extended_card}
    for capability, there in capabilities.items():
        print_field(capability, "yes" if there else "no")
    for each in card.interfaces:
        tenant = f" tenant {each.tenant}" if each.tenant else ""
        print_field("Offers", f"{each.binding} {each.version or '(no version)'} at {each.url}{tenant}")
    for name, scheme in card.schemes.items():
        print_field("Security", f"{name}: {_described(scheme)}")
    for skill in card.skills:
        print_field("Skill", f"{skill.id}: {skill.name}")
        if verbose:
            print_field("Skill description", skill.description)
            print_field("Skill tags", ", ".join(skill.tags))
    if verbose:
        print_field("Input modes", ", ".join(card.default_input_modes))
        print_field("Output modes", ", ".join(card.default_output_modes))
        for extension in card.extensions:
            print_field("Extension", extension.uri)
    for oddity in card.oddities:
        print_field("Odd", oddity)


def _described(scheme: PeerScheme) -> str:
    words = {
        "apiKey": f"API key in {scheme.place} {scheme.name}",
        "http": f"HTTP {scheme.scheme}",
        "oauth2": "OAuth 2",
        "openIdConnect": f"OpenID Connect at {scheme.discovery_url}",
        "mutualTLS": "mutual TLS",
    }
    return words.get(scheme.kind, scheme.kind)


class _ExpectedInterface(Struct, rename="camel"):
    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str = ""


class _ExpectedCapabilities(Struct, rename="camel"):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extended_agent_card: bool | None = None
    extensions: list[dict[str, Any]] = []


class _ExpectedSignature(Struct):
    protected: str
    signature: str
    header: dict[str, Any] | None = None


_REQUIRED: dict[str, Any] = {
    "name": str,
    "description": str,
    "version": str,
    "capabilities": _ExpectedCapabilities,
    "defaultInputModes": list[str],
    "defaultOutputModes": list[str],
    "skills": list[Skill],
}
_OPTIONAL: dict[str, Any] = {
    "provider": Provider,
    "documentationUrl": str,
    "iconUrl": str,
    "securitySchemes": dict[str, dict[str, Any]],
    "signatures": list[_ExpectedSignature],
}
_SINCE_1_0: dict[str, Any] = {"supportedInterfaces": list[_ExpectedInterface]}
_OF_0_3: dict[str, Any] = {"url": str, "protocolVersion": str}


def card_faults(card: dict[str, Any]) -> list[str]:
    """Whatever a card lacks or has of the wrong type, each with the member that it is about.

    A card without `supportedInterfaces` is judged as one of 0.3 if it says so, or has the `url` of one.
    """
    named = str(card.get("protocolVersion", ""))
    older = "supportedInterfaces" not in card and (named.startswith("0.") or (not named and "url" in card))
    required = {**_REQUIRED, **(_OF_0_3 if older else _SINCE_1_0)}
    found = [f"{name} is missing" for name in required if name not in card]
    for name, kind in {**required, **_OPTIONAL}.items():
        try:
            if name in required and name in card or card.get(name) is not None:
                msgspec.convert(card[name], kind)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            found.append(f"{name}{path.rstrip('`')}: {text}")
    return [*found, "supportedInterfaces is empty"] if card.get("supportedInterfaces") == [] else found
