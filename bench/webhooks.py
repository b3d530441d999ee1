"""Webhooks: how fast stored deliveries go out, and how long one is under way while a target hangs."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns, perf_counter, process_time
from typing import Any

import httpx2

from bench.contract import Broken
from bench.generator import HOST, run
from bench.scenario import Sample, Scale
from bench.servers import ROOT, SERVER_CPU, WORK, Contender, pin
from trunkline.auth.vault import Vault, find_key
from trunkline.clock import Ids
from trunkline.config import Settings
from trunkline.log.events import Chunk, PushTarget, Status, Submitted
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.run.feed import Feed
from trunkline.run.notification import NotificationComposer, OutgoingNotification
from trunkline.run.notifier import Notifier
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store
from trunkline.store.records import DeliveryOutcome, DeliveryResult
from trunkline.store.url import store_from_url
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState

TARGETS = 50
TASKS = 2_000
PER_SECOND = 200
CONNECTIONS = 64
TENANT = "default"
TEXT = "lorem ipsum dolor sit amet " * 12


class Receivers:
    """The process that the posts go to."""

    def __init__(self, hanging: int) -> None:
        command = [sys.executable, "-m", "bench.sink", str(TARGETS), str(hanging)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        pin(self._process.pid, SERVER_CPU)
        self.hanging = hanging
        self.ports: list[int] = self._read()

    def ask(self, what: str) -> Any:
        """`count` or `times`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def url(self, place: int) -> str:
        """The address of one of them."""
        return f"http://{HOST}:{self.ports[place % TARGETS]}/hook"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _receivers(hanging: int = 0) -> Generator[Receivers]:
    made = Receivers(hanging)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def _file() -> Generator[Settings]:
    (WORK / "scratch").mkdir(parents=True, exist_ok=True)
    # Beside the checkout and not in /tmp, which may be memory: fsync must cost what it costs.
    folder = Path(tempfile.mkdtemp(dir=WORK / "scratch"))
    try:
        yield Settings(store=f"sqlite:///{folder}/tasks.db", push_timeout=5.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Office:
    """A store with tasks that have something to tell."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.tasks = Tasks(store)
        self.settings = settings
        self.ids = Ids()

    async def opened(self, url: str, place: int) -> Feed:
        """A task that is worked on, with a target."""
        target = PushTarget(f"config-{place}", url, "1.0")
        task_id = self.ids.new()
        said = Message(task_id, task_id, task_id, Role.USER, (Part(text=TEXT),))
        feed = self.tasks.begin(TENANT, task_id)
        await self.tasks.append(feed, (Submitted(said, task_id, "bench", "node", push=target),))
        await self.tasks.append(feed, (Status(TaskState.WORKING),))
        return feed

    async def ended(self, feed: Feed) -> str:
        """The same task, completed; gives the id of that last delivery."""
        result = Chunk(Artifact("out", parts=(Part(text=TEXT),)), last=True)
        await self.tasks.append(feed, (result, Status(TaskState.COMPLETED)))
        (posted,) = await self.tasks.store.outbox.list(task_id=feed.state.task_id, limit=1)
        return posted.id

    async def post(self) -> Notifier:
        """A courier at work on it, that knows nothing but the store."""
        room = Notifier(Tasks(self.tasks.store), self.ids, self.settings)
        poster = Fetcher(Egress(loopback=True), timeout_s=self.settings.push_timeout)
        await room.start(lambda tenant: poster)
        return room


def drain(contender: Contender, scale: Scale) -> Sample:
    """Deliveries that wait in a store, posted as fast as can be; or the same bytes by a bare client."""
    del scale
    with _receivers() as receivers, _file() as settings:
        return run(_drain(contender, receivers, settings))


async def _drain(contender: Contender, receivers: Receivers, settings: Settings) -> Sample:
    store = store_from_url(settings.store)
    await store.open()
    try:
        office = Office(store, settings)
        for first in range(0, TASKS, 100):
            feeds = await asyncio.gather(
                *(office.opened(receivers.url(place), place) for place in range(first, first + 100))
            )
            await asyncio.gather(*(office.ended(feed) for feed in feeds))
        if contender.name == "httpx2":
            return await _bare(await _letters(office), receivers)
        return await _courier(office, receivers)
    finally:
        await store.close()


async def _courier(office: Office, receivers: Receivers) -> Sample:
    started, used = perf_counter(), process_time()
    room = await office.post()
    async with asyncio.timeout(120):
        while room.worker.counts.done < 2 * TASKS:  # noqa: ASYNC110 - a clock, not an event
            await asyncio.sleep(0.005)
    seconds, cpu = perf_counter() - started, process_time() - used
    await room.stop()
    count: int = receivers.ask("count")
    return Sample(2 * TASKS / seconds, abs(count - 2 * TASKS), cpu / (2 * TASKS) * 1e6)


def _unsigned(webhook_id: str, moment: int, body: bytes) -> str:
    del webhook_id, moment, body
    return "v1a,none"


async def _letters(office: Office) -> list[OutgoingNotification]:
    """What the courier would post, written beforehand."""
    key = find_key(office.settings)
    assert key is not None
    letters = NotificationComposer(office.tasks, Vault(key), _unsigned, whole=())
    found: list[OutgoingNotification] = []
    while taken := await office.tasks.store.outbox.take(500, 600_000, per_lane=500):
        found += [letter for one in taken if (letter := await letters.write(one)) is not None]
        await office.tasks.store.outbox.settle(
            [DeliveryResult(one.id, DeliveryOutcome.DONE) for one in taken]
        )
    return found


async def _bare(letters: list[OutgoingNotification], receivers: Receivers) -> Sample:
    queue = iter(letters)
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx2.AsyncClient(limits=limits, trust_env=False) as client:

        async def one() -> None:
            for letter in queue:
                await client.post(letter.target.url, content=letter.body, headers=letter.headers)

        started, used = perf_counter(), process_time()
        await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
        seconds, cpu = perf_counter() - started, process_time() - used
    bad = abs(receivers.ask("count") - len(letters))
    return Sample(len(letters) / seconds, bad, cpu / len(letters) * 1e6)


def arrive(contender: Contender, scale: Scale) -> Sample:
    """A steady rate of tasks that end; from the commit of the end to its arrival, at those who answer."""
    hanging = 1 if contender.name == "trunkline-hang" else 0
    with _receivers(hanging) as receivers, _file() as settings:
        return run(_arrive(receivers, settings, scale))


async def _arrive(receivers: Receivers, settings: Settings, scale: Scale) -> Sample:
    store = store_from_url(settings.store)
    await store.open()
    office = Office(store, settings)
    room = await office.post()
    # One process runs tasks and posts: its courier hears of what it appends.
    office.tasks.announced = room.worker.announced
    committed: dict[str, int] = {}
    try:
        loop = asyncio.get_running_loop()
        started = loop.time()
        work: list[asyncio.Task[None]] = []
        for place in range(round(PER_SECOND * scale.seconds * 2)):
            await asyncio.sleep(max(0.0, started + place / PER_SECOND - loop.time()))
            work.append(loop.create_task(_one(office, receivers, place, committed)))
        await asyncio.gather(*work)
        await asyncio.sleep(1.0)
        times: dict[str, int] = receivers.ask("times")
    finally:
        await room.stop()
        await store.close()
    if not times:
        raise Broken("nothing arrived")
    late = sorted((times[name] - at) / 1e6 for name, at in committed.items() if name in times)
    missing = len(committed) - len(late)
    return Sample(late[int(len(late) * 0.99)], missing, extra={"p50_ms": late[len(late) // 2]})


async def _one(office: Office, receivers: Receivers, place: int, committed: dict[str, int]) -> None:
    feed = await office.opened(receivers.url(place), place)
    name = await office.ended(feed)
    if place % TARGETS >= receivers.hanging:
        committed[name] = monotonic_ns()
