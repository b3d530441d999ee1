"""Which message a rule means, and in which order rules are asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.mock.talk import talking
from trunkline.errors import Misuse
from trunkline.mock.app import Mock
from trunkline.mock.scenario import Expect, IncomingMessage, Reply, Rule, Scenario, When, fits, skill_of
from trunkline.wire.types import Message, Part

MESSAGE = Message("m", parts=(Part(text="Hello "), Part(text="World"), Part(data={"a": {"b": 1, "c": 2}})))


@pytest.mark.parametrize(
    ("when", "meant"),
    [
        (When(), True),
        (When(skill="s"), True),
        (When(skill="t"), False),
        (When(text="Hello World"), True),
        (When(text="Hello"), False),
        (When(contains="WORLD"), True),
        (When(contains="moon"), False),
        (When(regex="^H.*d$"), True),
        (When(regex="^W"), False),
        (When(data={"a": {"b": 1}}), True),
        (When(data={"a": {"b": 2}}), False),
        (When(data={"x": 1}), False),
        (When(turn=2), True),
        (When(turn=1), False),
        (When(skill="s", contains="world", turn=1), False),
    ],
)
def test_all_that_is_set_must_hold(when: When, meant: bool) -> None:
    assert fits(when, IncomingMessage(MESSAGE, "s", 2)) is meant


@pytest.mark.parametrize(
    ("of_message", "of_params", "skill"),
    [
        ({"skillId": "a"}, {"skillId": "b"}, "a"),
        (None, {"skillId": "b"}, "b"),
        ({"skillHint": "c"}, None, "c"),
        ({"skill": "d"}, None, "d"),
        ({"skillId": 5}, None, ""),
        (None, None, ""),
    ],
)
def test_where_a_skill_is_named(of_message: Any, of_params: Any, skill: str) -> None:
    assert skill_of(Message("m", metadata=of_message), of_params) == skill


def test_the_first_rule_that_fits_and_is_not_used_up() -> None:
    rules = (
        Rule(when=When(contains="a"), reply=Reply(message="first"), times=1),
        Rule(when=When(contains="a"), reply=Reply(message="second")),
        Rule(reply=Reply(message="any")),
    )

    async def main() -> list[str]:
        async with talking(Scenario(rules=rules)) as talk:
            answers = [await talk.send(text) for text in ("a", "a", "b")]
            return [each.result["message"]["parts"][0]["text"] for each in answers]

    assert asyncio.run(main()) == ["first", "second", "any"]


def test_turns_are_counted_by_conversation() -> None:
    rules = tuple(Rule(when=When(turn=turn), reply=Reply(message=str(turn))) for turn in (1, 2, 3))

    async def main() -> list[str]:
        async with talking(Scenario(rules=rules)) as talk:
            answers = [await talk.send("x", contextId=context) for context in ("a", "b", "a", "a", "b")]
            return [each.result["message"]["parts"][0]["text"] for each in answers]

    assert asyncio.run(main()) == ["1", "1", "2", "3", "2"]


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (Scenario(rules=(Rule(when=When(regex="(")),)), "rule 1: regex"),
        (Scenario(rules=(Rule(name="a"),), expect=(Expect(rule="b"),)), "no rule 'b'; rules are a"),
        (Scenario(dialect="klingon"), "no dialect 'klingon'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(scenario: Scenario, said: str) -> None:
    with pytest.raises(Misuse, match=said.replace("(", r"\(")):
        Mock(scenario)
