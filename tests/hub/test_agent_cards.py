"""The card of an agent of the catalogue: what it can do, and nothing of where and how it is called."""

from __future__ import annotations

import json

from trunkline.fleet.catalogue.card_facts import facts_of
from trunkline.fleet.catalogue.entry import Entry, EntrySkill
from trunkline.fleet.catalogue.listed import list_entry
from trunkline.hub.agent_cards import card_of
from trunkline.hub.front import hub_card
from trunkline.hub.workspace import HubFile
from trunkline.peer.remote import Peer
from trunkline.wire.card import card_hybrid, card_v1, check_card
from trunkline.wire.peer_card import read_card

CANARY = "canary-4b1e"
INSIDE = f"http://{CANARY}.internal"
CARD = {
    "name": f"Own {CANARY}", "description": "Writes\nand \x1b[31mreads\x00", "version": "3.2\n1",
    "supportedInterfaces": [{"url": INSIDE, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "provider": {"organization": CANARY, "url": INSIDE}, "iconUrl": INSIDE, "documentationUrl": INSIDE,
    "capabilities": {"streaming": False, "extensions": [{"uri": f"{INSIDE}/ext", "params": {"a": CANARY}}]},
    "securitySchemes": {CANARY: {"apiKeySecurityScheme": {"location": "header", "name": CANARY}}},
    "securityRequirements": [{"schemes": {CANARY: {"list": []}}}],
    "defaultInputModes": ["text/plain", "image/png", "a\nb", "x" * 500, "image/png"],
    "defaultOutputModes": ["application/json"],
    "skills": [
        {"id": "draft", "name": "Dra\x07ft", "description": "Writes.\x00", "tags": ["t\x1b"],
         "examples": ["A note\x00"], "inputModes": ["audio/wav", "no mode"], "security": [{CANARY: []}]},
    ],
    "signatures": [{"protected": CANARY, "signature": CANARY}],
}  # fmt: skip


def test_the_card_of_a_remote_agent_is_written_anew() -> None:
    entry = Entry(name="writer", owner="file", peer=Peer(url=INSIDE))
    facts = facts_of(read_card(json.dumps(CARD).encode()), INSIDE, 1)
    card = card_of(list_entry(entry, facts, "", ""))
    # One that cannot be shown would take down whatever lists its skills.
    check_card(card)
    assert (card.name, card.version, card.streaming) == ("writer", "3.2 1", True)
    assert (card.default_input_modes, card.default_output_modes) == (
        ("text/plain", "image/png"),
        ("application/json",),
    )
    (skill,) = card.skills
    assert (skill.name, skill.tags, skill.examples) == ("Dra ft", ("t",), ("A note ",))
    assert skill.input_modes == ("audio/wav",)
    for written in (card_v1(card), card_hybrid(card)):
        assert CANARY not in written.decode()


def test_an_agent_without_a_card_is_shown_by_its_entry() -> None:
    entry = Entry(name="writer", owner="file", skills=(EntrySkill(id="draft", name="Draft"),))
    card = card_of(list_entry(entry, None, "", ""))
    assert (card.version, card.default_input_modes, card.skills[0].tags) == (
        "1",
        ("text/plain",),
        ("writer",),
    )


def test_a_hub_reads_and_writes_what_any_of_its_agents_does() -> None:
    facts = facts_of(read_card(json.dumps(CARD).encode()), INSIDE, 1)
    writer = list_entry(Entry(name="writer", owner="file", peer=Peer(url=INSIDE)), facts, "", "")
    plain = list_entry(
        Entry(name="plain", owner="file", skills=(EntrySkill(id="draft", name="Draft"),)), None, "", ""
    )
    card = hub_card(HubFile(), [writer, plain])
    check_card(card)
    assert card.default_input_modes == ("audio/wav", "image/png", "text/plain")
    assert card.default_output_modes == ("application/json", "text/plain")
    assert [(one.id, one.tags) for one in card.skills] == [("draft", ("routed", "writer", "plain"))]
    assert hub_card(HubFile(), []).default_input_modes == ("text/plain",)
