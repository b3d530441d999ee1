"""Row 28: one caller sends at ten times its quota, another keeps to its own.

Run as a program it is that caller: its own work must not slow down the one whose answers are timed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from typing import Any

from tests.chaos.client import BROKEN, Client, Line, now_ms
from tests.chaos.fleet import KEYS, PYTHON, ROOT, Server
from tests.chaos.history import History, Told
from tests.chaos.rows import SQLITE, Result, Run, percentile, row, verdict

VICTIM, FLOODER = "c0", "c1"
RATE = 100
PACE = 50
ROUND_S = 4.0
LINES = 32


@row(
    28, "one caller sends at 10 times its quota, another within its own",
    "429 with Retry-After; the other's p99 ≤ 1.3 × that beside a caller within its quota", SQLITE,
)  # fmt: skip
async def row_28(run: Run) -> Result:
    rounds = run.count(8, 2)
    fleet = run.fleet(1, "--set", f"rate_limit={RATE}")
    (server,) = fleet.servers
    await server.start()
    client = Client(VICTIM, KEYS[VICTIM], run.history)
    times: dict[int, list[float]] = {RATE * 9 // 10: [], RATE * 10: []}
    answers: Counter[str] = Counter()
    await timed(client, server, 1.0)
    for number in range(rounds):
        # Whatever else the machine does falls on both alike.
        for pace in sorted(times, reverse=bool(number % 2)):
            other = await _beside(server, pace)
            times[pace] += await timed(client, server, ROUND_S)
            said, _ = await other.communicate()
            answers.update(json.loads(said) if pace > RATE else {})
        run.say(f"{number + 1} of {rounds} rounds")
    calm, flooded = (percentile(one, 99) for one in times.values())
    usual = [percentile(one, 50) * 1000 for one in times.values()]
    client.close()
    violations = await fleet.judge()
    let_in = answers["200"] / (rounds * ROUND_S)
    return verdict(
        violations,
        f"p99 {calm * 1000:.1f} ms beside a calm caller, {flooded * 1000:.1f} ms beside the flood "
        f"({flooded / calm:.2f} ×; p50 {usual[0]:.1f} and {usual[1]:.1f}) of {sum(answers.values()) / (rounds * ROUND_S):.0f} requests/s, "
        f"{let_in:.0f} of them let in, {answers['429 retry']} refused with Retry-After, "
        f"{answers['429']} without, {answers['broken']} broken",
        flooded <= 1.3 * calm, answers["429 retry"] > 0, not answers["429"], not answers["broken"], let_in < 2 * RATE,
    )  # fmt: skip


async def timed(client: Client, server: Server, seconds: float) -> list[float]:
    """Sends at a steady pace, whatever becomes of those before; how long each took."""
    took: list[float] = []

    async def send(number: int) -> None:
        message = {
            "messageId": f"calm-{now_ms()}-{number}",
            "role": "ROLE_USER",
            "parts": [{"text": f"canary-{VICTIM}"}],
        }
        told = Told("send", VICTIM, "", now_ms(), message_id=message["messageId"])
        began = time.perf_counter()
        result = await client.call(server, "SendMessage", {"message": message}, told)
        took.append(time.perf_counter() - began)
        assert result is not None, told
        told.task_id = result["task"]["id"]

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(int(PACE * seconds)):
            await asyncio.sleep(began + number / PACE - loop.time())
            group.create_task(send(number))
    return took


async def _beside(server: Server, pace: int) -> asyncio.subprocess.Process:
    words = (PYTHON, "-m", "tests.chaos.flood", str(server.port), str(pace), str(ROUND_S))
    made = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert made.stdout is not None
    # It says when it has loaded what it needs, so that this is not what is measured.
    async with asyncio.timeout(20):
        assert await made.stdout.readline() == b"ready\n"
    return made


class _Port:
    """A server that was started elsewhere."""

    name = "s0#1"

    def __init__(self, port: int) -> None:
        self.port = port


async def _flood(port: int, pace: int, seconds: float) -> Counter[str]:
    client = Client(FLOODER, KEYS[FLOODER], History(0))
    answers: Counter[str] = Counter()
    due: asyncio.Queue[int] = asyncio.Queue()

    async def work() -> None:
        line = Line(_Port(port))
        while (number := await due.get()) >= 0:
            answers[await _answer(line, client, number)] += 1
        line.close()

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(LINES):
            group.create_task(work())
        for number in range(int(pace * seconds)):
            if (early := began + number / pace - loop.time()) > 0.001:
                await asyncio.sleep(early)
            due.put_nowait(number)
        for _ in range(LINES):
            due.put_nowait(-1)
    return answers


async def _answer(line: Line, client: Client, number: int) -> str:
    message: dict[str, Any] = {
        "messageId": f"flood-{os.getpid()}-{number}",
        "role": "ROLE_USER",
        "parts": [{"text": f"canary-{FLOODER}"}],
    }
    try:
        status, headers, _ = await line.ask(client.raw("SendMessage", {"message": message}))
    except BROKEN:
        return "broken"
    return f"{status} retry" if b"retry-after" in headers else str(status)


if __name__ == "__main__":
    # It stands for machines elsewhere, and those would not take processor time from the server.
    os.nice(19)
    print("ready", flush=True)
    print(json.dumps(asyncio.run(_flood(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
