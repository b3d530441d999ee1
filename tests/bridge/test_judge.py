"""Row 67: a score is found in whatever a judge says; without one it is 0, with the reason."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.bridge.agents import client_of
from trunkline import Agent, Turn
from trunkline.bridge.judge import Judgement, judge, read_verdict
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.wire.types import Message, Part


def said(*parts: Part) -> Result:
    return Result(message=Message("m", parts=parts))


@pytest.mark.parametrize(
    ("text", "score", "passed"),
    [
        ('{"score": 0.8, "passed": true, "reasoning": "why"}', 0.8, True),
        ('Well {hm}, I think:\n```json\n{"score": 0.2, "reasoning": "why"}\n```\nThat is all. {', 0.2, False),
        ('First {"score": 1}, on reflection {"score": 0.25}', 0.25, False),
        ('{"notes": {"a": 1}} {"score": "0.7"}', 0.7, True),
        ('{"passed": true}', 1, True),
        ('{"passed": false}', 0, False),
        ('{"score": 0.9, "passed": false}', 0.9, False),
    ],
)
def test_a_score_among_prose(text: str, score: float, passed: bool) -> None:
    verdict = read_verdict(said(Part(text=text)))
    assert (verdict.score, verdict.passed, verdict.error) == (score, passed, "")


def test_a_data_part_wins_over_the_text() -> None:
    verdict = read_verdict(said(Part(text='{"score": 0}'), Part(data={"score": 1, "reason": "good"})))
    assert verdict == Judgement(1.0, True, "good")


@pytest.mark.parametrize(
    "text",
    [
        "no idea",
        '{"score": 8}',
        '{"score": null}',
        '{"score": NaN}',
        '{"score": "high"}',
        "{" * 5000,
        '{"a":' * 5000,
        "",
    ],
)
def test_no_score_is_0_with_the_reason(text: str) -> None:
    verdict = read_verdict(said(Part(text=text)))
    assert (verdict.score, verdict.passed) == (0, False)
    assert verdict.error


def test_the_bar_is_the_callers() -> None:
    result = said(Part(text='{"score": 0.6, "passed": true}'))
    assert not read_verdict(result, 0.7).passed
    assert read_verdict(result, 0.6).passed


def test_a_judge_reads_the_case_and_answers() -> None:
    agent = Agent("judge", store="memory:", drain_limit=1)

    @agent.skill
    async def grade(turn: Turn) -> str:
        """Grade it."""
        case = json.loads(turn.text.partition("\n\n")[2])
        if case["current_output"] == "broken":
            turn.fail("I cannot read this")
        fits = case["criteria"] in case["current_output"] and case["messages"][0]["role"] == "user"
        return (
            f'My verdict: {{"score": {1 if fits else 0}, "reasoning": "it {"has" if fits else "lacks"} it"}}'
        )

    async def main() -> list[Judgement]:
        messages = [{"role": "user", "content": "say it"}]
        async with client_of(agent) as client:
            return [
                await judge(client, output, criteria="please", messages=messages)
                for output in ("please go", "go", "broken")
            ]

    polite, rude, broken = asyncio.run(asyncio.wait_for(main(), 20))
    assert (polite.score, polite.passed, polite.reasoning) == (1, True, "it has it")
    assert (rude.score, rude.passed) == (0, False)
    assert (broken.score, broken.error) == (0, "the judge's task is failed: I cannot read this")


def test_a_judge_who_is_not_there() -> None:
    async def main() -> Judgement:
        async with Client("http://127.0.0.1:9/a2a", retries=0) as client:
            return await judge(client, "x")

    verdict = asyncio.run(asyncio.wait_for(main(), 20))
    assert (verdict.score, verdict.passed) == (0, False)
    assert verdict.error.startswith("the judge was not heard")
