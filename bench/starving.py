"""A scenario of a hub with two tenants: sends of one while workflows of the other use all that they may."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bench.generator import run
from bench.hub import share
from bench.scenario import Sample, Scale
from bench.servers import Contender, Server
from bench.tenants import QUIET_S, Asker, create_tenant, local_hub, request, send_at_rate

STARVED = "trunkline-starved"
# Runs of each kind at once, and how long the noise goes on before sends are measured.
RUNS, AHEAD_S = 8, 5.0
LONGER = 5
SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
LARGE_PATTERN = r"(?=\w{100})\w{200}N"


def _document(properties: dict[str, Any], program: str) -> dict[str, Any]:
    """A workflow that goes round in a circle."""
    count = {"id": "count", "type": "set_state", "config": {"assignments": {"n": {"jq": program}}}}
    again = {"id": "again", "type": "switch", "config": {"cases": [{"when": "true", "target": "count"}]}}
    edges = [("__start__", "start"), ("start", "count"), ("count", "again")]
    return {
        "document": {"schema": SCHEMA, "name": "noise", "version": "1.0.0"},
        "state_schema": {"type": "object", **properties},
        "nodes": [{"id": "start", "type": "start"}, count, again, {"id": "end", "type": "end"}],
        "edges": [{"source": source, "target": target} for source, target in edges],
    }


def _choices() -> dict[str, Any]:
    wrong = [{"minimum": 1e9, "maximum": number} for number in range(399)]
    return {"properties": {"a": {"items": {"anyOf": [*wrong, {"type": "number"}]}}}}


def _patterns(count: int) -> dict[str, Any]:
    return {"properties": {f"p{number}": {"pattern": LARGE_PATTERN} for number in range(count)}}


def _deep(levels: int) -> dict[str, Any]:
    """A schema of a few lines that checks one value 3 to the power of its levels times."""
    held: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 3} for level in range(levels)
    }
    return {"$defs": {**held, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


COUNT = "(.n // 0) + 1"
NOISE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "choices": (_document(_choices(), COUNT), {"a": [number + 0.5 for number in range(20_000)]}),
    "patterns": (_document(_patterns(60), COUNT), {}),
    "more patterns": (_document(_patterns(300), COUNT), {}),
    "filters": (_document({}, "def f: f; f"), {}),
    "loops": (_document({}, COUNT), {}),
    "deep": (_document(_deep(40), COUNT), {}),
}


def starving(contender: Contender, scale: Scale) -> Sample:
    """Milliseconds of a tenant's sends, p95, while workflows of another one use all that they may."""
    with local_hub(contender) as hub:
        return run(_starving(hub, scale, noisy=contender.name == STARVED))


async def _starving(hub: Server, scale: Scale, *, noisy: bool) -> Sample:
    boss = Asker(hub.endpoint.port, hub.endpoint.key)
    quiet = await create_tenant(boss, "quiet")
    noise = await create_tenant(boss, "noisy")
    boss.close()
    told: list[tuple[int, float]] = []
    counts = dict.fromkeys(NOISE, 0)
    lasts = scale.warm + LONGER * scale.seconds
    await send_at_rate(hub, quiet, QUIET_S, scale.warm, [])
    before = most = hub.memory()
    tasks = [
        asyncio.create_task(_start_again(hub, noise, kind, counts))
        for kind in NOISE
        for _ in range(RUNS * noisy)
    ]
    await asyncio.sleep(AHEAD_S)
    sending = asyncio.create_task(send_at_rate(hub, quiet, QUIET_S, lasts, told))
    while not (await asyncio.wait([sending], timeout=0.5))[0]:
        most = max(most, hub.memory())
    sending.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    bad = sum([status != 200 for status, _ in told])
    # A kind that no request of was answered may not have been worked on.
    bad += noisy and not any(counts.values())
    times = [took for _, took in told[round(scale.warm * QUIET_S) :]]
    extra = {
        "p50_ms": share(times, 0.5) * 1e3,
        "grown_mib": (most - before) / 1024,
        "noise": sum(counts.values()),
    }
    return Sample(share(times, 0.95) * 1e3, bad, extra=extra)


async def _start_again(hub: Server, key: str, kind: str, counts: dict[str, int]) -> None:
    """Start one run after the other, each when the one before has ended."""
    document, given = NOISE[kind]
    body = {"definition": document, "input": given}
    asked = request("POST", "/v1/executions", hub.endpoint.port, key, body)
    asker = Asker(hub.endpoint.port, key)
    try:
        while True:
            status, answer = await asker.put(asked)
            if status not in (200, 201, 202, 400, 422, 503):
                raise RuntimeError(f"{kind}: {status} {json.dumps(answer.decode())[:200]}")
            counts[kind] += 1
    finally:
        asker.close()
