"""Scenarios of a hub with tenants: what many of them cost one, what one does to another, and how one ends."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from signal import SIGTERM
from time import perf_counter
from typing import Any

from bench.generator import ECHO, HOST, Endpoint, Load, call_loop, run
from bench.hub import share
from bench.scenario import Sample, Scale
from bench.servers import CONTENDERS, GENERATOR_CPU, Contender, Server, pin

MANY, ONE = "trunkline-tenants", "trunkline-tenant"
NOISE = "trunkline-noise"
LOCAL = 'agents: [{name: worker, import: "bench.agent:agent", tenants: all}]\n'
EACH = 10
# What the noisy tenant may ask for in a minute, how much more it does, and how often the quiet one asks.
QUOTA, TIMES, QUIET_S = 600, 10, 50
LONGER = 5
STREAMS = 50
SETTLE_S = 300.0
HEAD_END = b"\r\n\r\n"


class Asker:
    """One kept connection that asks one thing after the other."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        return await self.put(request(method, path, self._port, self._key, body))

    async def put(self, asked: bytes) -> tuple[int, bytes]:
        """The same for a request as bytes."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        writer.write(asked)
        head = (await reader.readuntil(HEAD_END)).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        return int(head.split()[1]), await reader.readexactly(length)

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            self._streams[1].close()


def request(method: str, path: str, port: int, key: str, body: Any = None) -> bytes:
    """The bytes of one request."""
    sent = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nX-API-Key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    )
    return head.encode() + sent


@contextmanager
def local_hub(contender: Contender) -> Generator[Server]:
    """Start a hub that runs the agent of all its tenants itself."""
    hub = Server(contender)
    (hub.scratch / "agents.yaml").write_text(LOCAL, encoding="utf-8")
    with hub:
        yield hub


async def create_tenant(boss: Asker, name: str, **more: Any) -> str:
    """Create a tenant with these members; returns its key."""
    status, told = await boss.ask("POST", "/admin/tenants", {"name": name})
    if status == 201 and more:
        status, _ = await boss.ask("PATCH", f"/admin/tenants/{name}", more)
    if status not in (200, 201):
        raise RuntimeError(f"no tenant {name}: {status} {told!r}")
    return json.loads(told)["token"]


def crowd(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds to the card of an agent, p99; beside it lists, and the start of a hub with all of them."""
    count = scale.tenants if contender.name == MANY else 1
    with Server(CONTENDERS["trunkline-quiet"]) as agent:
        pin(agent.process.pid, GENERATOR_CPU)
        hub = Server(contender)
        (hub.scratch / "agents.yaml").write_text("agents: []\n", encoding="utf-8")
        with hub:
            keys = run(_people(hub, f"http://{HOST}:{agent.endpoint.port}", count))
            hub.stop(SIGTERM)
            hub.start()
            return run(_crowd(hub, keys, scale))


async def _people(hub: Server, url: str, count: int) -> list[str]:
    boss = Asker(hub.endpoint.port, hub.endpoint.key)
    keys = [await create_tenant(boss, f"t{number}") for number in range(count)]
    for key in keys:
        own = Asker(hub.endpoint.port, key)
        for place in range(EACH):
            entry = {"name": f"agent{place}", "url": url, "skills": [f"skill{place}"]}
            status, told = await own.ask("POST", "/api/agents", entry)
            if status != 200:
                raise RuntimeError(f"no agent: {status} {told!r}")
        own.close()
    boss.close()
    return keys


async def _crowd(hub: Server, keys: list[str], scale: Scale) -> Sample:
    await _settle(hub, keys)
    port, endpoint = hub.endpoint.port, hub.endpoint
    figures: list[float] = []
    bad = 0
    for path in ("/v1/a2a/agents/agent3/agent-card.json", "/api/agents"):
        asked = itertools.cycle([request("GET", path, port, key) for key in keys])
        load = Load(lambda asked=asked: next(asked), b" 200 ")
        window = await call_loop(
            endpoint, load, connections=1, warm=scale.warm, seconds=scale.seconds, cpu=hub.cpu
        )
        figures.append(share(list(window.latencies), 0.99) * 1e3)
        bad += window.bad
    extra = {"list_ms": figures[1], "start_s": hub.ready_seconds, "tenants": len(keys)}
    return Sample(figures[0], bad, extra=extra)


