"""A program that calls an agent, tested against mocks: no network, no model, faults on purpose.

pytest test_with_mocks.py
"""

import asyncio

import pytest

from trunkline import Client, Unreachable
from trunkline.mock import faults
from trunkline.mock.scenario import Reply, Rule, Scenario, When

DESK = (
    Rule(when=When(contains="hello"), reply="Good morning."),
    Rule(when=When(contains="Paris"), reply=Reply(ask="On which day?", then="Booked.")),
)


async def book(client: Client, where: str, day: str) -> str:
    """The program under test: books a trip and answers what it is asked."""
    chat = client.chat()
    result = await chat.say(f"a trip to {where}")
    if result.question:
        result = await chat.say(day)
    return result.text


def booked(mock) -> str:
    """Run the program against a mock."""

    async def main() -> str:
        async with mock.client(retries=1) as client:
            return await book(client, "Paris", "Monday")

    return asyncio.run(main())


def test_it_answers_the_question(a2a_mock):
    mock = a2a_mock(DESK)
    assert booked(mock) == "Booked."
    assert [one.text for one in mock.received if one.message] == ["a trip to Paris", "Monday"]


def test_a_busy_agent_is_asked_again(a2a_mock):
    busy = faults.status(429, seconds=0, on=["send"], requests=[1])
    assert booked(a2a_mock(Scenario(rules=DESK, faults=(busy,)))) == "Booked."


def test_an_agent_that_is_down_is_said_to_be(a2a_mock):
    with pytest.raises(Unreachable):
        booked(a2a_mock(Scenario(rules=DESK, faults=(faults.drop(on=["card", "send"]),))))
