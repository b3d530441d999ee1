"""Questions in a channel, against a local stand-in of Discord's API: buttons, free text, and who is believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx2
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.notify.desk import ChannelOffice, Desk, channel_office, desk, settings_of
from tests.fleet.office import NORTH
from trunkline.clock import now_ms
from trunkline.fleet.notify import ChannelHub, discord
from trunkline.fleet.notify.discord import DiscordChannel
from trunkline.fleet.notify.notice import ChannelMessage, notice_id
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]
KEY, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
USER = {"member": {"user": {"username": "ada"}}}


def receiver(desk: Desk, name: str = "channel", channel: str = "4711", **members: Any) -> NoticeReceiver:
    known: dict[str, Any] = {
        "discord_token_env": "TOKEN",
        "discord_public_key": KEY.public_key().public_bytes_raw().hex(),
        "discord_api": f"http://{desk.place}/api",
        "tenants": (NORTH,),
        **members,
    }
    return NoticeReceiver(name=name, discord=channel, **known)


class Channel:
    """A channel of Discord, and a hub that has a bot there."""

    def __init__(self, office: ChannelOffice, desk: Desk) -> None:
        self.office, self.at, self.desk = office, office.at, desk
        self._client = office.client

    async def asked(self, word: str) -> tuple[str, dict[str, str]]:
        """A task that asks, and the ids of the buttons in the channel by their labels."""
        task = (await self.at.send("alice", word))["id"]
        await self.office.look()
        (row,) = self.desk.bodies()[-1]["components"]
        return task, {one["label"]: one["custom_id"] for one in row["components"]}

    async def interact(
        self,
        body: dict[str, Any],
        key: Ed25519PrivateKey = KEY,
        age_s: int = 0,
        moment: str = "",
        path: str = "/discord/interactions",
    ) -> httpx2.Response:
        text, moment = json.dumps({**USER, **body}).encode(), moment or str(now_ms() // 1000 - age_s)
        signed = key.sign(moment.encode() + text).hex()
        headers = {"X-Signature-Ed25519": signed, "X-Signature-Timestamp": moment}
        return await self._client.post(path, content=text, headers=headers)

    async def ask(self, message: str, channel: str = "4711", id: str = "1", **options: str) -> Any:
        """What Discord shows of the command /ask."""
        given = [{"name": name, "value": value} for name, value in {"message": message, **options}.items()]
        body = {"type": 2, "id": id, "channel_id": channel, "data": {"name": "ask", "options": given}}
        return (await self.interact(body)).json()

    async def press(self, custom_id: str) -> Any:
        return (await self.interact({"type": 3, "data": {"custom_id": custom_id}})).json()


def channel(work: Callable[[Channel], Awaitable[Any]], desk: Desk, *receivers: NoticeReceiver) -> None:
    channel_office(
        lambda office: work(Channel(office, desk)), [*(receivers or (receiver(desk),))], TOKEN="canary"
    )


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


def test_ask_opens_a_task_and_its_questions_and_result_come_to_the_channel(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        shown = await at.ask("ask me", agent="desk")
        assert (shown["type"], shown["data"]["content"]) == (4, "ada asks desk: ask me")
        # Discord repeats a command whose answer was lost.
        assert (await at.ask("ask me", agent="desk"))["type"] == 4
        (item,) = (await at.at.get("root", "/api/tasks"))["items"]
        task = item["taskId"]
        await at.office.settled(task, "input-required")
        (row,) = at.desk.bodies()[-1]["components"]
        buttons = {one["label"]: one["custom_id"] for one in row["components"]}
        fields = [{"type": 1, "components": [{"type": 4, "custom_id": "text", "value": "red"}]}]
        custom_id = buttons["Answer…"].replace("t:", "m:", 1)
        await at.interact({"type": 5, "data": {"custom_id": custom_id, "components": fields}})
        await at.office.settled(task, "completed")
        await at.office.look()
        assert [one["content"] for one in at.desk.bodies()] == [
            "desk asks: Which one?\nTask " + task,
            "desk: completed\nheard red",
        ]
        assert at.office.told.notice_store.notices == []
        opened = (await at.at.get("root", f"/api/tasks/{task}"))["events"][0]
        assert opened["principal"] == "discord:ada"
        assert opened["metadata"]["trunkline.dispatch"]["trigger"] == "channel:channel"

    # Questions of others are none of this channel's business.
    channel(work, desk, receiver(desk, calls=True, about=("alerts",)))


def test_ask_without_an_agent_goes_to_the_default_agent_and_a_failure_is_posted(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        assert (await at.ask("fail now"))["data"]["content"] == "ada asks the hub: fail now"
        (item,) = (await at.at.get("root", "/api/tasks"))["items"]
        await at.office.settled(item["taskId"], "failed")
        assert [one["content"] for one in at.desk.bodies()] == ["desk: failed\nit broke"]
        await at.ask("cook", id="2", agent="cook")
        (refused,) = [
            one for one in (await at.at.get("root", "/api/tasks"))["items"] if one["agent"] != "desk"
        ]
        await at.office.settled(refused["taskId"], "rejected")
        assert "rejected" in at.desk.bodies()[-1]["content"]
        # It is sent later if Discord does not answer, and also by a hub that starts again.
        at.desk.status = 500
        await at.ask("again", id="3")
        assert len((await at.at.get("root", "/api/tasks"))["items"]) == 3
        (open_one,) = [notice for _, notice in at.office.told.notice_store.notices]
        assert (open_one.call, open_one.question) == ("channel", "")

    channel(work, desk, receiver(desk, calls=True))


def test_ask_is_refused_where_the_channel_does_not_accept_it(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        for place in ("4711", "9999"):
            shown = await at.ask("hello", channel=place)
            assert shown["data"] == {
                "content": "This hub does not accept that command in this channel.", "flags": 64,
            }  # fmt: skip
        assert (await at.ask("all", channel="5", agent="all"))["data"]["content"] == "name one agent"
        at.desk.status = 500
        assert (await at.ask("hello", channel="5", id="9"))["type"] == 4
        other = await at.ask("something else", channel="5", id="9")
        assert "was used for other work" in other["data"]["content"]
        (item,) = (await at.at.get("root", "/api/tasks"))["items"]
        await at.office.settled(item["taskId"], "completed")
        # Nobody can answer a result, and trying to does not remove what is still to be sent.
        (((tenant, doc_id), notice),) = at.office.told.notice_store.notices
        pressed = await at.press(f"r::{notice_id(tenant, doc_id, notice, 'other')}")
        assert pressed["data"]["content"] == "This question is closed."
        assert len(at.office.told.notice_store.notices) == 1

    channel(work, desk, receiver(desk), receiver(desk, "other", "5", calls=True))


def test_channels_of_one_application_share_its_address(desk: Desk) -> None:
    async def work(at: Channel) -> None:
        task, _ = await at.asked("ask")
        posted = {path: one for (path, _, _), one in zip(at.desk.heard, at.desk.bodies(), strict=True)}
        assert set(posted) == {"/api/channels/4711/messages", "/api/channels/5/messages"}
        reject = posted["/api/channels/5/messages"]["components"][0]["components"][-1]["custom_id"]
        pressed = {"type": 3, "data": {"custom_id": reject}}
        # Another application knows nothing of this question, whatever it was shown.
        assert (await at.interact(pressed, STRANGER)).json()["data"]["content"] == "This question is closed."
        assert (await at.interact(pressed, path="/channels/stranger")).status_code == 401
        assert (await at.at.get("root", f"/api/tasks/{task}"))["state"] == "input-required"
        assert (await at.interact(pressed, path="/channels/nobody")).status_code == 404
        assert (await at.interact(pressed, path="/channels/channel")).json()["type"] == 7
        await at.at.until(task, "failed")

    foreign = STRANGER.public_key().public_bytes_raw().hex()
    channel(
        work,
        desk,
        receiver(desk),
        receiver(desk, "other", "5"),
        receiver(desk, "stranger", "6", about=("alerts",), discord_public_key=foreign),
    )


def test_the_command_is_registered_when_the_channel_accepts_calls(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord, "REGISTER_S", 0.0)
    replies = iter([(500, b""), (200, b'{"id": "77"}'), (201, b"{}")])

    def reply(method: str, path: str, body: bytes) -> bytes:
        desk.status, answer = next(replies)
        return answer

    async def main() -> None:
        http = Fetcher(Egress(hosts=["127.0.0.1"]))
        for calls in (False, True):
            made = DiscordChannel(settings_of(receiver(desk, calls=calls), http))
            await made.run(cast("ChannelHub", None))
        await http.close()

    desk.answer = reply
    asyncio.run(main())
    path, headers, body = desk.heard[-1]
    assert [one for one, _, _ in desk.heard[:2]] == ["/api/applications/@me"] * 2
    assert (path, headers["Authorization"]) == ("/api/applications/77/commands", "Bot canary")
    assert json.loads(body)["name"] == "ask"


def test_a_message_reaches_another_channel_of_the_bot_by_its_id(desk: Desk) -> None:
    said = ChannelMessage("r1", "Stand-up: success (task t1)", "", {"type": "ceremony.report"})

    async def work(at: Channel) -> None:
        desk.status = 200
        told = at.office.told
        assert [await told.post(place, said) for place in ("1469080556720623699", "channel", "nobody")] == [
            "",
            "",
            None,
        ]
        assert [path for path, _, _ in desk.heard] == [
            "/api/channels/1469080556720623699/messages",
            "/api/channels/4711/messages",
        ]
        assert desk.bodies()[0]["content"] == "Stand-up: success (task t1)"
        desk.status = 403
        assert await told.post("1469080556720623699", said) == "status 403"

    channel(work, desk)
