"""What it takes to keep the cards of many agents: connections, and what is left of those that are gone."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fleet.catalogue.cards import card
from trunkline.client.client import Client
from trunkline.clock import now_ms
from trunkline.fleet.catalogue import discovery
from trunkline.fleet.catalogue.card_facts import facts_of, pause_s
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.discovery import ASKING, CardDiscovery
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.listed import CardFacts
from trunkline.net import http_client, pool
from trunkline.net.egress import Egress
from trunkline.peer.clients import PeerClients
from trunkline.wire.peer_card import PeerCard

MANY = 3 * ASKING
NEVER_S = 3600.0


class KeptConnections:
    """An agent that keeps connections open, shows its card, and below `/hangs` waits to be told to show another."""

    def __init__(self) -> None:
        self.asked = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.hanging = 0
        self.told = asyncio.Event()
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                hangs = b" /hangs/" in head
                if hangs:
                    self.hanging += 1
                    await self.told.wait()
                shown = card("x" * 100_000 if b" /large/" in head else "kept", "old" if hangs else "work")
                body = json.dumps(shown).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.open.discard(writer)
            writer.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def discovered(work: Callable[[Catalogue, KeptConnections], Awaitable[None]]) -> None:
    """Work with an empty catalogue whose cards are read."""

    async def main() -> None:
        agent = KeptConnections()
        server = await asyncio.start_server(agent.answer, "127.0.0.1", 0)
        agent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        catalogue = Catalogue()
        clients = PeerClients(egress=lambda *_: Egress(loopback=True))
        keeper = CardDiscovery(catalogue, clients, now_ms, draw=lambda: 0.0)
        running = asyncio.create_task(keeper.run())
        try:
            await work(catalogue, agent)
        finally:
            agent.told.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()

    asyncio.run(main())


def add(catalogue: Catalogue, name: str, url: str, tenant: str = "north") -> None:
    catalogue.take(tenant, name, read_entry({"name": name, "url": url}, "api", tenant=tenant))


async def add_many(catalogue: Catalogue, url: str) -> None:
    for place in range(MANY):
        add(catalogue, f"a{place}", url)
    await until(lambda: {one.state for one in catalogue.listed("north")} == {"ready"})


def test_no_connection_stays_open_when_a_card_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that were left open would be closed only then.
    monkeypatch.setattr(pool, "IDLE_S", NEVER_S)
    monkeypatch.setattr(http_client, "IDLE_S", NEVER_S)

    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        await add_many(catalogue, agent.url)
        await until(lambda: not agent.open)

    discovered(work)


def test_tasks_that_cannot_reach_an_agent_cause_one_read_of_its_card() -> None:
    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        add(catalogue, "missed", agent.url)
        await until(lambda: catalogue.listed("north")[0].state == "ready")
        assert agent.asked == 1
        for _ in range(100):
            catalogue.take_absence("north", "missed")
        catalogue.take_absence("north", "unknown")
        await until(lambda: agent.asked > 1)
        add(catalogue, "other", agent.url)
        await until(lambda: [one.state for one in catalogue.listed("north")] == ["ready", "ready"])
        assert agent.asked == 3

    discovered(work)


def test_nothing_is_kept_of_an_agent_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Client]] = []
    make = PeerClients.make

    def noted(self: PeerClients, *given: Any, **more: Any) -> Client:
        client = make(self, *given, **more)
        made.append(weakref.ref(client))
        return client

    monkeypatch.setattr(PeerClients, "make", noted)

    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        await add_many(catalogue, agent.url)
        assert len(made) == MANY
        for place in range(MANY):
            catalogue.take("north", f"a{place}", None)
        gc.collect()
        assert [one for one in made if one() is not None] == []

    discovered(work)


def test_agents_of_one_tenant_that_hang_hold_up_no_other_tenant() -> None:
    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        for place in range(MANY):
            add(catalogue, f"a{place}", f"{agent.url}/hangs")
        await until(lambda: agent.hanging >= ASKING // 2)
        add(catalogue, "quick", agent.url, "south")
        await until(lambda: [one.state for one in catalogue.listed("south")] == ["ready"])
        assert agent.hanging == ASKING // 2
        # Some of those that wait go; the others are asked in their turn.
        for place in range(ASKING, 2 * ASKING):
            catalogue.take("north", f"a{place}", None)
        agent.told.set()
        await until(lambda: {one.state for one in catalogue.listed("north")} == {"ready"})
        assert len(catalogue.listed("north")) == MANY - ASKING

    discovered(work)


def test_the_card_of_an_address_that_an_entry_named_before_is_not_taken_for_the_new_one() -> None:
    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        add(catalogue, "moved", f"{agent.url}/hangs")
        await until(lambda: agent.hanging == 1)
        add(catalogue, "moved", agent.url)
        agent.told.set()
        await until(lambda: catalogue.listed("north")[0].state == "ready")
        assert [one.id for one in catalogue.listed("north")[0].skills] == ["work"]

    discovered(work)


def test_a_card_that_cannot_be_taken_up_ends_nothing_for_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def facts(card: PeerCard, url: str, at: int) -> CardFacts:
        if url.endswith("/odd"):
            raise RuntimeError("nobody thought of this")
        return facts_of(card, url, at)

    failed: list[int] = []

    def pause(refresh_s: float, failures: int, draw: float) -> float:
        failed.append(failures)
        return pause_s(refresh_s, failures, draw) / 1000

    monkeypatch.setattr(discovery, "facts_of", facts)
    monkeypatch.setattr(discovery, "pause_s", pause)

    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        add(catalogue, "odd", f"{agent.url}/odd")
        await until(lambda: catalogue.listed("north")[0].state == "unreachable")
        assert "the log of the hub says why" in catalogue.listed("north")[0].reason
        # It is asked again later and later.
        await until(lambda: failed[:3] == [1, 2, 3])
        add(catalogue, "good", agent.url, "south")
        await until(lambda: catalogue.listed("south")[0].state == "ready")

    discovered(work)
    assert "nobody thought of this" in caplog.text


def test_a_card_that_is_too_large_is_refused_with_that_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def work(catalogue: Catalogue, agent: KeptConnections) -> None:
        add(catalogue, "large", f"{agent.url}/large")
        await until(lambda: catalogue.listed("north")[0].state == "unreachable")
        assert "beside its skills" in catalogue.listed("north")[0].reason

    discovered(work)
    assert "card_raised" not in caplog.text
