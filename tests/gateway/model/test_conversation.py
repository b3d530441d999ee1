"""What a model is told: who it is, and the end of what was said before."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, TextPart, UserPromptPart
from pydantic_ai.models.test import TestModel as AnyModel

from trunkline.fleet.catalogue.model_entry import ModelEntry, ModelMemory
from trunkline.gateway.model.conversation import content_of, conversation, instructions
from trunkline.gateway.model.files import CallerFiles
from trunkline.wire.types import Message, Part, Role


def said(role: Role, *parts: Part) -> Message:
    return Message("m", role=role, parts=parts)


def told(history: list[Message], memory: ModelMemory) -> list[ModelMessage]:
    *before, last = history
    return conversation(before, memory, CallerFiles(AnyModel(), 0), content_of(last, []))


def words(messages: list[ModelMessage]) -> list[str]:
    parts = [part for one in messages for part in one.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


def test_members_of_the_entry_become_instructions() -> None:
    plain = instructions("bob", ModelEntry(model="a:b", brevity="lite"))
    assert plain == "You are bob.\nAnswer in whole sentences and explain where that helps."
    entry = ModelEntry(model="a:b", role="cook", goal="feed", personality="warm", rules=("no salt",))
    assert instructions("bob", entry, ["and more"]).splitlines() == [
        "You are bob, cook.",
        "Your goal: feed",
        "Your personality: warm",
        "Answer briefly: what was asked for, and nothing else.",
        "Rules:",
        "- no salt",
        "and more",
    ]


def test_text_counts_and_of_callers_data_too() -> None:
    found = told(
        [
            said(Role.USER, Part(text="a"), Part(data={"b": 1})),
            said(Role.AGENT, Part(text="c"), Part(data={"tool": "x", "ok": True})),
            said(Role.AGENT, Part(data={"tool": "x", "ok": True})),
            said(Role.USER, Part(text="d")),
        ],
        ModelMemory(),
    )
    assert words(found) == ['a\n{"b":1}', "c", "d"]
    assert [isinstance(one, ModelRequest) for one in found] == [True, False, True]


def test_the_newest_messages_are_kept_within_their_bounds_and_the_last_always() -> None:
    history = [said(Role.USER, Part(text=str(n) * 10)) for n in range(5)]
    assert words(told(history, ModelMemory(messages=2))) == ["2" * 10, "3" * 10, "4" * 10]
    assert words(told(history, ModelMemory(bytes=25))) == ["2" * 10, "3" * 10, "4" * 10]
    assert words(told(history, ModelMemory(messages=0))) == ["4" * 10]
    assert words(told(history, ModelMemory(bytes=0))) == ["4" * 10]
