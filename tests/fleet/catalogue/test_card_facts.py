"""What is taken of a card, and when it is asked for again."""

from __future__ import annotations

import json

import pytest

from tests.fleet.catalogue.cards import card
from trunkline.errors import Unreadable
from trunkline.fleet.catalogue.card_facts import facts_of, kept_of, pause_s
from trunkline.wire.peer_card import read_card


def test_what_a_card_says() -> None:
    raw = card("a", "draft", "draft", "", "x" * 5000, url="https://a.example/a2a", streaming=True)
    found = facts_of(read_card(json.dumps(raw).encode()), "https://a.example/other", 7)
    assert [one.id for one in found.skills] == ["draft"]
    assert (found.at, found.streaming, found.push, found.versions, found.note) == (
        7,
        True,
        False,
        ("0.3",),
        "",
    )
    odd = facts_of(read_card(json.dumps(raw).encode()), "https://b.example/a2a", 7)
    assert "https://a.example" in odd.note


@pytest.mark.parametrize("version", ["9\nstate: ready", "9" * 5000, "9\x1b[2J"])
def test_a_version_of_the_protocol_that_is_none_is_left_out(version: str) -> None:
    raw = {**card("a", "draft"), "protocolVersion": version}
    assert facts_of(read_card(json.dumps(raw).encode()), "https://a.example/", 7).versions == ()


@pytest.mark.parametrize("url", ["http://[::1", "http://\u2100.example/", "http://[x]y/a2a"])
def test_an_address_on_a_card_that_cannot_be_read_is_told_as_another_one(url: str) -> None:
    found = facts_of(read_card(json.dumps(card("a", "draft", url=url)).encode()), "https://a.example/", 7)
    assert [one.id for one in found.skills] == ["draft"] and found.note.startswith("its card names http://")


@pytest.mark.parametrize(
    ("failures", "draw", "wanted"),
    [(0, 0.0, 600.0), (0, 1.0, 660.0), (1, 1.0, 2.0), (1, 0.0, 1.0), (4, 1.0, 16.0), (500, 1.0, 600.0)],
)
def test_pauses(failures: int, draw: float, wanted: float) -> None:
    assert pause_s(600.0, failures, draw) == pytest.approx(wanted)


def test_of_a_large_card_a_part_is_kept() -> None:
    raw = card("a", *[f"skill-{number}" for number in range(5000)])
    whole = read_card(json.dumps({**raw, "more": ["x"] * 1000}).encode())
    kept = kept_of(whole)
    assert (kept.skills, kept.document) == (whole.skills[:1000], {})
    wordy = [{**raw["skills"][0], "id": str(number), "description": "x" * 30_000} for number in range(30)]
    assert len(kept_of(read_card(json.dumps({**raw, "skills": wordy}).encode())).skills) == 8
    with pytest.raises(Unreadable):
        kept_of(read_card(json.dumps({**raw, "description": "x" * 100_000}).encode()))


GOOD = {"domain": "board", "path": "open", "delta": -1, "confidence": 0.8}
BROKEN = [
    None,
    {"domain": "board"},
    {**GOOD, "confidence": 2},
    {**GOOD, "delta": "many"},
    {**GOOD, "path": "x" * 257},
    {**GOOD, "domain": "a\x1bb"},
]


def test_declared_effects_are_read_and_malformed_ones_left_out() -> None:
    params = {"skills": {"draft": {"effects": [*BROKEN, GOOD]}, "chat": {"effects": "x"}, "odd": 7}}
    raw = card("a", "draft")
    raw["capabilities"] = {
        "extensions": [
            {"uri": "https://a.example/ext/effect-domain-v1", "params": params},
            {"uri": "https://a.example/ext/other", "params": {"skills": {"chat": {"effects": [GOOD]}}}},
        ]
    }
    found = facts_of(read_card(json.dumps(raw).encode()), "https://a.example/", 7)
    (effect,) = found.effects["draft"]
    assert (effect.name, effect.delta, effect.confidence) == ("board:open", -1, 0.8)
    assert found.effects.keys() == {"draft"}
