"""The whole of sending in one process: real stores, real connections, a name that moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hooks import Hooks
from tests.run.desk import run
from tests.run.mail import DONE, IDS, WORKING
from trunkline import Agent
from trunkline.config import Secret, Settings
from trunkline.errors import Misuse
from trunkline.host import Application
from trunkline.log.events import Submitted
from trunkline.net.egress import Egress, Resolver
from trunkline.net.fetch import Fetcher
from trunkline.run.delivery import DeliveryWorker
from trunkline.run.feed import Feed
from trunkline.run.notifier import Notifier
from trunkline.run.tasks import Tasks
from trunkline.store.records import DeliveryRecord, OutboxEntry
from trunkline.store.sqlite.store import SqliteStore
from trunkline.store.url import store_from_url
from trunkline.wire.types import Message, Part, PushConfig, Role


class Room:
    """A post room, its tasks and its store."""

    def __init__(self, settings: Settings) -> None:
        self.store = store_from_url(settings.store)
        self.tasks = Tasks(self.store)
        self.post = Notifier(self.tasks, IDS, settings)

    async def open(self, url: str, version: str = "1.0") -> Feed:
        """A task that this url is told of."""
        target = await self.post.push.target("t", PushConfig(url, "c", token="tok"), version)
        feed = self.tasks.begin("t", IDS.new())
        message = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
        await self.tasks.append(feed, (Submitted(message, "c", "me", "n", push=target),))
        return feed

    async def ended(self, count: int) -> list[DeliveryRecord]:
        """All deliveries, oldest first, once this many have ended."""
        while True:
            found = await self.store.outbox.list()
            if sum(one.state != "pending" for one in found) >= count:
                return found[::-1]
            await asyncio.sleep(0.005)


@asynccontextmanager
async def room(egress: Egress | None = None, **settings: object) -> AsyncIterator[Room]:
    made = Room(Settings(**{"store": "memory:", **settings}))  # type: ignore[arg-type]
    out = Fetcher(egress or Egress(loopback=True))
    await made.store.open()
    try:
        await made.post.start(lambda _: out)
        yield made
    finally:
        await made.post.stop()
        await out.close()
        await made.store.close()


def names(*answers: Sequence[str]) -> Resolver:
    """A resolver that says one after the other; the last for ever."""
    left = list(answers)

    async def resolve(host: str, port: int, /) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def test_AG_35_a_name_that_moved_inside_is_not_posted_to() -> None:
    async def scene(hooks: Hooks) -> None:
        egress = Egress(resolver=names(["93.184.216.34"], ["127.0.0.1"]))
        async with room(egress) as r:
            feed = await r.open(hooks.url("/inside", "hooks.example"))
            await r.tasks.append(feed, (WORKING, DONE))
            rows = await r.ended(2)
            assert [(row.state, row.note, row.attempts) for row in rows] == [("dead", "refused", 1)] * 2
            assert hooks.posts == []

    with Hooks() as hooks:
        run(scene(hooks))


def test_a_name_keeps_its_host_and_is_dialled_where_it_was_judged() -> None:
    async def scene(hooks: Hooks) -> None:
        egress = Egress(loopback=True, resolver=names(["127.0.0.7"]))
        async with room(egress) as r:
            feed = await r.open(hooks.url("/named", "hooks.example"))
            await r.tasks.append(feed, (WORKING,))
            await r.ended(1)
            (post,) = hooks.on("/named")
            assert post.headers["host"].startswith("hooks.example:")

    with Hooks() as hooks:
        run(scene(hooks))


def test_what_is_left_is_posted_after_a_restart_under_the_same_id(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"

    async def before(hooks: Hooks) -> None:
        async with room(store=store) as r:
            feed = await r.open(hooks.url("/held"))
            await r.tasks.append(feed, (WORKING,))
            await r.tasks.append(feed, (DONE,))
            await asyncio.to_thread(hooks.wait, "/held", 1)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await r.post.stop()
            # It hangs, and is left to who comes next.
            assert loop.time() - began < 30

    async def after(hooks: Hooks) -> None:
        async with room(store=store) as r:
            assert [row.state for row in await r.ended(2)] == ["done", "done"]

    with Hooks() as hooks:
        gate = hooks.hold("/held")
        run(before(hooks))
        hooks.gates.pop("/held")
        gate.set()
        run(after(hooks))
        first, again, last = hooks.on("/held")
        assert (first.id, first.raw) == (again.id, again.raw)
        assert [first.state, last.state] == ["working", "completed"]
        assert last.headers["authorization"] == "Bearer tok"


def test_a_lost_key_is_said_at_the_start(tmp_path: Path) -> None:
    async def scene(secret: str) -> None:
        async with room(store=f"sqlite:///{tmp_path}/tasks.db", secret_key=Secret(secret)):
            pass

    run(scene("the first secret of all"))
    with pytest.raises(Misuse, match="secret_key"):
        run(scene("another secret than that"))


def test_a_shared_store_needs_a_key() -> None:
    async def scene() -> None:
        store = SqliteStore(None, now_ms=lambda: 0)
        post = Notifier(Tasks(store), IDS, Settings(store="postgresql://nobody@nowhere/none"))
        with pytest.raises(Misuse, match="secret_key"):
            await post.start(lambda _: Fetcher(Egress()))
        await post.stop()

    run(scene())


def test_a_worker_that_breaks_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: DeliveryWorker) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(DeliveryWorker, "run", broken)

    async def scene() -> None:
        async with room():
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR, "trunkline.webhook"):
        run(scene())
    assert "push.broke" in caplog.text and "a bug" in caplog.text


def test_a_server_that_does_not_push_says_that_somebody_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    agent = Agent("mute", description="Says nothing.", version="1")

    @agent.skill
    def echo(text: str) -> str:
        """Say it again."""
        return text

    async def scene() -> None:
        async with Application(agent, {"store": url, "push": False}).lifespan():
            assert "push.off" not in caplog.text
        store = store_from_url(url)
        await store.open()
        waits = OutboxEntry("d", 1, "c", "https://hooks.example:443", 1)
        message = Submitted(Message(message_id="m", role=Role.USER), "c", "me", "n")
        await store.log.append("default", IDS.new(), 0, [message], at=1, deliveries=[waits])
        await store.close()
        async with Application(agent, {"store": url, "push": False}).lifespan():
            assert "push.off reason=setting pending=yes" in caplog.text

    run(scene())


def test_an_allowance_that_is_none_is_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("near", description="Calls its neighbours.", version="1")

    @agent.skill
    def echo(text: str) -> str:
        """Say it again."""
        return text

    async def scene() -> None:
        lists = {"egress_networks": ("10.0.0.0/99",), "egress_hosts": ("http://inner",)}
        async with Application(agent, {"store": "memory:", **lists}).lifespan():
            assert "egress.ignored network='10.0.0.0/99'" in caplog.text
            assert "egress.ignored host='http://inner'" in caplog.text

    run(scene())


def test_what_was_posted_is_settled_before_the_process_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or the next process would post it once more.
    async def scene(hooks: Hooks) -> None:
        async with room() as r:
            settle, begun, may = r.store.outbox.settle, asyncio.Event(), asyncio.Event()

            async def slowly(*args: Any, **rest: Any) -> Any:
                begun.set()
                await may.wait()
                return await settle(*args, **rest)

            monkeypatch.setattr(r.store.outbox, "settle", slowly)
            feed = await r.open(hooks.url("/posted"))
            await r.tasks.append(feed, (WORKING,))
            await begun.wait()
            stopping = asyncio.create_task(r.post.stop())
            for _ in range(10):
                await asyncio.sleep(0)
            may.set()
            await stopping
            assert [row.state for row in await r.store.outbox.list()] == ["done"]

    with Hooks() as hooks:
        run(scene(hooks))
