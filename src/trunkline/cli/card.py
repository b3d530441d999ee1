"""`trunkline card get`."""

from __future__ import annotations

import msgspec

from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.schema import faults
from trunkline.cli.screen import document, field
from trunkline.cli.session import Session
from trunkline.errors import ExtendedCardNotConfigured, TrunklineError, Unreadable
from trunkline.wire.peer_card import PeerCard, PeerScheme


def get(given: Given) -> None:
    """Fetch a card and show it."""
    carry_out(given, _get, alone=True)


async def _get(session: Session) -> None:
    choices = session.choices
    card = await session.card()
    if choices.flag("extended"):
        if not card.extended_card:
            raise ExtendedCardNotConfigured("the card does not say that there is an extended one")
        card = await session.client.extended_card()
    if choices.flag("validate") and (wrong := faults(card.document)):
        session.finding = True
        raise Unreadable("; ".join(wrong))
    if choices.as_json:
        document(msgspec.json.encode(card.document), compact=choices.streams)
        return
    _show(card, verbose=choices.flag("verbose"))
    if choices.flag("validate"):
        field("Valid", "yes")
    try:
        field("Interface", await session.client.interface())
    except TrunklineError as error:
        field("Interface", f"none: {error}")


def _show(card: PeerCard, *, verbose: bool) -> None:
    field("Name", card.name)
    for label, value in (("Description", card.description), ("Version", card.version)):
        if value:
            field(label, value)
    if card.provider is not None:
        field("Provider", card.provider.organization)
    for capability, there in (
        ("Streaming", card.streaming),
        ("Push", card.push),
        ("Extended card", card.extended_card),
    ):
        field(capability, "yes" if there else "no")
    for each in card.interfaces:
        tenant = f" tenant {each.tenant}" if each.tenant else ""
        field("Offers", f"{each.binding} {each.version or '(no version)'} at {each.url}{tenant}")
    for name, scheme in card.schemes.items():
        field("Security", f"{name}: {_described(scheme)}")
    for skill in card.skills:
        field("Skill", f"{skill.id}: {skill.name}")
        if verbose:
            field("Skill description", skill.description)
            field("Skill tags", ", ".join(skill.tags))
    if verbose:
        field("Input modes", ", ".join(card.default_input_modes))
        field("Output modes", ", ".join(card.default_output_modes))
        for extension in card.extensions:
            field("Extension", extension.uri)
    for oddity in card.oddities:
        field("Odd", oddity)


def _described(scheme: PeerScheme) -> str:
    words = {
        "apiKey": f"API key in {scheme.place} {scheme.name}",
        "http": f"HTTP {scheme.scheme}",
        "oauth2": "OAuth 2",
        "openIdConnect": f"OpenID Connect at {scheme.discovery_url}",
        "mutualTLS": "mutual TLS",
    }
    return words.get(scheme.kind, scheme.kind)
