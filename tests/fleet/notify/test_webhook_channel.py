"""The channel by webhooks, against a local server: signed messages out, signed calls and answers in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.notify.desk import ChannelOffice, Desk, channel_office, desk, settings_of
from tests.fleet.office import NORTH
from trunkline.clock import now_ms
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.webhook_channel import WebhookChannel
from trunkline.net import webhook_signature
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]
SAID = ChannelMessage(
    "an-id", "desk asks: Which?", "Which?\nTask t", {"type": "inbox.question", "taskId": "t"}
)
NOW = 1_800_000_000_000
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY="


def test_a_webhook_is_signed_and_its_answer_counts(desk: Desk) -> None:
    key = Ed25519PrivateKey.generate()

    async def main() -> list[str]:
        fetcher = Fetcher(Egress(hosts=["127.0.0.1"]))
        url = f"http://{desk.place}/hook?canary"

        def made(url: str, sign: Callable[[str, int, bytes], str]) -> WebhookChannel:
            receiver = NoticeReceiver(name="a", webhook=url)
            return WebhookChannel(settings_of(receiver, fetcher, sign=sign, now_ms=lambda: NOW))

        def unsigned(_id: str, _moment: int, _body: bytes) -> str:
            return ""

        def sign(id: str, moment: int, body: bytes) -> str:
            return webhook_signature.sign(key, id, moment, body)

        found: list[str] = []
        for status in (204, 302, 500):
            desk.status = status
            found.append(await made(url, sign).send(SAID))
        found.append(await made(url, unsigned).send(SAID))
        found.append(await made("http://127.0.0.1:1", unsigned).send(SAID))
        await fetcher.close()
        return found

    assert asyncio.run(main()) == ["", "status 302", "status 500", "status 500", "connect"]
    path, headers, body = desk.heard[0]
    assert path == "/hook?canary"
    assert json.loads(body) == {
        "content": "desk asks: Which?\nTask t", "id": "an-id", "type": "inbox.question", "taskId": "t",
    }  # fmt: skip
    assert webhook_signature.verify(headers, body, [key.public_key()], NOW / 1000) == "an-id"
    assert "webhook-signature" not in desk.heard[3][1]


class Caller:
    """A program that calls the hub through a webhook channel."""

    def __init__(self, office: ChannelOffice) -> None:
        self._client = office.client
        self._key = webhook_signature.signing_key(SECRET)

    async def post(self, body: Any, id: str = "call-1", secret: str = SECRET) -> httpx2.Response:
        text, moment = json.dumps(body).encode(), now_ms() // 1000
        key = webhook_signature.signing_key(secret)
        headers = {
            webhook_signature.ID: id,
            webhook_signature.TIMESTAMP: str(moment),
            webhook_signature.SIGNATURE: webhook_signature.sign(key, id, moment, text),
        }
        return await self._client.post("/channels/office", content=text, headers=headers)


def office(desk: Desk, **members: Any) -> NoticeReceiver:
    return NoticeReceiver(
        name="office",
        webhook=f"http://{desk.place}/hook",
        webhook_secret_env="KEY",
        calls=True,
        tenants=(NORTH,),
        **members,
    )


def test_a_signed_call_opens_a_task_whose_question_it_answers(desk: Desk) -> None:
    async def work(at: ChannelOffice) -> None:
        caller = Caller(at)
        opened = await caller.post({"by": "ada", "message": "ask me"})
        assert opened.status_code == 202
        task = opened.json()["taskId"]
        # The same call again is the same task.
        assert (await caller.post({"by": "ada", "message": "ask me"})).json() == {"taskId": task}
        await at.settled(task, "input-required")
        question = desk.bodies()[-1]
        assert (question["type"], question["taskId"]) == ("inbox.question", task)
        answer = {"id": question["id"], "decision": "respond", "text": "red"}
        answered = await caller.post({"by": "grace", "answer": answer}, "call-2")
        assert answered.json() == {"taskId": task, "decision": "respond"}
        await at.settled(task, "completed")
        result = desk.bodies()[-1]
        assert (result["type"], result["state"], result["text"]) == ("task.result", "completed", "heard red")
        (closed,) = (await at.at.get("carol", "/api/inbox?state=closed"))["items"]
        assert (closed["principal"], closed["answeredBy"]) == ("webhook:ada", "webhook:grace")
        assert len(desk.heard) == 2
        assert (await caller.post({"by": "grace", "answer": answer}, "call-3")).status_code == 404

    channel_office(work, [office(desk)], KEY=SECRET)


def test_a_result_that_was_not_accepted_is_sent_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: ChannelOffice) -> None:
        desk.status = 500
        task = (await Caller(at).post({"by": "ada", "message": "hello"})).json()["taskId"]
        await at.settled(task, "completed")
        desk.status, at.later_ms = 204, 61_000
        await at.look()
        assert [one["type"] for one in desk.bodies()] == ["task.result"] * 2
        assert desk.bodies()[0]["id"] == desk.bodies()[1]["id"]
        assert at.told.notice_store.notices == []

    channel_office(work, [office(desk, about=("alerts",))], KEY=SECRET)


def test_a_result_that_ended_unseen_is_found_by_the_sweep(desk: Desk) -> None:
    async def work(at: ChannelOffice) -> None:
        task = (await Caller(at).post({"by": "ada", "message": "hello"})).json()["taskId"]
        await at.at.until(task, "completed")
        store, now = at.told.notice_store, now_ms()
        await store.sweep(now)
        (known,) = [notice for _, notice in store.notices]
        assert known.ended_at > 0
        # Nobody accepted it for hours.
        await store.sweep(now + 5 * 3600 * 1000)
        assert store.notices == []

    channel_office(work, [office(desk)], KEY=SECRET)


def test_what_is_not_signed_or_does_not_fit_is_refused(desk: Desk) -> None:
    other = "whsec_" + "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="

    async def work(at: ChannelOffice) -> None:
        caller = Caller(at)
        assert (await caller.post({"by": "ada", "message": "x"}, secret=other)).status_code == 401
        assert (await at.client.post("/channels/office", content=b"{}")).status_code == 401
        assert (await caller.post({"message": "x"})).json()["field"] == "by"
        assert (await caller.post({"by": "ada", "text": "x"})).json()["field"] == "text"
        for field, value in (("message", " "), ("agent", "all"), ("agent", "a\0"), ("skill", "s" * 257)):
            refused = await caller.post({"by": "ada", "message": "x", field: value})
            assert (refused.status_code, refused.json()["field"]) == (400, field)
        opened = await caller.post({"by": "a\0d\na", "message": "x"})
        (item,) = (await at.at.get("root", "/api/tasks"))["items"]
        detail = await at.at.get("root", f"/api/tasks/{item['taskId']}")
        assert (opened.status_code, detail["events"][0]["principal"]) == (202, "webhook:ada")

    channel_office(work, [office(desk)], KEY=SECRET)