async def _settle(hub: Server, keys: list[str]) -> None:
    """Wait until the cards of all agents have been read: that is work of the start, not of who asks."""
    async with asyncio.timeout(SETTLE_S):
        for key in keys:
            own = Asker(hub.endpoint.port, key)
            while b'"discovering"' in (await own.ask("GET", "/api/agents"))[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            own.close()


def noisy(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds of a quiet tenant's sends, p99, while another one asks for ten times what it may."""
    with local_hub(contender) as hub:
        return run(_noisy(hub, scale, loud=contender.name == NOISE))


async def _noisy(hub: Server, scale: Scale, *, loud: bool) -> Sample:
    boss = Asker(hub.endpoint.port, hub.endpoint.key)
    quiet = await create_tenant(boss, "quiet")
    noise = await create_tenant(boss, "noisy", quota={"requests_per_minute": QUOTA})
    told: list[tuple[int, float]] = []
    refused: list[tuple[int, float]] = []
    # Longer than others: of a few hundred sends the slowest hundredth is a matter of luck.
    lasts = scale.warm + LONGER * scale.seconds
    # A tenth of what is asked for below is within the quota, and the rest of the minute's is used up before.
    await _use_up(hub, noise, QUOTA - round(QUOTA / 60 * lasts))
    async with asyncio.TaskGroup() as group:
        if loud:
            group.create_task(send_at_rate(hub, noise, QUOTA * TIMES / 60, lasts, refused))
        group.create_task(send_at_rate(hub, quiet, QUIET_S, lasts, told))
    boss.close()
    counted = told[round(scale.warm * QUIET_S) :]
    bad = sum([status != 200 for status, _ in told])
    met = sum([status == 429 for status, _ in refused])
    # Without a refusal this was no noise.
    bad += loud and not met
    times = [took for _, took in counted]
    extra = {"p50_ms": share(times, 0.5) * 1e3, "noise": len(refused), "refused": met}
    return Sample(share(times, 0.99) * 1e3, bad, extra=extra)


async def _use_up(hub: Server, key: str, count: int) -> None:
    make = Endpoint(hub.endpoint.port, hub.endpoint.path, key).send(ECHO)
    asker = Asker(hub.endpoint.port, key)
    for _ in range(count):
        await asker.put(make())
    asker.close()


async def send_at_rate(
    hub: Server, key: str, each_s: float, lasts: float, told: list[tuple[int, float]]
) -> None:
    """Send so often in a second, whether or not the earlier ones have been answered."""
    make = Endpoint(hub.endpoint.port, hub.endpoint.path, key).send(ECHO)
    free: list[Asker] = []
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def one(at: float) -> None:
        await asyncio.sleep(max(0.0, at - loop.time()))
        asker = free.pop() if free else Asker(hub.endpoint.port, key)
        asked = perf_counter()
        status, _ = await asker.put(make())
        told.append((status, perf_counter() - asked))
        free.append(asker)

    async with asyncio.TaskGroup() as group:
        for number in range(round(lasts * each_s)):
            group.create_task(one(begun + number / each_s))
    for asker in free:
        asker.close()


class Listener(asyncio.Protocol):
    """A stream that is read to its end: when its first and its last byte came."""

    def __init__(self, asked: bytes) -> None:
        self._asked = asked
        self.first = asyncio.Event()
        self.over = asyncio.Event()
        self.last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self._transport: Any = transport
        self._transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        """Note the moment; a chunk of no bytes is the end."""
        self.last = perf_counter()
        if b"tick-" in data:
            self.first.set()
        if data.endswith(b"\r\n0\r\n\r\n"):
            self._transport.close()
            self.over.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, too."""
        self.over.set()


def disable(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds from the order that disables a tenant to the last byte of its streams."""
    with local_hub(contender) as hub:
        return run(_disable(hub, scale))


async def _disable(hub: Server, scale: Scale) -> Sample:
    boss = Asker(hub.endpoint.port, hub.endpoint.key)
    key = await create_tenant(boss, "shut")
    own = Endpoint(hub.endpoint.port, hub.endpoint.path, key)
    loop = asyncio.get_running_loop()
    # For far longer than anybody waits: only the end of the tenant ends them.
    make = own.send("ticks 100000 100", stream=True)
    listeners = [
        (await loop.create_connection(lambda: Listener(make()), HOST, own.port))[1] for _ in range(STREAMS)
    ]
    sender = Asker(own.port, key)
    async with asyncio.timeout(60):
        # Released are those that wait already.
        while not all([one.first.is_set() for one in listeners]):
            await sender.put(own.send("release")())
            await asyncio.sleep(0.1)
    await asyncio.sleep(scale.warm)
    asked = perf_counter()
    status, _ = await boss.ask("PATCH", "/admin/tenants/shut", {"disabled": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            for one in listeners:
                await one.over.wait()
    open_ones = sum([not one.over.is_set() for one in listeners])
    refused, _ = await sender.put(own.send(ECHO)())
    bad = open_ones + (status != 200) + (refused != 401)
    boss.close()
    return Sample((max([one.last for one in listeners]) - asked) * 1e3, bad, extra={"streams": STREAMS})
