"""Row 58, filters: by id, by name, by beginning, by tag."""

from __future__ import annotations

import asyncio
import logging

import pytest

from trunkline.bridge.tools import tools
from trunkline.errors import Misuse
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard

CARD = PeerCard(
    name="shop",
    skills=(
        Skill("buy", "Buy", "", ("money", "goods")),
        Skill("sell", "Sell", "", ("money",)),
        Skill("show", "Show", "", ("goods",)),
    ),
)


def picked(**filters: list[str]) -> list[str]:
    async def main() -> list[str]:
        return [tool.skill for tool in await tools(CARD, **filters)]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("filters", "skills"),
    [
        ({}, ["buy", "sell", "show"]),
        ({"allow": ["sell"]}, ["sell"]),
        ({"allow": ["a2a__shop__sell", "buy"]}, ["buy", "sell"]),
        ({"allow": ["s*"]}, ["sell", "show"]),
        ({"allow": ["a2a__shop__*"], "deny": ["show"]}, ["buy", "sell"]),
        ({"deny": ["s*"]}, ["buy"]),
        ({"allow": ["buy"], "deny": ["buy"]}, []),
        ({"tags": ["money"]}, ["buy", "sell"]),
        ({"tags": ["money"], "deny": ["buy"]}, ["sell"]),
        ({"tags": ["nothing"]}, []),
    ],
)
def test_filters(filters: dict[str, list[str]], skills: list[str]) -> None:
    assert picked(**filters) == skills


def test_an_entry_that_fits_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert picked(deny=["shwo"]) == ["buy", "sell", "show"]
    assert [record.getMessage() for record in caplog.records] == [
        "tools.no_such_skill entry='shwo' known='buy,sell,show'"
    ]


def test_a_text_is_no_list() -> None:
    with pytest.raises(Misuse, match=r"allow=\['buy'\]"):
        tools(CARD, allow="buy")
