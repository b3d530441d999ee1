"""Conversations: what belongs to which task, and when they are over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.agents import COMPLETED, Error, Frames, Stand, message, status, task
from tests.client.test_client import call
from tests.loops import leap
from trunkline import Agent, Turn
from trunkline.client.chat import Chat
from trunkline.client.client import Client
from trunkline.errors import InternalError, InvalidParams, Misuse, UnsupportedOperation

ASKS = "TASK_STATE_INPUT_REQUIRED"


def chat(stand: Stand, talk: Callable[[Chat], Awaitable[None]], **options: Any) -> list[dict[str, Any]]:
    """The messages that an agent got in a conversation."""

    async def main() -> None:
        async with stand.client() as client:
            await talk(client.chat(**options))

    leap(main())
    return [asked.params["message"] for asked in stand.asked]


def test_a_question_is_answered_on_its_task_and_an_end_opens_another() -> None:
    stand = Stand([task(ASKS, said="which?"), task(COMPLETED, "ok"), task(COMPLETED, task_id="t2")])

    async def talk(chat: Chat) -> None:
        assert (await chat.say("book it")).question == "which?"
        assert (chat.task_id, chat.context_id) == ("t1", "c1")
        assert (await chat.say("the blue one")).text == "ok"
        assert (chat.task_id, chat.context_id) == ("", "c1")
        await chat.say("and now?")

    first, second, third = chat(stand, talk)
    assert "taskId" not in first
    assert "contextId" not in first
    assert (second["taskId"], second["contextId"]) == ("t1", "c1")
    assert "taskId" not in third
    assert third["contextId"] == "c1"


def test_a_login_is_answered_on_its_task_too() -> None:
    stand = Stand([task("TASK_STATE_AUTH_REQUIRED"), task(COMPLETED)])

    async def talk(chat: Chat) -> None:
        await chat.say("a")
        await chat.say("b")

    assert chat(stand, talk)[1]["taskId"] == "t1"


def test_done_closes_and_omits_the_ids() -> None:
    stand = Stand([Error(-32603), task(COMPLETED, "bye")])

    async def talk(chat: Chat) -> None:
        with pytest.raises(InternalError):
            await chat.say("that is all", done=True)
        last = await chat.say("that is all", done=True)
        assert (last.text, last.task_id, last.context_id) == ("bye", "", "")
        with pytest.raises(Misuse, match="closed by done=True"):
            await chat.say("one more")
        with pytest.raises(Misuse):
            chat.stream("one more")

    assert len(chat(stand, talk)) == 2


def test_a_direct_message_keeps_the_context() -> None:
    stand = Stand([message("hi", contextId="c8"), message("again"), message("done")])

    async def talk(chat: Chat) -> None:
        await chat.say("a")
        assert (chat.context_id, chat.task_id) == ("c8", "")
        await chat.say("b")
        assert chat.context_id == "c8"
        assert (await chat.say("c", done=True)).text == "done"

    assert [said.get("contextId") for said in chat(stand, talk)] == [None, "c8", "c8"]


def test_a_stream_in_a_conversation() -> None:
    asked = Frames([(1, task("TASK_STATE_SUBMITTED")), (2, status(ASKS, "which?"))])
    stand = Stand([asked, task(COMPLETED, "ok")])

    async def talk(chat: Chat) -> None:
        words = [update.text async for update in chat.stream("book it")]
        assert words[-1] == "which?"
        assert chat.task_id == "t1"
        await chat.say("the blue one")

    assert chat(stand, talk)[1]["taskId"] == "t1"


def test_a_skill_is_named_for_new_tasks_only() -> None:
    stand = Stand([task(ASKS), task(COMPLETED), task(COMPLETED)])

    async def talk(chat: Chat) -> None:
        for word in "abc":
            await chat.say(word)

    said = chat(stand, talk, skill="booking", context_id="mine")
    assert [one.get("metadata", {}).get("skillHint") for one in said] == ["booking", None, "booking"]
    assert said[0]["contextId"] == "mine"


def test_a_task_that_has_ended_meanwhile_is_forgotten() -> None:
    stand = Stand([task(ASKS), Error(-32004), task(COMPLETED)])

    async def talk(chat: Chat) -> None:
        await chat.say("a")
        with pytest.raises(UnsupportedOperation):
            await chat.say("b")
        await chat.say("c")

    assert [said.get("taskId") for said in chat(stand, talk)] == [None, "t1", None]


def test_a_conversation_with_our_own_agent() -> None:
    inn = Agent("inn", description="d", version="1")

    @inn.skill()
    async def book(turn: Turn) -> str:
        return f"{turn.text} in {await turn.ask('Which town?')}"

    async def talk(client: Client) -> None:
        chat = client.chat()
        assert (await chat.say("a room")).question == "Which town?"
        assert (await chat.say("Rome")).text == "a room in Rome"
        assert (await chat.say("a table")).question == "Which town?"

    call(talk, inn)


def test_an_answer_names_the_question_that_was_heard() -> None:
    inn = Agent("inn", description="d", version="1")
    wanted = {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]}

    @inn.skill()
    async def book(turn: Turn) -> str:
        town = await turn.ask("Which town?", choices=["Rome", "Oslo"], deadline=3600)
        return f"{town}, {await turn.ask('How long?', schema=wanted)}"

    async def talk(client: Client) -> None:
        chat = client.chat()
        first = (await chat.say("a room")).question
        assert (first, first.choices, first.schema) == ("Which town?", ("Rome", "Oslo"), None)
        assert first.id and first.deadline.endswith("Z")
        # Somebody else was faster.
        second = await client.send("Rome", task_id=chat.task_id, question=first.id)
        assert (second.question.text, second.question.schema, second.data) == ("How long?", wanted, None)
        with pytest.raises(InvalidParams, match="does not ask the question"):
            await chat.say("Oslo")
        assert (await chat.say({"nights": 2})).text == "Rome, {'nights': 2}"

    call(talk, inn)
