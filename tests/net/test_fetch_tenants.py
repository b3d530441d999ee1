"""Each tenant is dialled for by its own rule, over connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from trunkline.errors import Unreachable
from trunkline.net import fetch as engine
from trunkline.net.egress import Egress
from trunkline.net.fetch import TenantFetchers


@asynccontextmanager
async def receiver(seen: list[int]) -> AsyncGenerator[str]:
    """Answers on kept connections; `seen` has the number of the connection of each request."""
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        mine = count
        while head := await reader.readline():
            while (await reader.readline()).strip():
                pass
            assert head.startswith(b"GET")
            seen.append(mine)
            writer.write(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


def test_connections_are_not_shared_over_rules_and_end_with_the_rule() -> None:
    async def scene() -> None:
        everybody = Egress(hosts=["127.0.0.1"])
        north = ["127.0.0.1", "north.example"]
        own = {"north": Egress(hosts=north), "south": Egress(), "b": Egress(hosts=["127.0.0.1"])}
        fetchers = TenantFetchers(everybody, timeout_s=5)
        fetchers.egress_of = lambda tenant: own.get(tenant, everybody)
        seen: list[int] = []
        async with receiver(seen) as url:
            for tenant in ("a", "b", "north", "north"):
                assert (await fetchers.find(tenant).get(url)).status == 204
            # Those with the rule of everybody share connections; who has another one has its own.
            assert seen == [1, 1, 2, 2]
            with pytest.raises(Unreachable, match="not public"):
                await fetchers.find("south").get(url)
            # The same rule again closes nothing; another one closes what was open under it.
            own["north"].allow(north, [])
            await fetchers.find("north").get(url)
            own["north"].allow([], ["127.0.0.1/32"])
            await fetchers.find("north").get(url)
            assert seen[4:] == [2, 3]
            own["north"].allow([], [])
            with pytest.raises(Unreachable, match="not public"):
                await fetchers.find("north").get(url)
            await fetchers.close()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_the_connections_of_a_tenant_that_is_no_more_are_let_go_of_when_nothing_is_on_its_way() -> None:
    async def scene() -> None:
        arrived, answered = asyncio.Event(), asyncio.Event()
        closed: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (await reader.readline()).strip():
                pass
            arrived.set()
            await answered.wait()
            writer.write(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            closed.append(await reader.read())
            writer.close()

        own = Egress(hosts=["127.0.0.1"])
        fetchers = TenantFetchers(Egress(), timeout_s=5)
        fetchers.egress_of = lambda tenant: own
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, asyncio.timeout(10):
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
            first = fetchers.find("gone")
            posting = asyncio.create_task(first.post(url, b"", ()))
            await arrived.wait()
            assert not await fetchers.release("gone") and fetchers.find("gone") is first
            answered.set()
            assert (await posting).status == 204 and not closed
            assert await fetchers.release("gone") and await fetchers.release("gone")
            while not closed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            # Whoever is called so later has another.
            assert fetchers.find("gone") is not first
            await fetchers.close()

    asyncio.run(scene())


def test_a_tenant_whose_requests_hang_keeps_nobody_from_calling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IN_FLIGHT", 4)
    monkeypatch.setattr(engine, "PER_TENANT", 3)

    async def scene() -> None:
        arrived: list[asyncio.StreamWriter] = []

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.append(writer)
            await reader.read()
            writer.close()

        fetchers = TenantFetchers(Egress(hosts=["127.0.0.1"]), timeout_s=30)
        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        async with server, receiver([]) as url, asyncio.timeout(20):
            silent = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            noisy = [asyncio.create_task(fetchers.find("noisy").get(silent)) for _ in range(9)]
            while len(arrived) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await fetchers.find("quiet").get(url)).status == 204
            assert (await fetchers.shared.get(url)).status == 204
            assert len(arrived) == 3 and not any([one.done() for one in noisy])
            for one in noisy:
                one.cancel()
            await asyncio.gather(*noisy, return_exceptions=True)
            await fetchers.close()

    asyncio.run(scene())
