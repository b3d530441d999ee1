"""Probes of addresses that tenants name: those of one that are never answered hold no places of others."""

from __future__ import annotations

import asyncio

import pytest

from trunkline.fleet.catalogue import probe as engine
from trunkline.fleet.catalogue.probe import probe
from trunkline.net.egress import Egress
from trunkline.net.places import TenantPlaces


def test_a_tenant_asks_at_so_many_addresses_at_once_and_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "PROBE_S", 1.0)
    arrived: list[str] = []
    gone: list[None] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append((await reader.readline()).decode().split()[1].split("/")[1])
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.append(None)

    async def scene() -> None:
        egress, places = Egress(loopback=True), TenantPlaces(3, 2)
        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        async with server:
            base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            asked = [probe(f"{base}/{who}", egress, places, who) for who in (*["noisy"] * 9, "quiet")]
            found = await asyncio.gather(*asked)
            while len(gone) < len(arrived):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not any([one.reachable for one in found])
        assert (arrived.count("noisy"), arrived.count("quiet")) == (2, 1)

    asyncio.run(asyncio.wait_for(scene(), 30))
