"""Rows 81 to 83: what one caller does to names, memory and webhooks, and what others notice of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx2

from tests.chaos.client import BROKEN, Client, Line, plain_state
from tests.chaos.crowd import OVER
from tests.chaos.fleet import KEYS, PYTHON, Server
from tests.chaos.rows import SQLITE, Result, Run, row, spread, verdict
from tests.chaos.sockets import crawl
from tests.chaos.webhooks import FLAGS, LIMIT_S, Receiver, delays, send

# Who had to wait for a thread or a place behind all that hangs would wait for longer, however quick the machine.
SOON_S = 15.0
# Of our own receiver nobody shall say that it hangs, on a machine with much else to do.
PATIENT = (*FLAGS, "--set", "push_timeout=10")
GREW_KB = 64 << 10
READERS = 90


@row(
    81, "the names of one tenant never resolve, when they are checked and when they are dialled",
    "every webhook of another tenant arrives, each ≤ 15 s after its task was taken; half go to a name", SQLITE,
)  # fmt: skip
async def row_81(run: Run) -> Result:
    names = run.count(200, 100)
    fleet = run.fleet(1, *PATIENT)
    greedy, modest = [await _key(fleet.url, tenant) for tenant in ("greedy", "modest")]
    await fleet.start()
    (server,) = fleet.servers

    async def trouble(client: httpx2.AsyncClient) -> None:
        async def one(place: int) -> None:
            host = f"{'late' if place % 2 else 'never'}-{place}.hangs.example"
            # Most are refused after a while, because nobody knows them.
            with suppress(AssertionError, TimeoutError):
                await send(client, lambda: server, f"echo {place}", f"http://{host}/", greedy)

        await asyncio.gather(*map(one, range(names)))

    receiver = Receiver()
    await receiver.start()
    urls = [receiver.url, f"http://localhost:{receiver.port}/hook"]
    took = await _beside(run, server, trouble, receiver, urls, modest)
    receiver.close()
    return verdict(
        await fleet.judge(),
        f"{names} names that hang; {len(took)} webhooks after {spread(took)}",
        max(took) <= SOON_S,
    )


@row(
    83, "400 ports of one host take webhooks and never answer",
    "every webhook of another caller arrives, each ≤ 15 s after its task was taken; ≤ 10 sockets to the host", SQLITE,
)  # fmt: skip
async def row_83(run: Run) -> Result:
    ports = run.count(400, 400)
    fleet = run.fleet(1, *PATIENT)
    await fleet.start()
    (server,) = fleet.servers
    tarpit = [Receiver(hang=True) for _ in range(ports)]
    for each in tarpit:
        await each.start("127.0.0.2")
    most = 0

    async def trouble(client: httpx2.AsyncClient) -> None:
        nonlocal most
        for each in tarpit:
            await send(client, lambda: server, "echo", each.url, KEYS["c1"])
            most = max(most, sum(one.sockets for one in tarpit))

    receiver = Receiver()
    await receiver.start()
    took = await _beside(run, server, trouble, receiver, [receiver.url], KEYS["c0"])
    found = await fleet.judge()
    for each in (*tarpit, receiver):
        each.close()
    return verdict(
        found,
        f"{ports} ports; {len(took)} webhooks after {spread(took)}; {most} sockets to the host",
        max(took) <= SOON_S, 0 < most <= 10,
    )  # fmt: skip


async def _beside(
    run: Run,
    server: Server,
    trouble: Callable[[httpx2.AsyncClient], Awaitable[None]],
    receiver: Receiver,
    urls: list[str],
    key: str,
) -> list[float]:
    """Tasks of a modest caller while another makes trouble; seconds until the end of each arrived."""
    acknowledged: dict[str, tuple[float, Receiver]] = {}
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(timeout=LIMIT_S, trust_env=False, limits=limits) as other,
        httpx2.AsyncClient(timeout=LIMIT_S, trust_env=False) as client,
    ):
        troubling = asyncio.ensure_future(trouble(other))
        for place in range(run.count(100, 20)):
            task_id = await send(client, lambda: server, f"echo {place}", urls[place % len(urls)], key)
            acknowledged[task_id] = (time.monotonic(), receiver)
            await asyncio.sleep(0.05)
        took = await delays(acknowledged)
        await troubling
    return took


async def _key(url: str, tenant: str) -> str:
    """A key of its own for a tenant, made before anybody serves."""
    words = ("keys", "create", "--owner", "somebody", "--tenant", tenant, "--store", url, "--json")
    made = await asyncio.create_subprocess_exec(
        PYTHON, "-c", "from trunkline.cli.main import main; main()", *words, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await made.communicate()
    return json.loads(said)["token"]


@row(
    82, "90 readers of five callers ask for pages of megabytes and read a byte a second; ids of a megabyte",
    "the server grows by ≤ 64 MiB, and answers others meanwhile", SQLITE, name="memory",
)  # fmt: skip
async def row_82(run: Run) -> Result:
    fleet = run.fleet()
    (server,) = fleet.servers
    await server.start()
    clients = [Client(who, key, run.history) for who, key in KEYS.items()]
    for client in clients:
        await _fill(client, server)
    # What a first page needs stays, whoever reads it.
    page = [client.raw("ListTasks", {"pageSize": 100, "includeArtifacts": True}) for client in clients]
    size = len((await Line(server).ask(page[0]))[2])
    before, peak = server.memory_kb(), 0
    crawlers = []
    for place in range(READERS):
        # Who is over its share is let go, maybe before it has read a word.
        with suppress(AssertionError, *BROKEN):
            crawlers.append(await crawl(server.port, page[place % len(page)]))
        peak = max(peak, server.memory_kb())
    ids, refused = run.count(200, 20), 0
    for place in range(ids):
        body = json.dumps(
            {"jsonrpc": "2.0", "id": "i" * 1_000_000, "method": "ListTasks", "params": {}}
        ).encode()
        head = b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\nX-API-Key: %b\r\n"
        head = head % KEYS["c0"].encode() + b"Content-Length: %d\r\n\r\n" % len(body)
        _, _, answer = await Line(server).ask(head + body)
        refused += len(answer) < 4096 and b"-32600" in answer
        peak = max(peak, server.memory_kb())
        run.say(f"{place + 1} of {ids} ids, {(peak - before) >> 10:+} MB")
    await asyncio.gather(*(crawler.close() for crawler in crawlers))
    for client in clients:
        client.close()
    return verdict(
        await fleet.judge(),
        f"{READERS} slow readers of {size >> 10} KB each, {ids} long ids, {refused} refused in short; "
        f"RSS {(peak - before) / 1024:+.1f} MB",
        peak - before <= GREW_KB, refused == ids, size > 1 << 20,
    )  # fmt: skip


async def _fill(client: Client, server: Server) -> None:
    """Three tasks of a megabyte and more."""
    line = Line(server)
    for place in range(3):
        message = {
            "messageId": f"fill-{client.who}-{place}", "role": "ROLE_USER",
            "parts": [{"text": "20 80000"}], "metadata": {"skillHint": "bulk"},
        }  # fmt: skip
        _, _, answer = await line.ask(client.raw("SendMessage", {"message": message}), LIMIT_S)
        assert plain_state(json.loads(answer)["result"]["task"]) in OVER, answer[:300]
    line.close()
