"""Scenarios of a hub with one agent elsewhere: what dispatched work costs, holds and waits for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic_ns

from bench import contract, loads
from bench.frames import subscribe
from bench.generator import Load, run
from bench.replicas import ENDED, TICK
from bench.scenario import Sample, Scale, served
from bench.servers import CONTENDERS, GENERATOR_CPU, HOST, Contender, Server, pin

AGENTS = 'agents: [{{name: worker, url: "http://{host}:{port}"}}]\n'
SETTLED_S = 5.0
LATE = re.compile(rb"late-(\d+)\.")
TICKING, EACH_MS = 20, 50


@contextmanager
def _fleet(contender: Contender, worker: str) -> Generator[tuple[Server, Server]]:
    """A hub, and the agent that works for it on the other core."""
    with Server(CONTENDERS[worker]) as agent:
        pin(agent.process.pid, GENERATOR_CPU)
        hub = Server(contender)
        text = AGENTS.format(host=HOST, port=agent.endpoint.port)
        (hub.scratch / "agents.yaml").write_text(text, encoding="utf-8")
        with hub:
            yield hub, agent


def dispatch(contender: Contender, scale: Scale) -> Sample:
    """CPU of the server for a send that its caller waits for; a hub has it done by an agent that streams."""
    if "hub" not in contender.arguments:
        return served(loads.send_cpu)(contender, scale)
    with _fleet(contender, "trunkline-memory") as (hub, _):
        return run(loads.send_cpu(hub, scale))


def relay_stream(contender: Contender, scale: Scale) -> Sample:
    """CPU of the server for each chunk of a stream; a hub passes on what an agent streams."""
    if "hub" not in contender.arguments:
        return served(loads.stream_cpu)(contender, scale)
    with _fleet(contender, "trunkline-memory") as (hub, _):
        # The last frame has the whole artifact.
        return run(loads.stream_cpu(hub, scale, 49 + 50))


def in_flight(contender: Contender, scale: Scale) -> Sample:
    """Memory of a hub while so many tasks are at work elsewhere."""
    with _fleet(contender, "trunkline-quiet") as (hub, _):
        return run(_in_flight(hub, scale))


async def _in_flight(hub: Server, scale: Scale) -> Sample:
    lost = await loads.send_many(hub, scale.unfinished, "hold", wait=False)
    await asyncio.sleep(SETTLED_S)
    return Sample(hub.memory() / 1024, lost, extra={"tasks": scale.unfinished})


def after_webhook(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds from the end of a task at an agent that only calls back to the answer of the hub, p99."""
    with _fleet(contender, "trunkline-quiet") as (hub, _):
        return run(_after_webhook(hub, scale))


async def _after_webhook(hub: Server, scale: Scale) -> Sample:
    delays: list[float] = []
    load = Load(hub.endpoint.send("late"))
    load.keep = lambda answer: delays.extend(
        [(monotonic_ns() - int(at)) / 1e6 for at in LATE.findall(answer)]
    )
    window = await loads.call_loop_of(hub, load, scale, 16)
    return Sample(share(delays, 0.99), window.bad, extra={"p50_ms": share(delays, 0.5), "count": len(delays)})


def updates(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds from an update at an agent that streams to the subscriber of the hub, p99."""
    with _fleet(contender, "trunkline-ticking") as (hub, agent):
        return run(_updates(hub, agent, scale))


async def _updates(hub: Server, agent: Server, scale: Scale) -> Sample:
    count = round(scale.seconds * 1000 / EACH_MS)
    ids: list[str] = []
    for _ in range(TICKING):
        request = hub.endpoint.send(f"ticks {count} {EACH_MS}", wait=False, close=True)()
        ids.append((await contract.answered(hub.endpoint, request))["id"])
    readers = await subscribe(hub.endpoint, ids)
    await contract.send(agent.endpoint, "release")
    delays: list[float] = []
    for reader in readers:
        await reader.until(ENDED, scale.seconds * 4 + 30)
        # The last frame has the whole artifact once more.
        came = {told: at for at, frame in reversed(reader.frames) for _, told in TICK.findall(frame)}
        delays += [(at - int(told)) / 1e6 for told, at in came.items()]
        reader.close()
    missing = abs(TICKING * count - len(delays))
    return Sample(share(delays, 0.99), missing, extra={"p50_ms": share(delays, 0.5)})


def share(values: list[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
