"""What a skill asks: the answer that it wants is checked when it is given, and the wait may have an end."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.agent.drive import drive, field_of, parts, said, send, state, text
from tests.agent.test_turn import doing
from trunkline import Misuse, SyncTurn, Turn, Unanswered
from trunkline.agent.agent import Agent
from trunkline.agent.testing import CallFailed, TestClient
from trunkline.agent.validation import moment_of
from trunkline.clock import now_ms

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


async def chooses(turn: Turn) -> object:
    return "chosen: " + await turn.ask("Which colour?", choices=["red", "blue"], deadline=3600)


async def orders(turn: Turn) -> object:
    return (await turn.ask("How much?", schema=SCHEMA))["amount"]


def test_a_question_says_what_it_wants() -> None:
    task = send(doing(chooses), "go")
    words, wanted = task["status"]["message"]["parts"]
    assert words == {"text": "Which colour?"}
    assert wanted["mediaType"] == "application/vnd.trunkline.question+json"
    assert wanted["data"]["choices"] == ["red", "blue"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", wanted["data"]["deadline"])
    message = task["status"]["message"]
    assert message["metadata"]["trunkline.question"] == {"id": message["messageId"]}
    assert send(doing(orders), "go")["status"]["message"]["parts"][1]["data"] == {"schema": SCHEMA}


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() -> None:
    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        with pytest.raises(CallFailed, match="-32602: the answer must be one of red, blue") as refused:
            await client.send("green", taskId=asked["id"])
        assert field_of(refused.value.error) == "message.parts[0].text"
        assert await client.get(asked["id"]) == asked
        return await client.send("blue", taskId=asked["id"])

    assert text(drive(doing(chooses), talk)) == "chosen: blue"


def test_data_is_held_against_the_schema() -> None:
    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        with pytest.raises(CallFailed, match="amount must be of the type integer") as refused:
            await client.send([{"data": {"amount": "3"}}], taskId=asked["id"])
        assert field_of(refused.value.error) == "message.parts[0].data.amount"
        return await client.send([{"data": {"amount": 3}}], taskId=asked["id"])

    assert parts(drive(doing(orders), talk))[0]["data"] == 3


def test_a_sync_skill_asks_in_the_same_way() -> None:
    agent = Agent("sync")

    @agent.skill
    def work(turn: SyncTurn) -> str:
        return turn.ask("Shall I?", choices=["yes", "no"])

    async def talk(client: TestClient) -> Any:
        return await client.send("yes", taskId=(await client.send("go"))["id"])

    assert text(drive(agent, talk)) == "yes"


async def wonders(turn: Turn) -> object:
    return await turn.ask("Well?")


@pytest.mark.parametrize("body", [chooses, orders, wonders])
def test_a_rejection_reaches_the_skill_whatever_it_asked_for(body: Any) -> None:
    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        return await client.send([{"data": {"rejected": True, "text": "Too dear."}}], taskId=asked["id"])

    task = drive(doing(body), talk)
    assert (state(task), said(task)) == ("failed", "Too dear.")

    async def catches(turn: Turn) -> object:
        try:
            return await body(turn)
        except Unanswered as error:
            return f"declined: {error} {error.rejected}"

    assert text(drive(doing(catches), talk)) == "declined: Too dear. True"


def test_a_deadline_that_passes_ends_the_task_with_that_reason() -> None:
    async def body(turn: Turn) -> object:
        return await turn.ask("Well?", deadline=0)

    async def talk(client: TestClient) -> Any:
        task = await client.send("go")
        while state(task) != "failed":
            task = await client.get(task["id"])
        return task

    assert said(drive(doing(body), talk)) == "The question was not answered in time."


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"choices": ["a"], "schema": {}}, "choices= or schema=, not both"),
        ({"choices": "abc"}, "choices is a list"),
        ({"choices": ["a", "a"]}, "different texts"),
        ({"choices": ["a "]}, "without space around it"),
        ({"choices": [5]}, "a choice is text, not int"),
        ({"schema": "text"}, "schema is a dict, not str"),
        ({"schema": {"pattern": "(a+)+"}}, "unknown field `pattern`"),
        ({"deadline": "soon"}, "deadline is seconds or a datetime, not str"),
        ({"deadline": -1}, "deadline is 0 to"),
        ({"deadline": float("nan")}, "deadline is 0 to"),
        ({"deadline": True}, "deadline is seconds"),
        ({"deadline": datetime(2026, 1, 31)}, "without a zone"),  # noqa: DTZ001
    ],
)
def test_a_question_that_nobody_could_answer_is_not_asked(wanted: dict[str, Any], why: str) -> None:
    async def body(turn: Turn) -> object:
        with pytest.raises(Misuse, match=why):
            await turn.ask("Well?", **wanted)
        return "not asked"

    assert text(send(doing(body), "go")) == "not asked"


def test_a_deadline_is_a_moment_however_it_is_given() -> None:
    assert moment_of(None) == 0
    before = now_ms()
    assert before + 2000 <= moment_of(2) <= now_ms() + 2000
    assert moment_of(datetime(2026, 1, 31, 12, tzinfo=UTC)) == 1769860800000
