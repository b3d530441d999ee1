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
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.discovery import ASKING, CardDiscovery
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.net import http_client, pool
from trunkline.net.egress import Egress
from trunkline.peer.clients import PeerClients

MANY = 3 * ASKING
NEVER_S = 3600.0


class KeptConnections:
    """An agent that shows its card and keeps the connections of who asks open as long as they like."""

    def __init__(self) -> None:
        self.open: set[asyncio.StreamWriter] = set()
        self.body = json.dumps(card("kept", "work")).encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(self.body), self.body))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.open.discard(writer)
            writer.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def discovered(work: Callable[[Catalogue, KeptConnections], Awaitable[None]]) -> None:
    """Work with a catalogue of many agents whose cards have all been read."""

    async def main() -> None:
        agent = KeptConnections()
        server = await asyncio.start_server(agent.answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        catalogue = Catalogue(now_ms)
        clients = PeerClients(egress=lambda _: Egress(loopback=True))
        discovery = CardDiscovery(catalogue, clients, now_ms, draw=lambda: 0.0)
        for place in range(MANY):
            raw = {"name": f"a{place}", "url": url}
            catalogue.take("north", f"a{place}", read_entry(raw, "api", tenant="north"))
        running = asyncio.create_task(discovery.run())
        try:
            await until(lambda: {one.state for one in catalogue.listed("north")} == {"ready"})
            await work(catalogue, agent)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()

    asyncio.run(main())


def test_no_connection_stays_open_when_a_card_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that were left open would be closed only then.
    monkeypatch.setattr(pool, "IDLE_S", NEVER_S)
    monkeypatch.setattr(http_client, "IDLE_S", NEVER_S)

    async def work(_: Catalogue, agent: KeptConnections) -> None:
        await until(lambda: not agent.open)

    discovered(work)


def test_nothing_is_kept_of_an_agent_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Client]] = []
    make = PeerClients.make

    def noted(self: PeerClients, *given: Any, **more: Any) -> Client:
        client = make(self, *given, **more)
        made.append(weakref.ref(client))
        return client

    monkeypatch.setattr(PeerClients, "make", noted)

    async def work(catalogue: Catalogue, _: KeptConnections) -> None:
        assert len(made) == MANY
        for place in range(MANY):
            catalogue.take("north", f"a{place}", None)
        gc.collect()
        assert [one for one in made if one() is not None] == []

    discovered(work)
