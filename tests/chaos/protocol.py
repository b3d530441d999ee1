"""Rows 15 and 23: the models for as long as there is time, and lists that are walked while everything changes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from typing import Any

from tests.chaos.client import Client, now_ms
from tests.chaos.crowd import Crowd
from tests.chaos.fleet import KEYS, Server
from tests.chaos.history import Told
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, verdict
from tests.model import test_log, test_run

WHO = "c0"
MODEL_S = 150.0


@row(
    15, "races of cancel, complete, answer and claim against the models, for 2.5 minutes",
    "0 differences; 1 M steps where time allows", SQLITE,
)  # fmt: skip
async def row_15(run: Run) -> Result:
    deadline = time.monotonic() + MODEL_S * run.scale
    steps = 0
    machines: list[tuple[Any, Any]] = [
        (test_log.test_the_log_agrees_with_the_model, test_log.Machine),
        (test_run.test_the_runner_agrees_with_the_model, test_run.Machine),
    ]
    while time.monotonic() < deadline:
        for play, machine in machines:
            with contextlib.redirect_stdout(io.StringIO()):
                await asyncio.to_thread(play)
            steps += machine.steps
        run.say(f"{steps} steps")
    return Result(True, f"0 differences in {steps} steps")


@row(
    23, "500 walks through a list while states change", "no task twice, none that did not change is missing", SQLITE, POSTGRES
)  # fmt: skip
async def row_23(run: Run) -> Result:
    walks = run.count(500)
    fleet = run.fleet(1 if run.kind == SQLITE else 2)
    await fleet.start()
    client = Client(WHO, KEYS[WHO], run.history)
    still = await _still(client, fleet.servers[0], 300)
    crowd = Crowd(fleet.servers, run.history, run.seed, 15)
    crowd.start()
    todo = iter(range(walks))
    twice = missing = pages = 0

    async def walk() -> None:
        nonlocal twice, missing, pages
        walker = Client(WHO, KEYS[WHO], run.history)
        for number in todo:
            ids, count = await _walk(walker, run.random.choice(fleet.servers))
            pages += count
            twice += len(ids) - len(set(ids))
            missing += len(still - set(ids))
            run.say(f"{number + 1} of {walks} walks, {pages} pages, {twice} twice, {missing} missing")
        walker.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(walk())
    await crowd.settle()
    client.close()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"{walks} walks of {pages} pages, {twice} twice, {missing} missing",
        not twice,
        not missing,
    )


async def _still(client: Client, server: Server, count: int) -> set[str]:
    """Tasks that have ended and change no more."""
    ids: set[str] = set()
    for place in range(count):
        message = {"messageId": f"still-{place}", "role": "ROLE_USER", "parts": [{"text": f"canary-{WHO}"}]}
        told = Told("send", WHO, "", now_ms())
        result = await client.call(server, "SendMessage", {"message": message}, told)
        ids.add(result["task"]["id"])
    return ids


async def _walk(client: Client, server: Server) -> tuple[list[str], int]:
    ids: list[str] = []
    token, pages = "", 0
    while True:
        told = Told("count", WHO, "", now_ms())
        query = {"pageSize": 100, **({"pageToken": token} if token else {})}
        page = await client.call(server, "ListTasks", query, told)
        assert page is not None, told
        ids += [task["id"] for task in page["tasks"]]
        pages += 1
        token = page["nextPageToken"]
        if not token:
            return ids, pages
