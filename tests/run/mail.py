"""A worker on a real in-memory store, with a way out that is written down instead of dialled."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from tests.run.stores import Intercepted
from trunkline.auth.vault import Vault
from trunkline.clock import Ids, now_ms
from trunkline.errors import StoreError, Unreachable
from trunkline.log import events as ev
from trunkline.net.breaker import Breaker
from trunkline.run.delivery import DeliveryWorker
from trunkline.run.feed import Feed
from trunkline.run.notification import NotificationComposer
from trunkline.run.push_configs import PushConfigs
from trunkline.run.retry import RetrySchedule
from trunkline.run.tasks import Tasks
from trunkline.store.records import Delivery, DeliveryRecord
from trunkline.wire.types import Message, Part, PushConfig, Role, TaskState

WORKING, DONE = ev.Status(TaskState.WORKING), ev.Status(TaskState.COMPLETED)
IDS = Ids()
KEY = bytes(range(32))


class Time:
    """A clock that is set by hand; ahead of the real one, which says when events happen and are due."""

    def __init__(self) -> None:
        self.ms = now_ms() + 60_000

    def __call__(self) -> int:
        return self.ms


class Shaky(Intercepted):
    """A store that fails where it is told to, as often as it is told to."""

    def __init__(self, clock: Time) -> None:
        super().__init__(clock)
        self.bad: Counter[str] = Counter()

    def _check(self, what: str) -> None:
        if self.bad[what]:
            self.bad[what] -= 1
            raise StoreError(f"no {what}")

    async def take(self, *args: Any, **kwargs: Any) -> list[Delivery]:
        self._check("take")
        if self.bad["odd"]:
            self.bad["odd"] -= 1
            raise ZeroDivisionError("odd")
        return await super().take(*args, **kwargs)

    async def settle(self, *args: Any, **kwargs: Any) -> None:
        self._check("settle")
        await super().settle(*args, **kwargs)

    async def expire(self, *args: Any, **kwargs: Any) -> int:
        self._check("expire")
        return await super().expire(*args, **kwargs)

    async def read(self, *args: Any, **kwargs: Any) -> list[ev.Recorded]:
        self._check("read")
        return await super().read(*args, **kwargs)


class Answer(Struct):
    """What a receiver says."""

    status: int = 200
    headers: dict[str, str] = {}


class Post(Struct):
    """What a receiver got."""

    url: str
    id: str
    body: Any
    headers: dict[str, str]

    @property
    def state(self) -> str:
        body = self.body.get("statusUpdate") or self.body.get("task") or self.body
        return body["status"]["state"].removeprefix("TASK_STATE_").lower()


class Receivers:
    """Everybody out there, by url: 200 unless a script says otherwise; the last word of one is repeated."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.scripts: dict[str, list[int | str | Answer]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.under_way: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> Answer:
        named = dict(headers)
        self.posts.append(Post(url, named["webhook-id"], msgspec.json.decode(body), named))
        self.under_way[url] += 1
        self.most[url] = max(self.most[url], self.under_way[url])
        try:
            if url in self.gates:
                await self.gates[url].wait()
        finally:
            self.under_way[url] -= 1
        script = self.scripts.get(url, [200])
        said = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(said, str):
            raise Unreachable(f"{url}: {said}", reason=said)
        return said if isinstance(said, Answer) else Answer(said)

    def states(self, url: str) -> list[str]:
        return [post.state for post in self.posts if post.url == url]

    def ids(self, url: str) -> list[str]:
        return [post.id for post in self.posts if post.url == url]


class Calm:
    """A breaker that never opens."""

    def busy(self, now: float) -> list[str]:
        return []

    def allows(self, lane: str, now: float) -> bool:
        return True

    def succeeded(self, lane: str) -> None: ...

    def failed(self, lane: str, now: float) -> bool:
        return False


class Later(Breaker):
    """A breaker whose time can be moved on."""

    ahead = 0.0

    def busy(self, now: float) -> list[str]:
        return super().busy(now + self.ahead)

    def allows(self, lane: str, now: float) -> bool:
        return super().allows(lane, now + self.ahead)

    def failed(self, lane: str, now: float) -> bool:
        return super().failed(lane, now + self.ahead)

    def down_s(self, lane: str, now: float) -> float:
        return super().down_s(lane, now + self.ahead)


class Passes:
    """Lets every url pass but those that say they are bad."""

    async def check(self, url: str) -> None:
        if "bad" in url:
            raise Unreachable("bad.example cannot be called", reason="refused")


class Mail:
    """Tasks, their configs, and the worker."""

    def __init__(self, *, long: bool = False, breaker: Any = None, whole: bool = False) -> None:
        self.clock = Time()
        self.store = Shaky(self.clock)
        self.tasks = Tasks(self.store)
        self.out = Receivers()
        self.vault = Vault(KEY)
        self.push = PushConfigs(self.tasks, IDS, lambda _: Passes(), self.vault, show=False)
        self.composer = NotificationComposer(
            self.tasks, self.vault, lambda *_: "v1a,sig", whole={""} if whole else ()
        )
        self.breaker = Calm() if breaker is None else breaker
        self.schedule = RetrySchedule(long=long)
        self.worker = self.another()

    def another(self) -> DeliveryWorker:
        worker = DeliveryWorker(
            self.tasks,
            self.composer,
            lambda _: self.out,
            self.breaker,
            self.schedule,
            timeout_s=5.0,
            clock=self.clock,
        )
        self.tasks.announced = worker.announced
        return worker

    async def open(self, *urls: str, version: str = "1.0", tenant: str = "t", principal: str = "me") -> Feed:
        """A task that these are told of; a target's id is its url."""
        feed = self.tasks.begin(tenant, IDS.new())
        message = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
        await self.tasks.append(feed, (ev.Submitted(message, "c", principal, "n"),))
        for url in urls:
            await self.set(feed, PushConfig(url, url), version)
        return feed

    async def set(self, feed: Feed, config: PushConfig, version: str = "1.0") -> None:
        await self.push.set(feed, await self.push.target(feed.tenant, config, version), "me")

    async def say(self, feed: Feed, *events: ev.AnyEvent) -> None:
        await self.tasks.append(feed, events)

    async def rows(self, **filters: Any) -> list[DeliveryRecord]:
        """All deliveries, oldest first."""
        return (await self.store.outbox.list(limit=100_000, **filters))[::-1]

    async def when(self, true: Callable[[list[DeliveryRecord]], bool]) -> list[DeliveryRecord]:
        """All deliveries, once something is true of them; `run` sets the limit."""
        while True:
            if true(rows := await self.rows()):
                return rows
            await asyncio.sleep(0.001)

    async def settled(self) -> list[DeliveryRecord]:
        """All deliveries once none is pending."""
        return await self.when(lambda rows: all(row.state != "pending" for row in rows))

    async def attempted(self, times: int) -> DeliveryRecord:
        """The first delivery, once it was tried this often and that is written down."""
        return (await self.when(lambda rows: rows[0].attempts == times and rows[0].at >= self.clock.ms))[0]


@asynccontextmanager
async def mail(**options: Any) -> AsyncIterator[Mail]:
    """Started; stopped at the end."""
    made = Mail(**options)
    await made.store.open()
    running = asyncio.get_running_loop().create_task(made.worker.run())
    try:
        yield made
    finally:
        await made.worker.stop(0.0)
        async with asyncio.timeout(60):
            await running
        await made.store.close()
