"""Row 65: mock agents from YAML are tools like others, and what a model did with them can be asserted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from trunkline.bridge.outcome import ToolOutcome
from trunkline.bridge.tools import Toolbox, tools
from trunkline.mock.in_process import InProcessMock
from trunkline.mock.script import read_scenarios

ARENA = """
a2a_agents:
  - name: research
    card:
      name: Research Agent
      description: Finds papers
      skills:
        - {id: search, name: Search, description: Find papers., tags: [papers]}
    responses:
      - skill: search
        match: {contains: quantum}
        response: {parts: [{text: Three papers on quantum computing.}]}
      - skill: search
        match: {regex: "^private"}
        error: not for you
  - name: writing
    card:
      name: Writing Agent
      description: Writes
      skills: [{id: draft, name: Draft, description: Write a draft.}]
    responses:
      - skill: draft
        response: {parts: [{text: A draft.}]}
"""


async def _with_mocks(
    text: str, calls: list[tuple[str, dict[str, str]]]
) -> tuple[list[InProcessMock], Toolbox]:
    mocks = [InProcessMock(scenario) for scenario in read_scenarios(text)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(mock.client(poll_s=0.01)) for mock in mocks]
        box = await stack.enter_async_context(tools(clients))
        for name, arguments in calls:
            await box.call(name, arguments)
        return mocks, box


def played(text: str, *calls: tuple[str, dict[str, str]]) -> tuple[list[InProcessMock], list[ToolOutcome]]:
    mocks, box = asyncio.run(asyncio.wait_for(_with_mocks(text, list(calls)), 20))
    return mocks, [*box.outcomes]


def test_an_arena() -> None:
    (research, writing), outcomes = played(
        ARENA,
        ("a2a__research_agent__search", {"query": "Quantum, please"}),
        ("a2a__research_agent__search", {"query": "private matters"}),
    )
    found, refused = outcomes
    assert [one.tool for one in outcomes] == ["a2a__research_agent__search"] * 2
    assert "quantum computing" in found.text
    assert (refused.is_error, refused.text) == (True, "The agent failed: not for you")
    assert len(research.messages) == 2
    assert writing.messages == []
    assert (research.messages[0].metadata or {})["skillId"] == "search"


SLOW = """
agent:
  name: slow
  skills: [{id: think, name: Think, description: Thinks., tags: [slow]}]
dialect: promptkit
rules:
  - reply: {text: done at last, delay: 0.05, receipt: true}
"""


def test_an_agent_that_answers_later_is_waited_for() -> None:
    """PK 1 against its own dialect: a task that is not finished is no empty answer."""
    (mock,), (outcome,) = played(SLOW, ("a2a__slow__think", {"query": "hm"}))
    assert (outcome.text, outcome.is_error) == ("done at last", False)
    assert set(mock.runs.values()) == {1}


@pytest.mark.parametrize("dialect", ["promptkit", "arbiter", "quinn"])
def test_an_answer_goes_on_with_the_conversation(dialect: str) -> None:
    """Some agents go on by the task, some by the conversation; the model names only the task."""
    text = f"""
agent:
  name: painter
  skills: [{{id: paint, name: Paint, description: Paints., tags: [x]}}]
dialect: {dialect}
rules:
  - reply: {{ask: Which colour?, then: {{text: painted}}}}
"""

    async def main() -> tuple[ToolOutcome, ToolOutcome, InProcessMock]:
        mock = InProcessMock(text)
        async with mock.client(poll_s=0.01) as client, tools(client) as box:
            asked = await box.call("a2a__painter__paint", {"query": "a wall"})
            told = await box.call("a2a__painter__paint", {"query": "blue", "task_id": asked.task_id})
            return asked, told, mock

    asked, told, mock = asyncio.run(asyncio.wait_for(main(), 20))
    assert (asked.question, told.text, told.task_id) == ("Which colour?", "painted", asked.task_id)
    assert mock.messages[-1].context_id == asked.context_id
