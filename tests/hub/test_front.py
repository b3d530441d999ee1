"""What messages at the addresses of a hub ask its dispatcher for."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from trunkline.auth.principal import CALLER, Principal
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.listed import Listed, list_entry
from trunkline.fleet.routing.dispatcher import Dispatched, Dispatcher, DispatchOrder
from trunkline.hub import front
from trunkline.hub.agent_cards import card_of
from trunkline.hub.front import hub_card, opening
from trunkline.hub.workspace import HubFile
from trunkline.run.feed import Feed
from trunkline.server.caller import Caller
from trunkline.store.records import Dedup
from trunkline.wire.card import Card
from trunkline.wire.types import Correlation, Message, Part, Role, SendRequest
from trunkline.wire.writer import Dialect

CALLER = Caller(Principal("north", "me", CALLER), Dialect.V1)


class Orders:
    """A dispatcher that keeps what it was asked for."""

    def __init__(self) -> None:
        self.taken: list[DispatchOrder] = []

    async def dispatch(self, order: DispatchOrder, *, rest_s: float) -> list[Dispatched]:
        self.taken.append(order)
        return [Dispatched(cast("Feed", None))]


@pytest.mark.parametrize(
    ("agent", "targets", "key"),
    [("", ("other",), "k"), ("writer", ("writer",), "writer\x1fk")],
)
def test_the_address_of_an_agent_means_that_agent(agent: str, targets: tuple[str, ...], key: str) -> None:
    orders = Orders()
    metadata: dict[str, Any] = {"targets": ["other"], "skillHint": "draft", "kept": 1}
    said = Message("m", role=Role.USER, parts=(Part(text="x"),))
    correlation = Correlation("co", "pa")
    request = SendRequest(said, metadata=metadata, correlation=correlation, flat=True)
    open_task = opening(cast("Dispatcher", orders), agent)
    asyncio.run(cast("Any", open_task(CALLER, request, Dedup("k", b"d", 1), None, 0.0)))
    (order,) = orders.taken
    assert (order.tenant, order.targets, order.skill) == ("north", targets, "draft")
    assert order.dedup is not None and order.dedup.key == key
    assert order.metadata == {"kept": 1}
    assert (order.correlation, order.flat) == (correlation, True)


def test_the_card_of_a_hub_reads_a_limited_number_of_skills(monkeypatch: pytest.MonkeyPatch) -> None:
    skills = [f"s{number}" for number in range(1000)]
    raw = {"name": "agent", "url": "https://agents.example", "skills": skills}
    listed = list_entry(read_entry(raw, "api"), None, "", "")
    read: list[Listed] = []

    def counted(one: Listed) -> Card:
        read.append(one)
        return card_of(one)

    monkeypatch.setattr(front, "card_of", counted)
    card = hub_card(HubFile(), [listed] * 100)
    assert len(card.skills) == 1000
    assert len(read) <= 10
