"""Conversations are a resource of their caller: listed, read and deleted, and nobody else's business."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import Caller, opened, run
from tests.hub.test_hub_approvals import key_of
from trunkline.fleet import conversations

KEY = "operators-key-1"
ENTRIES = """
agents:
  - {name: talker, import: 'talking_agent:agent'}
  - {name: helper, import: 'talking_agent:helper'}
"""
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Talker", on_crash="resume")

@agent.skill
async def talk(turn: Turn) -> str:
    if turn.text == "ask":
        return await turn.ask("What?")
    return (await turn.call("helper", turn.text)).text

helper = Agent("Helper")

@helper.skill
async def help(turn: Turn) -> str:
    return f"re: {turn.text}"
"""


async def say(caller: Caller, text: str, context: str) -> dict[str, Any]:
    message = {"messageId": f"{context}-{text}", "role": "ROLE_USER", "contextId": context}
    body = {"message": {**message, "parts": [{"text": text}]}}
    status, sent = await caller("POST /v1/a2a/agents/talker/message:send", body)
    assert status == 200, sent
    return sent["task"]


def test_a_caller_lists_reads_and_deletes_its_own_conversations(tmp_path: Path) -> None:
    (tmp_path / "talking_agent.py").write_text(MODULE)

    async def scene() -> None:
        async with opened(tmp_path, ENTRIES, key=KEY) as boss:
            ann, bob = await key_of(boss, "ann"), await key_of(boss, "bob")
            await ann.ready("talker")
            await ann.ready("helper")
            for text, context in (("one", "c-1"), ("two", "c-1"), ("three", "c-2")):
                await say(ann, text, context)
            theirs = await say(bob, "four", "c-1")
            _, listed = await ann("GET /api/conversations")
            assert [(one["contextId"], one["text"]) for one in listed["items"]] == [
                ("c-2", "re: three"),
                ("c-1", "re: two"),
            ]
            _, first = await ann("GET /api/conversations?limit=1")
            _, second = await ann(f"GET /api/conversations?limit=1&after={first['next']}")
            assert [one["contextId"] for one in (*first["items"], *second["items"])] == ["c-2", "c-1"]
            _, read = await ann("GET /api/conversations/c-1/messages")
            said = [(one["role"], one["text"]) for one in read["items"]]
            assert said == [("user", "one"), ("agent", "re: one"), ("user", "two"), ("agent", "re: two")]
            assert read["items"][0]["parts"] == [{"kind": "text", "text": "one"}]
            _, page = await ann("GET /api/conversations/c-1/messages?limit=3")
            _, rest = await ann(f"GET /api/conversations/c-1/messages?limit=3&after={page['next']}")
            assert [one["text"] for one in (*page["items"], *rest["items"])] == [text for _, text in said]
            assert rest["next"] is None
            # Each task had one of the helper.
            status, gone = await ann("DELETE /api/conversations/c-1")
            assert (status, gone) == (200, {"contextId": "c-1", "tasks": 4})
            for asked in ("GET /api/conversations/c-1/messages", "DELETE /api/conversations/c-1"):
                status, told = await ann(asked)
                assert (status, told["code"]) == (404, "CONVERSATION_NOT_FOUND")
            assert (await ann(f"GET /api/tasks/{read['items'][0]['taskId']}"))[0] == 404
            _, listed = await ann("GET /api/conversations")
            assert [one["contextId"] for one in listed["items"]] == ["c-2"]
            assert (await bob(f"GET /api/tasks/{theirs['id']}"))[0] == 200

    run(scene())


def test_a_conversation_is_deleted_however_long_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "TASKS_LIMIT", 2)
    (tmp_path / "talking_agent.py").write_text(MODULE)

    async def scene() -> None:
        async with opened(tmp_path, ENTRIES) as ask:
            await ask.ready("talker")
            await ask.ready("helper")
            for text in ("one", "two", "three"):
                await say(ask, text, "c-1")
            _, read = await ask("GET /api/conversations/c-1/messages")
            assert [one["text"] for one in read["items"]] == ["two", "re: two", "three", "re: three"]
            assert (await ask("DELETE /api/conversations/c-1"))[1]["tasks"] == 6
            assert (await ask("GET /api/conversations"))[1]["items"] == []

    run(scene())


def test_a_conversation_with_an_open_task_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "talking_agent.py").write_text(MODULE)

    async def scene() -> None:
        async with opened(tmp_path, ENTRIES) as ask:
            await ask.ready("talker")
            task = await say(ask, "ask", "c-1")
            status, told = await ask("DELETE /api/conversations/c-1")
            assert (status, told["code"]) == (409, "CONVERSATION_OPEN")
            assert task["id"] in told["detail"]
            await ask(f"POST /api/tasks/{task['id']}/cancel", {})
            assert (await ask("DELETE /api/conversations/c-1"))[1]["tasks"] == 1

    run(scene())


@pytest.mark.parametrize("after", ["x", ":1", "t:", "t:1x"])
def test_a_place_that_no_page_gave_is_refused(tmp_path: Path, after: str) -> None:
    (tmp_path / "talking_agent.py").write_text(MODULE)

    async def scene() -> None:
        async with opened(tmp_path, ENTRIES) as ask:
            await ask.ready("talker")
            await say(ask, "ask", "c-1")
            status, told = await ask(f"GET /api/conversations/c-1/messages?after={after}")
            assert (status, told["field"]) == (400, "after")

    run(scene())
