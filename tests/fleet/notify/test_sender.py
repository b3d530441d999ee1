"""Processes that share a store: whoever of them tells a receiver, it is told once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from tests.fleet.stores import Replicas
from trunkline.clock import now_ms
from trunkline.fleet.inbox import Inbox, InboxItem
from trunkline.fleet.notify.channel import Channel
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.fleet.notify.notices import NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.sender import NoticeSender
from trunkline.log.fold import State
from trunkline.store.base import Store

TASKS = 5
ITEM = InboxItem(
    task_id="t",
    context_id="c",
    agent="a",
    skill="",
    principal="p",
    state="input-required",
    question="q",
    text="Which?",
    asked_at="",
)
RECEIVERS = [
    NoticeReceiver(name="first", webhook="https://a.example"),
    NoticeReceiver(name="second", apprise="json://b"),
]


class Questions:
    """Tasks that all ask the same, until they are answered."""

    def __init__(self) -> None:
        self.is_open = True

    async def asking(self, tenant: str, task_id: str) -> State | None:
        asked = SimpleNamespace(question=SimpleNamespace(message_id="q"), status_at=now_ms(), deadline=0)
        return cast("State", asked) if self.is_open else None

    def question(self, state: State) -> InboxItem:
        return ITEM


class Slow(Channel):
    """A receiver that takes its time."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.has_all = asyncio.Event()

    async def send(self, message: ChannelMessage) -> str:
        self.heard.append(message.id)
        if len(self.heard) == TASKS:
            self.has_all.set()
        await asyncio.sleep(0.01)
        return ""


def test_replicas_tell_each_receiver_once(replicas: Replicas) -> None:
    async def work(*stores: Store) -> None:
        questions, channels = Questions(), {one.name: Slow() for one in RECEIVERS}
        notice_stores = [NoticeStore(store, questions.asking) for store in stores]
        links = AnswerLinks(None, lambda: "", now_ms)
        inbox = cast("Inbox", cast("Any", questions))
        senders = [
            NoticeSender(notice_store, inbox, RECEIVERS, channels, links=links, now_ms=now_ms)
            for notice_store in notice_stores
        ]
        batch = msgspec.msgpack.encode([("default", f"t{n}") for n in range(TASKS)])
        # Both hear of the same page of the log, at the same time and again.
        await asyncio.gather(
            *[notice_store.settle(batch, 1) for notice_store in (*notice_stores, *notice_stores)]
        )
        for notice_store in notice_stores:
            await notice_store.mirror.refresh()
            assert len(notice_store.notices) == TASKS
        for _ in range(2):
            await asyncio.gather(*[sender.tell_due() for sender in senders])
        for channel in channels.values():
            assert (len(channel.heard), len(set(channel.heard))) == (TASKS, TASKS)
        questions.is_open = False
        await asyncio.gather(*[notice_store.settle(batch, 2) for notice_store in notice_stores])
        for notice_store in notice_stores:
            await notice_store.mirror.refresh()
            assert notice_store.notices == []

    replicas.run(work, count=2)


class Hanging(Channel):
    """A receiver that never answers."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def send(self, message: ChannelMessage) -> str:
        self.is_asked.set()
        await asyncio.Event().wait()
        return message.id


def test_a_receiver_that_hangs_delays_no_other() -> None:
    async def work(store: Store) -> None:
        questions, hanging, good = Questions(), Hanging(), Slow()
        links = AnswerLinks(None, lambda: "", now_ms)
        notice_store = NoticeStore(store, questions.asking, lambda: sender.woken.set())
        sender = NoticeSender(
            notice_store,
            cast("Inbox", cast("Any", questions)),
            RECEIVERS,
            {"first": hanging, "second": good},
            links=links,
            now_ms=now_ms,
        )
        running = asyncio.create_task(sender.run())
        await notice_store.settle(msgspec.msgpack.encode([("default", "t0")]), 1)
        await hanging.is_asked.wait()
        await notice_store.settle(msgspec.msgpack.encode([("default", f"t{n}") for n in range(TASKS)]), 2)
        async with asyncio.timeout(20):
            await good.has_all.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    Replicas("memory:").run(work)
