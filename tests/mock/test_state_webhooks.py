"""The webhooks of a mock, posted to a receiver on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from tests.mock.talk import Talk, replying, said, talking
from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import Persona, Reply
from trunkline.mock.serve import BackgroundServer


class Receiver:
    """Takes what is posted."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], Any]] = []
        self.url = ""
        self._news: SimpleQueue[None] = SimpleQueue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for what in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{what}.complete"})
            return
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.posts.append((headers, msgspec.json.decode(body)))
        self._news.put(None)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def wait(self, count: int) -> None:
        while len(self.posts) < count:
            await asyncio.to_thread(self._news.get, True, 10)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with BackgroundServer(made) as url:
        made.url = f"{url}/hook"
        yield made


PUSHING = Persona(push=True)


def test_changes_are_told_to_whoever_asked(receiver: Receiver) -> None:
    async def main(talk: Talk) -> None:
        config = {
            "url": receiver.url,
            "token": "t0k",
            "authentication": {"scheme": "Basic", "credentials": "abc"},
        }
        sent = await talk.send(
            configuration={"returnImmediately": True, "taskPushNotificationConfig": config}
        )
        await receiver.wait(2)
        first, last = receiver.posts
        assert first[1]["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
        assert last[1]["task"]["id"] == sent.task["id"]
        assert last[1]["task"]["artifacts"][0]["parts"] == [{"text": "done"}]
        assert last[0]["x-a2a-notification-token"] == "t0k"
        assert last[0]["authorization"] == "Basic abc"

    asyncio.run(_talked(Reply(text="done", delay=0.01, pause=0.005), main))


def test_configs_are_kept_by_task(receiver: Receiver) -> None:
    async def main(talk: Talk) -> None:
        task = (await talk.send(configuration={"returnImmediately": True})).task["id"]
        made = (
            await talk.rpc("CreateTaskPushNotificationConfig", {"taskId": task, "url": receiver.url})
        ).result
        assert (made["id"], made["url"]) == ("config-1", receiver.url)
        named = {"taskId": task, "id": "config-1"}
        assert (await talk.rpc("GetTaskPushNotificationConfig", named)).result["url"] == receiver.url
        listed = (await talk.rpc("ListTaskPushNotificationConfigs", {"taskId": task})).result
        assert [each["id"] for each in listed["configs"]] == ["config-1"]
        await talk.rpc("CancelTask", {"id": task})
        await receiver.wait(1)
        assert receiver.posts[0][1]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await talk.rpc("DeleteTaskPushNotificationConfig", named)).result is None
        assert (await talk.rpc("GetTaskPushNotificationConfig", named)).error["code"] == -32001

    asyncio.run(_talked(Reply(hold=True), main))


@pytest.mark.parametrize("trusting", [False, True])
def test_an_address_inside_is_refused_unless_it_trusts_anybody(trusting: bool) -> None:
    async def main(talk: Talk) -> None:
        config = {"taskPushNotificationConfig": {"url": "http://169.254.169.254/latest"}}
        answer = await talk.rpc("SendMessage", said(configuration=config))
        assert ("error" in answer.json) is not trusting
        assert talk.mock.runs.total() == int(trusting)

    asyncio.run(_talked(Reply(text="x", hold=True), main, Quirks(trusting=trusting, reply="receipt")))


async def _talked(reply: Reply, what: Any, manner: Quirks | None = None) -> None:
    async with asyncio.timeout(60):
        async with talking(replying(reply, agent=PUSHING, dialect=manner or Quirks())) as talk:
            await what(talk)
