"""Updates while an agent works, against a local stand-in of Discord's API: one message, edited, and not too often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.fleet.notify.desk import Desk, desk, settings_of
from tests.fleet.office import NORTH, Office, office
from trunkline.clock import now_ms
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.notify import task_updates
from trunkline.fleet.notify.discord import DiscordChannel
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.task_updates import (
    AFTER_MS,
    CLAIM_MS,
    END_MS,
    KIND,
    LOOKED_AT,
    PER_MINUTE,
    SHOWN,
    TaskUpdates,
)
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]


class Discord:
    """A stand-in for Discord: it numbers messages, and knows a nonce again."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.messages: dict[str, str] = {}
        self.calls: list[str] = []
        self._nonces: dict[str, str] = {}
        desk.status, desk.answer = 200, self._answer

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        said = json.loads(body)
        if method == "POST":
            id = self._nonces.setdefault(said["nonce"], str(1000 + len(self._nonces)))
        else:
            id = path.rpartition("/")[2]
        self.calls.append(method)
        if self.desk.status == 200:
            assert said["allowed_mentions"] == {"parse": []}
            self.messages[id] = said["content"]
        return json.dumps({"id": id}).encode()


class Watched:
    """The updates of an office in a channel, with a clock that is set."""

    def __init__(self, at: Office, desk: Desk, fetcher: Fetcher) -> None:
        self.at, self.discord, self.later_ms = at, Discord(desk), 0
        self.fetcher = fetcher
        self.closed: set[str] = set()
        self.receiver = NoticeReceiver(
            name="channel",
            discord="4711",
            discord_token_env="TOKEN",
            discord_public_key="00" * 32,
            discord_api=f"http://{desk.place}/api",
            about=("progress",),
            tenants="all",
        )
        self.updates = self.made()

    def made(self) -> TaskUpdates:
        runner = self.at.application.host.runner
        return TaskUpdates(
            self.at.store,
            inbox_of(runner).state,
            {"channel": (self.receiver, DiscordChannel(settings_of(self.receiver, self.fetcher)))},
            tenants=lambda: [NORTH],
            closed=self.closed,
            now_ms=lambda: now_ms() + self.later_ms,
            origin="desk",
        )

    async def look(self) -> list[str]:
        """What the channel shows after another look, which comes later than any pause."""
        self.later_ms += AFTER_MS
        await self.updates.look()
        return list(self.discord.messages.values())

    async def kept(self) -> int:
        return len(await self.at.store.docs.list(NORTH, KIND))


def watched(work: Callable[[Watched], Awaitable[Any]], desk: Desk) -> None:
    async def main(at: Office) -> None:
        fetcher = Fetcher(Egress(hosts=["127.0.0.1"]))
        await work(Watched(at, desk, fetcher))
        await fetcher.close()

    office(main)


async def _working(at: Office, word: str) -> str:
    task = (await at.send("alice", word, wait=False))["id"]
    await at.until(task, "working")
    return task


def test_a_task_has_one_message_that_follows_it_to_its_end_and_over_a_restart(desk: Desk) -> None:
    async def work(at: Watched) -> None:
        task = await _working(at.at, "hold")
        await at.updates.look()
        # What has just begun may be over soon.
        assert at.discord.calls == []
        assert await at.look() == ["desk (work): working"]
        assert await at.look() == ["desk (work): working"]
        assert at.discord.calls == ["POST"]
        path, headers, _ = desk.heard[0]
        assert (path, headers["Authorization"]) == ("/api/channels/4711/messages", "Bot canary")
        # A hub that is started again knows the message.
        at.updates = at.made()
        await at.at.ask("alice", "POST", f"/api/tasks/{task}/cancel")
        await at.at.until(task, "canceled")
        (said,) = await at.look()
        assert said.startswith("desk (work): canceled")
        assert at.discord.calls == ["POST", "PATCH"] and desk.heard[1][0] == f"{path}/1000"
        assert await at.kept() == 0

    watched(work, desk)


def test_short_tasks_and_those_of_closed_tenants_are_not_shown(desk: Desk) -> None:
    async def work(at: Watched) -> None:
        await at.at.send("alice", "ping")
        assert await at.look() == []
        at.closed.add(NORTH)
        await _working(at.at, "hold")
        assert await at.look() == [] and await at.kept() == 0

    watched(work, desk)


def test_what_discord_refuses_is_tried_again_later_and_not_for_ever(desk: Desk) -> None:
    async def work(at: Watched) -> None:
        task = await _working(at.at, "hold")
        desk.status = 429
        await at.look()
        await at.look()
        assert at.discord.calls == ["POST"]
        desk.status = 200
        at.later_ms += CLAIM_MS
        assert await at.look() == ["desk (work): working"]
        # Posted twice, it is one message.
        assert at.discord.calls == ["POST", "POST"] and len(at.discord.messages) == 1
        await at.at.ask("alice", "POST", f"/api/tasks/{task}/cancel")
        await at.at.until(task, "canceled")
        desk.status = 500
        await at.look()
        assert await at.kept() == 1
        at.later_ms += END_MS
        await at.look()
        assert await at.kept() == 0

    watched(work, desk)


def test_only_so_many_tasks_are_shown_and_a_channel_is_told_so_much_in_a_minute(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.fleet.notify.task_updates.PER_MINUTE", 5)

    async def work(at: Watched) -> None:
        at.updates = at.made()
        await asyncio.gather(*[_working(at.at, "hold") for _ in range(SHOWN + 2)])
        assert len(await at.look()) == 5
        assert await at.kept() == SHOWN
        assert len(await at.look()) == 5
        at.later_ms += 60_000
        assert len(await at.look()) == 10

    watched(work, desk)


def test_of_two_hubs_one_posts(desk: Desk) -> None:
    async def work(at: Watched) -> None:
        await _working(at.at, "hold")
        other = at.made()
        at.later_ms += AFTER_MS
        await asyncio.gather(at.updates.look(), other.look())
        assert at.discord.calls == ["POST"]

    watched(work, desk)


def test_channel_that_raises_or_hangs_is_tried_again_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(watched: Watched) -> None:
        show = DiscordChannel.show

        async def broken(self: DiscordChannel, content: str, nonce: str, message: str) -> tuple[str, str]:
            raise KeyError("of a third party")

        async def hangs(self: DiscordChannel, content: str, nonce: str, message: str) -> tuple[str, str]:
            await asyncio.Event().wait()
            return "", ""

        monkeypatch.setattr(task_updates, "ATTEMPT_S", 0.01)
        await _working(watched.at, "hold on")
        for each in (broken, hangs):
            monkeypatch.setattr(DiscordChannel, "show", each)
            assert await watched.look() == []
            watched.later_ms += CLAIM_MS
        monkeypatch.setattr(DiscordChannel, "show", show)
        assert len(await watched.look()) == 1

    watched(work, desk)


def test_progress_needs_a_channel_whose_messages_can_be_edited() -> None:
    assert LOOKED_AT > SHOWN and PER_MINUTE <= 50
    with pytest.raises(msgspec.ValidationError, match="progress needs messages that can be edited"):
        msgspec.convert({"name": "a", "webhook": "https://a.example", "about": ["progress"]}, NoticeReceiver)
