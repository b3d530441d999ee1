"""The client without an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.client.agents import COMPLETED, HOME, Frames, Stand, card, hello, stored, task
from trunkline.client.sync import SyncClient
from trunkline.errors import Misuse, TaskNotFound
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import PushConfig


def client_of(stand: Stand, **options: Any) -> SyncClient:
    return SyncClient(HOME, http_client=InProcessHttpClient(stand), **options)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "trunkline-client"]


def test_every_call_blocks_until_its_answer() -> None:
    config = {"id": "p1", "url": "https://example.com/hook", "taskId": "t1"}
    answers: dict[str, Any] = {
        "SendMessage": task(COMPLETED, "sent"),
        "SendStreamingMessage": Frames(hello()),
        "SubscribeToTask": Frames([task(COMPLETED, "followed")]),
        "GetTask": stored(COMPLETED, "found"),
        "ListTasks": {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0},
        "CancelTask": stored("TASK_STATE_CANCELED"),
        "GetExtendedAgentCard": card(name="more"),
        "ListTaskPushNotificationConfigs": {"configs": [config]},
        "DeleteTaskPushNotificationConfig": {},
    }
    stand = Stand(
        lambda asked: answers.get(asked.method, config), card(capabilities={"extendedAgentCard": True})
    )
    with client_of(stand) as client:
        assert client.send("hi").text == "sent"
        assert "".join(update.text for update in client.stream("hi")) == "hello world"
        with client.stream("hi") as stream:
            assert next(iter(stream)).kind == "task"
            assert stream.result is not None
            assert stream.finish().text == "hello world"
        assert client.subscribe("t1").finish().text == "followed"
        assert client.get("t1").text == client.wait("t1").text == "found"
        assert client.list(page_size=50).total_size == 0
        assert client.cancel("t1").ended
        assert (client.card().name, client.extended_card().name) == ("stand", "more")
        assert client.set_push("t1", PushConfig("https://example.com/hook")).id == "p1"
        assert client.get_push("t1", "p1").url == "https://example.com/hook"
        assert [one.id for one in client.list_push("t1")] == ["p1"]
        client.delete_push("t1", "p1")
        assert client.interface().startswith("JSONRPC 1.0")
        assert client.explanation
        assert threads() == ["trunkline-client"]
    assert threads() == []


def test_a_conversation() -> None:
    stand = Stand([task("TASK_STATE_INPUT_REQUIRED", said="which?"), Frames(hello())])
    with client_of(stand) as client:
        chat = client.chat()
        assert chat.say("hi").question == "which?"
        assert (chat.task_id, chat.context_id) == ("t1", "c1")
        assert "".join(update.text for update in chat.stream("that")) == "hello world"
        assert chat.task_id == ""


def test_it_closes_cleanly_used_or_not() -> None:
    unused = client_of(Stand([]))
    unused.close()
    unused.close()
    with pytest.raises(Misuse, match="is closed"):
        unused.send("hi")
    assert threads() == []


def test_errors_are_the_same() -> None:
    from tests.client.agents import Error

    with client_of(Stand(lambda _: Error(-32001))) as client, pytest.raises(TaskNotFound):
        client.get("t1")


def test_it_works_in_a_running_loop_which_it_blocks() -> None:
    async def main() -> str:
        with client_of(Stand([task(COMPLETED, "blocked")])) as client:
            return client.send("hi").text

    assert asyncio.run(main()) == "blocked"


def test_many_threads_share_one() -> None:
    found: list[str] = []
    with client_of(Stand(lambda _: task(COMPLETED, "x"))) as client:
        workers = [threading.Thread(target=lambda: found.append(client.send("hi").text)) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert len(threads()) == 1
    assert found == ["x"] * 8
