"""Row 42: two thousand callers who never finish their request, and one who does."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.client import Client
from tests.chaos.fleet import KEYS, Server
from tests.chaos.flood import VICTIM, timed
from tests.chaos.rows import SQLITE, Result, Run, percentile, row, verdict

ROUND_S = 4.0
HEAD = b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-API-Key: %b\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)


@row(
    42, "2 000 requests of which half a head or half a body comes",
    "a healthy caller's p99 ≤ 2 × that without them; heads are cut ≤ 12 s, bodies ≤ 32 s", SQLITE,
)  # fmt: skip
async def row_42(run: Run) -> Result:
    count = run.count(2_000, 100)
    fleet = run.fleet(1)
    (server,) = fleet.servers
    await server.start()
    client = Client(VICTIM, KEYS[VICTIM], run.history)
    await timed(client, server, 1.0)
    calm = await timed(client, server, ROUND_S)
    key = KEYS["c1"].encode()
    opening = HEAD + b"x" * 20, BODY % key
    began = time.monotonic()
    halves = [asyncio.create_task(_half(server, opening[place % 2])) for place in range(count)]
    await asyncio.sleep(1.0)
    beside = await timed(client, server, ROUND_S)
    lived = [(place % 2, ended - began) for place, ended in enumerate(await asyncio.gather(*halves))]
    heads, bodies = (max(seconds for kind, seconds in lived if kind == wanted) for wanted in (0, 1))
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{count} halves; p99 {percentile(calm, 99) * 1000:.1f} ms without, "
        f"{percentile(beside, 99) * 1000:.1f} ms beside them; the last head was cut after {heads:.1f} s, "
        f"the last body after {bodies:.1f} s",
        percentile(beside, 99) <= 2 * percentile(calm, 99),
        heads <= 12,
        bodies <= 32,
    )


async def _half(server: Server, opening: bytes) -> float:
    """Say that much and wait to be cut; when that was."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(opening)
    try:
        async with asyncio.timeout(60):
            while await reader.read(65536):
                pass
    except ConnectionError:
        pass
    finally:
        writer.close()
    return time.monotonic()
