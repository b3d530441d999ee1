"""Questions in a channel, against a local stand-in of Discord's API: buttons, free text, and who is believed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.notify.desk import Desk, desk
from tests.fleet.office import Office, office
from trunkline.clock import now_ms
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.notify.discord import DiscordAnswers, discord_mount
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notifications import Notifications
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]
KEY, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
USER = {"member": {"user": {"username": "ada"}}}


class Channel:
    """A channel of Discord, and a hub that has a bot there."""

    def __init__(self, at: Office, desk: Desk, fetcher: Fetcher) -> None:
        host = at.application.host
        receiver = NoticeReceiver(
            name="channel",
            discord="4711",
            discord_token_env="TOKEN",
            discord_public_key=KEY.public_key().public_bytes_raw().hex(),
            discord_api=f"http://{desk.place}/api",
            tenants="all",
        )
        inbox = inbox_of(host.runner)
        self.at, self.desk = at, desk
        self.told = Notifications(
            host.store,
            inbox,
            [receiver],
            fetcher=fetcher,
            sign=lambda: None,
            links=AnswerLinks(None, lambda: "", now_ms),
            variable={"TOKEN": "canary"}.get,
            now_ms=now_ms,
        )
        host.mounts.add(discord_mount(DiscordAnswers(self.told.notice_store, inbox, [receiver], now_ms)))
        transport = httpx2.ASGITransport(at.application)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")

    async def asked(self, word: str) -> tuple[str, dict[str, str]]:
        """A task that asks, and the ids of the buttons in the channel by their labels."""
        task = (await self.at.send("alice", word))["id"]
        if self.told.sender is None:
            await self.told.start()
        assert self.told.sender is not None
        await self.told.reader.catch_up()
        await self.told.sender.tell_due()
        (row,) = self.desk.bodies()[-1]["components"]
        return task, {one["label"]: one["custom_id"] for one in row["components"]}

    async def interact(
        self, body: dict[str, Any], key: Ed25519PrivateKey = KEY, age_s: int = 0, moment: str = ""
    ) -> httpx2.Response:
        text, moment = json.dumps({**USER, **body}).encode(), moment or str(now_ms() // 1000 - age_s)
        signed = key.sign(moment.encode() + text).hex()
        headers = {"X-Signature-Ed25519": signed, "X-Signature-Timestamp": moment}
        return await self._client.post("/discord/interactions", content=text, headers=headers)

    async def press(self, custom_id: str) -> Any:
        return (await self.interact({"type": 3, "data": {"custom_id": custom_id}})).json()


def channel(work: Callable[[Channel], Awaitable[Any]], desk: Desk) -> None:
    async def main(at: Office) -> None:
        fetcher = Fetcher(Egress(hosts=["127.0.0.1"]))
        await work(Channel(at, desk, fetcher))
        await fetcher.close()

    office(main)


def test_a_question_is_posted_and_answered_in_free_text(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        task, buttons = await at.asked("ask")
        path, headers, _ = desk.heard[0]
        posted = desk.bodies()[0]
        assert (path, headers["Authorization"]) == ("/api/channels/4711/messages", "Bot canary")
        assert posted["content"].startswith("desk asks: Which one?")
        # No name in it calls anybody, and Discord takes it once however often it is posted.
        assert (posted["allowed_mentions"], posted["enforce_nonce"]) == ({"parse": []}, True)
        assert list(buttons) == ["Answer…", "Reject"]
        modal = await at.press(buttons["Answer…"])
        assert modal["type"] == 9
        assert (await at.at.get("root", f"/api/tasks/{task}"))["state"] == "input-required"
        fields = [{"type": 1, "components": [{"type": 4, "custom_id": "text", "value": " the red one "}]}]
        sent = {"type": 5, "data": {"custom_id": modal["data"]["custom_id"], "components": fields}}
        answered = (await at.interact(sent)).json()
        assert (answered["type"], answered["data"]["components"]) == (7, [])
        assert "respond by ada" in answered["data"]["content"]
        assert (await at.at.until(task, "completed"))["text"] == "heard the red one"
        (closed,) = (await at.at.get("carol", "/api/inbox?state=closed"))["items"]
        assert closed["answeredBy"] == "discord:ada"
        again = (await at.interact(sent)).json()
        assert (again["type"], again["data"]) == (4, {"content": "This question is closed.", "flags": 64})

    channel(work, desk)


def test_choices_are_buttons_and_what_does_not_fit_is_said_to_one(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        task, buttons = await at.asked("colour")
        assert list(buttons) == ["red", "blue", "Answer…", "Reject"]
        id = buttons["red"].rpartition(":")[2]
        for strange in (f"c:7:{id}", f"c:x:{id}", f"c:²:{id}", f"z::{id}"):
            assert (await at.press(strange))["data"]["content"] == "This hub does not know that button."
        fields = [{"type": 1, "components": [{"type": 4, "custom_id": "text", "value": "green"}]}]
        wrong = await at.interact({"type": 5, "data": {"custom_id": f"m::{id}", "components": fields}})
        assert "must be one of red, blue" in wrong.json()["data"]["content"]
        assert (await at.press(buttons["blue"]))["type"] == 7
        assert (await at.at.until(task, "completed"))["text"] == "heard blue"
        other, buttons = await at.asked("ask")
        assert (await at.press(buttons["Reject"]))["type"] == 7
        await at.at.until(other, "failed")
        assert (await at.press("nonsense"))["data"]["content"] == "This question is closed."

    channel(work, desk)


def test_only_what_discord_has_signed_lately_is_believed(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        task, buttons = await at.asked("ask")
        body = {"type": 3, "data": {"custom_id": buttons["Reject"]}}
        assert (await at.interact({"type": 1})).json() == {"type": 1}
        assert (await at.interact(body, STRANGER)).status_code == 401
        assert (await at.interact(body, age_s=3600)).status_code == 401
        for endless in ("9" * 400, "9" * 5000):
            assert (await at.interact(body, moment=endless)).status_code == 401
        assert (await at.at.get("root", f"/api/tasks/{task}"))["state"] == "input-required"

    channel(work, desk)


def test_a_channel_needs_a_bot() -> None:
    with pytest.raises(msgspec.ValidationError, match="discord_token_env"):
        msgspec.convert({"name": "a", "discord": "1"}, NoticeReceiver)
