"""Rows 27 and 65: receivers that hang, and senders that die between the POST and its settlement."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx2

from tests.chaos.fleet import KEYS, Server
from tests.chaos.history import collect
from tests.chaos.hooks import Arrival, check_hooks
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, percentile, row, spread, verdict
from trunkline.store.url import store_from_url

LIMIT_S = 120.0
FLAGS = ("--dev", "--set", "push_timeout=2", "--set", "secret_key=a-secret-of-the-chaos-runs")


class Receiver:
    """A webhook's other end on loopback; `act` is told of each POST before and after its answer."""

    def __init__(self, *, hang: bool = False) -> None:
        self.arrivals: list[Arrival] = []
        self.times: dict[str, float] = {}
        self.sockets = self.most = 0
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        self.hangs = hang

    async def start(self, address: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._serve, address, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{address}:{self.port}/hook"

    def close(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sockets += 1
        self.most = max(self.most, self.sockets)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = dict(
                    line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line
                )
                body = await reader.readexactly(int(headers["content-length"]))
                self._take(headers["webhook-id"], json.loads(body))
                if self.hangs:
                    # Until the sender gives up.
                    await reader.read()
                    return
                await self._answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.sockets -= 1
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if self.before is not None:
            self.before()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        if self.after is not None:
            self.after()

    def ends(self) -> dict[str, float]:
        """When the end of each task first came."""
        last: dict[str, float] = {}
        for arrival in self.arrivals:
            if arrival.state == "TASK_STATE_COMPLETED":
                last.setdefault(arrival.task_id, self.times[arrival.id])
        return last

    def _take(self, name: str, body: dict[str, Any]) -> None:
        task_id, seq, _ = name.split("_")
        inner = body.get("statusUpdate") or body["task"]
        self.arrivals.append(Arrival(name, task_id, int(seq), inner["status"]["state"]))
        self.times.setdefault(name, time.monotonic())


async def send(
    client: httpx2.AsyncClient, pick: Callable[[], Server], text: str, url: str, key: str = KEYS["c0"]
) -> str:
    """Until it is acknowledged, always under the same id; the id of the task."""
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    wanted = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
    headers = {"A2A-Version": "1.0", "X-API-Key": key}
    async with asyncio.timeout(LIMIT_S):
        while True:
            server = pick()
            await server.up.wait()
            try:
                answer = await client.post(
                    f"http://127.0.0.1:{server.port}/a2a",
                    json={**call, "params": {"message": message, "configuration": wanted}},
                    headers=headers,
                )
            except (httpx2.HTTPError, AttributeError):
                # The client's own socket may be gone before it has looked at it.
                await asyncio.sleep(0.02)
                continue
            if "result" in (told := answer.json()):
                return told["result"]["task"]["id"]
            if answer.status_code != 503:
                raise AssertionError(f"refused: {answer.text}")
            await asyncio.sleep(0.05)


@row(
    65, "the sender is killed between the POST and its settlement, before and after the answer",
    "200 kills: none missing, ids stable, first deliveries in order", SQLITE, POSTGRES,
)  # fmt: skip
async def row_65(run: Run) -> Result:
    kills = run.count(200, option="kills")
    fleet = run.fleet(1 if run.kind == SQLITE else 2, *FLAGS)
    await fleet.start()
    receiver = Receiver()
    await receiver.start()
    hit = asyncio.Event()
    done = False

    def strike() -> None:
        receiver.before = receiver.after = None
        for server in fleet.servers:
            if server.running:
                os.kill(server.pid, signal.SIGKILL)
        hit.set()

    async def sender(client: httpx2.AsyncClient, place: int) -> int:
        sent = 0
        while not done:
            text = f"echo {place} {sent}"
            await send(client, lambda: run.random.choice(fleet.servers), text, receiver.url)
            sent += 1
            await asyncio.sleep(0.01)
        return sent

    async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
        senders = [asyncio.create_task(sender(client, place)) for place in range(4)]
        for number in range(kills):
            await asyncio.sleep(run.random.uniform(0, 0.1))
            hit.clear()
            if number % 2:
                receiver.before = strike
            else:
                receiver.after = strike
            async with asyncio.timeout(LIMIT_S):
                await hit.wait()
            for server in fleet.servers:
                server.died()
                await server.gone()
                await server.start()
            run.say(f"{number + 1} of {kills} kills, {len(receiver.arrivals)} posts")
        done = True
        sent = sum(await asyncio.gather(*senders))
        await _drained(fleet.url, receiver)
    found = await fleet.judge()
    found += check_hooks(await _logs(fleet.url), receiver.arrivals)
    again = len(receiver.arrivals) - len({arrival.id for arrival in receiver.arrivals})
    receiver.close()
    return verdict(
        found,
        f"{kills} kills, {sent} tasks, {len(receiver.arrivals)} posts, {again} of them again under their id",
        again > 0,
    )


async def _drained(url: str, receiver: Receiver) -> None:
    """Wait until nothing has come for as long as a lease lasts."""
    async with asyncio.timeout(LIMIT_S):
        seen = -1
        while seen != len(receiver.arrivals):
            seen = len(receiver.arrivals)
            await asyncio.sleep(20)


async def _logs(url: str) -> list[Any]:
    store = store_from_url(url)
    await store.open()
    try:
        return list(await collect(store))
    finally:
        await store.close()


@row(
    27, "1 of 50 webhook targets hangs",
    "p99 of the others ≤ 2 × that without it, or 50 ms; ≤ 10 sockets to the bad one", SQLITE, POSTGRES,
)  # fmt: skip
async def row_27(run: Run) -> Result:
    tasks = run.count(2_000)
    fleet = run.fleet(1, *FLAGS)
    await fleet.start()
    (server,) = fleet.servers
    good = [Receiver() for _ in range(50)]
    bad = Receiver(hang=True)
    # An address for each: the ports of one are one target.
    for place, receiver in enumerate((*good, bad)):
        await receiver.start(f"127.0.0.{place + 2}")
    calm = await _round(server, good, tasks)
    trouble = await _round(server, [*good[1:], bad], tasks)
    found = await fleet.judge()
    for receiver in (*good, bad):
        receiver.close()
    # Below this it is the machine that is measured.
    limit = max(2 * percentile(calm, 99), 0.05)
    return verdict(
        found,
        f"{tasks} tasks each; without {spread(calm)}; with {spread(trouble)}; {bad.most} sockets to the bad one",
        percentile(trouble, 99) <= limit,
        bad.most <= 10,
    )


async def _round(server: Server, receivers: list[Receiver], tasks: int) -> list[float]:
    """A steady rate of tasks over all targets; seconds from the acknowledgement to the end's arrival."""
    acknowledged: dict[str, tuple[float, Receiver]] = {}
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:

        async def one(place: int) -> None:
            receiver = receivers[place % len(receivers)]
            task_id = await send(client, lambda: server, f"echo {place}", receiver.url)
            acknowledged[task_id] = (time.monotonic(), receiver)

        began = time.monotonic()
        work: list[asyncio.Task[None]] = []
        for place in range(tasks):
            await asyncio.sleep(max(0.0, began + place / 100 - time.monotonic()))
            work.append(asyncio.create_task(one(place)))
        await asyncio.gather(*work)
    return await delays(acknowledged)


async def delays(acknowledged: dict[str, tuple[float, Receiver]]) -> list[float]:
    """Seconds from the acknowledgement of each task to the arrival of its end, where that does not hang."""
    due = {task_id: one for task_id, one in acknowledged.items() if not one[1].hangs}
    deadline = time.monotonic() + LIMIT_S
    while True:
        ends = {receiver: receiver.ends() for _, receiver in due.values()}
        if (
            all(task_id in ends[receiver] for task_id, (_, receiver) in due.items())
            or time.monotonic() > deadline
        ):
            # What never came counts as having taken as long as anybody waited.
            return [max(0.0, ends[one].get(task_id, at + LIMIT_S) - at) for task_id, (at, one) in due.items()]
        await asyncio.sleep(0.05)
