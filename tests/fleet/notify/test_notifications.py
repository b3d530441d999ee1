"""From a question in the log to its receivers: each is told once, also by several processes and after a crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fleet.office import NORTH, SOUTH, Office, office
from trunkline.auth.vault import Vault
from trunkline.clock import now_ms
from trunkline.fleet.health.alerts import AlertFigures, AlertLimits, AlertLog
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.notify.channel import Channel
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.fleet.notify.notices import ALERT_KEPT_MS
from trunkline.fleet.notify.notifications import Notifications
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.sender import PER_MINUTE

RECEIVERS = [
    NoticeReceiver(name="first", webhook="https://a.example/canary", tenants="all"),
    NoticeReceiver(
        name="next",
        webhook="https://b.example/canary",
        tenants=(NORTH,),
        after="10m",
        about=("questions",),
        link=True,
    ),
]
LINKS = AnswerLinks(Vault(b"k" * 32), lambda: "http://hub.example", now_ms)
NO_VARIABLE = dict[str, str]().get
HIGH = AlertFigures(max_failure_rate_1h=0.75, daily_cost_usd=0, orphaned_skills=0)


class Listening(Channel):
    """A receiver that hears everything, or nothing while it is out."""

    def __init__(self) -> None:
        self.heard: list[ChannelMessage] = []
        self.trouble = ""

    async def send(self, message: ChannelMessage) -> str:
        if self.trouble == "breaks":
            raise ValueError("canary")
        if not self.trouble:
            self.heard.append(message)
        return self.trouble


class Told:
    """The notifications of an office, with a clock that is set, and their receivers."""

    def __init__(self, at: Office, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later_ms = 0
        self.closed: set[str] = set()
        self.receivers = {one.name: Listening() for one in RECEIVERS}
        self._at = at

        def channel(_: Notifications, receiver: NoticeReceiver) -> Listening:
            return self.receivers[receiver.name]

        monkeypatch.setattr(Notifications, "_channel", channel)

    def made(self) -> Notifications:
        host = self._at.application.host
        return Notifications(
            host.store, inbox_of(host.runner), RECEIVERS, fetcher=host.fetchers.shared, sign=lambda: None, links=LINKS,
            variable=NO_VARIABLE, now_ms=lambda: now_ms() + self.later_ms, closed=self.closed,
        )  # fmt: skip

    async def look(self, one: Notifications | None = None) -> list[list[str]]:
        """What each has heard by now, after one look at the log."""
        one = one or self.made()
        if one.sender is None:
            await one.start()
        assert one.sender is not None
        await one.reader.catch_up()
        await one.sender.tell_due()
        return [[said.title for said in each.heard] for each in self.receivers.values()]


def told(work: Callable[[Office, Told], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    office(lambda at: work(at, Told(at, monkeypatch)))


def test_a_login_is_told_like_other_questions_and_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        task = (await at.send("alice", "login"))["id"]
        wanted = "desk wants a login: Log in at https://login.example"
        assert await told.look(one) == await told.look() == [[wanted], []]
        (said,) = told.receivers["first"].heard
        assert (said.members["taskId"], said.members["state"]) == (task, "auth-required")
        told.later_ms = 601_000
        assert await told.look(one) == [[wanted], [wanted]]
        form = {"decision": "respond", "text": "done"}
        assert (await at.ask("carol", "POST", f"/api/inbox/{task}", form)).status_code == 200
        await at.until(task, "completed")
        await told.look(one)
        assert one.notice_store.notices == []

    told(work, monkeypatch)


def test_a_question_is_told_once_then_to_the_next_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        await at.send("alice", "ping")
        assert await told.look(one) == [[], []]
        task = (await at.send("alice", "ask"))["id"]
        asked = "desk asks: Which one?"
        assert await told.look(one) == [[asked], []]
        # Another process, and one that starts anew, hear of the same page of the log.
        assert await told.look() == await told.look(one) == [[asked], []]
        (said,) = told.receivers["first"].heard
        assert said.members["taskId"] == task and said.members["tenant"] == NORTH
        told.later_ms = 599_000
        assert await told.look(one) == [[asked], []]
        told.later_ms = 601_000
        assert await told.look(one) == [[asked], [asked]]
        late = told.receivers["next"].heard[0]
        assert late.id != said.id and "answerUrl" not in said.members
        right = LINKS.read(late.members["answerUrl"].rpartition("/")[2])
        assert right is not None and (right.task_id, right.who, right.tenant) == (task, "next", NORTH)
        await at.ask("carol", "POST", f"/api/inbox/{task}", {"decision": "respond", "text": "red"})
        await at.until(task, "completed")
        await told.look(one)
        assert one.notice_store.notices == []
        assert await told.look() == [[asked], [asked]]

    told(work, monkeypatch)


def test_what_is_answered_in_time_is_told_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        task = (await at.send("alice", "ask"))["id"]
        await told.look(one)
        await at.ask("carol", "POST", f"/api/inbox/{task}", {"decision": "respond", "text": "red"})
        await at.until(task, "completed")
        told.later_ms = 601_000
        assert one.sender is not None
        # Though nobody has read of the answer yet.
        await one.sender.tell_due()
        assert told.receivers["next"].heard == [] and one.notice_store.notices == []

    told(work, monkeypatch)


def test_one_that_cannot_be_told_is_tried_again_under_the_same_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trunkline.fleet")

    async def work(at: Office, told: Told) -> None:
        one, first = told.made(), told.receivers["first"]
        await at.send("alice", "ask")
        first.trouble = "status 500"
        await told.look(one)
        told.later_ms = 59_000
        first.trouble = "breaks"
        await told.look(one)
        told.later_ms = 61_000
        await told.look(one)
        first.trouble = ""
        told.later_ms = 182_000
        # The process that made the attempts is gone: another one goes on.
        assert [len(heard) for heard in await told.look()] == [1, 0]
        assert [len(heard) for heard in await told.look()] == [1, 0]

    told(work, monkeypatch)
    lines = [record.getMessage() for record in caplog.records if "notify." in record.getMessage()]
    assert [line.partition(" id=")[0] for line in lines] == [
        "notify.failed receiver=first attempt=1 reason=status 500",
        "notify.broke receiver=first",
        "notify.failed receiver=first attempt=2 reason=ValueError",
        "notify.told receiver=first",
    ]


def test_a_flood_is_told_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.fleet.notify.sender.PER_MINUTE", 2)
    assert PER_MINUTE > 2

    async def work(at: Office, told: Told) -> None:
        one = told.made()
        for _ in range(3):
            await at.send("alice", "ask")
        assert len((await told.look(one))[0]) == 2
        told.later_ms = 61_000
        assert len((await told.look(one))[0]) == 3
        # Whose clock was ahead does not wait for the wrong time.
        for count, told.later_ms in ((4, 7_200_000), (5, 7_200_000), (6, 0)):
            await at.send("alice", "ask")
            assert len((await told.look(one))[0]) == count

    told(work, monkeypatch)


def test_the_flood_of_one_tenant_keeps_no_receiver_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.fleet.notify.sender.PER_MINUTE", 2)

    async def work(at: Office, told: Told) -> None:
        one = told.made()
        for _ in range(6):
            await at.send("alice", "ask")
        await told.look(one)
        at.keys["zoe"] = (await at.application.host.key_store.create("zoe", tenant=SOUTH)).token
        await at.send("zoe", "ask")
        told.later_ms = 61_000
        await told.look(one)
        assert [said.members["tenant"] for said in told.receivers["first"].heard] == [
            NORTH,
            NORTH,
            NORTH,
            SOUTH,
        ]

    told(work, monkeypatch)


def test_an_alert_is_told_once_per_cooldown_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        docs = at.application.host.store.docs
        logs = [AlertLog(docs, lambda _: AlertLimits(), one.alert) for _ in range(2)]
        start = now_ms()
        for minutes in (0, 1, 16):
            for each in logs:
                await each.tell(NORTH, HIGH, start + minutes * 60_000)
        told.later_ms = 17 * 60_000
        # The next receiver wants to hear of questions only.
        assert await told.look(one) == [["Alert: failure-rate"] * 2, []]
        assert await told.look() == [["Alert: failure-rate"] * 2, []]
        await one.notice_store.sweep(start + 16 * 60_000 + ALERT_KEPT_MS)
        assert len(one.notice_store.notices) == 1
        await one.notice_store.sweep(start + 17 * 60_000 + ALERT_KEPT_MS)
        assert one.notice_store.notices == []

    told(work, monkeypatch)


def test_of_a_tenant_that_is_closed_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        told.closed.add(NORTH)
        await at.send("alice", "ask")
        assert await told.look(one) == [[], []]
        told.closed.clear()
        assert await told.look(one) == [["desk asks: Which one?"], []]

    told(work, monkeypatch)


def test_it_runs_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Office, told: Told) -> None:
        one = told.made()
        await one.start()
        running = asyncio.create_task(one.run())
        await at.send("alice", "ask")
        async with asyncio.timeout(30):
            while not told.receivers["first"].heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    told(work, monkeypatch)
