"""Questions on the wire: by which id they are named, which answer they want, and which one is none."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.errors import InvalidParams
from trunkline.wire.question import (
    QUESTION_KEY,
    QUESTION_TYPE,
    Question,
    Rejection,
    answered_question,
    question_metadata,
    read_answer,
    read_question,
)
from trunkline.wire.types import Message, Part

CHOICE = Question("Shall I?", choices=["yes", "no"])
AMOUNT = Question("How much?", schema={"type": "object", "properties": {"amount": {"type": "integer"}}})
WORD = Question("Which word?", schema={"type": "string", "maxLength": 3})


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (None, ""),
        ({"other": "q"}, ""),
        (question_metadata("q"), "q"),
        ({QUESTION_KEY: "q"}, "q"),
        ({QUESTION_KEY: 5}, ""),
        ({QUESTION_KEY: {"id": 5}}, ""),
    ],
)
def test_a_message_may_name_its_question(metadata: dict[str, Any] | None, named: str) -> None:
    assert answered_question(Message("m", metadata=metadata)) == named


def shown(question: Question) -> tuple[Any, ...]:
    return (question.text, question.id, question.schema, question.choices, question.deadline)


@pytest.mark.parametrize("named", ["media_type", "metadata"])
def test_a_question_is_read_as_it_was_written(named: str) -> None:
    asked = Question("Shall I?", id="q", choices=["yes"], deadline="2026-01-31T12:00:00Z")
    part = asked.part()
    assert part is not None
    assert (part.media_type, part.metadata) == (QUESTION_TYPE, {"mimeType": QUESTION_TYPE})
    one_name = Part(data=part.data, **{named: getattr(part, named)})
    message = Message(
        "q", parts=(Part(text="Shall "), Part(text="I?"), one_name), metadata=question_metadata("q")
    )
    read = read_question(message)
    assert read == "Shall I?" and shown(read) == shown(asked)


@pytest.mark.parametrize(
    "data", [None, 5, [], {"schema": True, "choices": "yes", "deadline": 5}, {"choices": [1, None]}]
)
def test_what_cannot_be_read_of_a_question_is_left_out(data: Any) -> None:
    part = Part(data=data, media_type=QUESTION_TYPE)
    assert shown(read_question(Message("q", parts=(part,)))) == ("", "", None, (), "")


@pytest.mark.parametrize(
    ("question", "parts", "value"),
    [
        (Question("Well?"), [Part(text="a"), Part(text="b")], "a\nb"),
        (Question("Well?"), [Part(data={"rejected": False})], ""),
        (Question("Well?"), [Part(data={"rejected": True})], Rejection(True)),
        (CHOICE, [Part(text=" yes\n")], "yes"),
        (CHOICE, [Part(data="no")], "no"),
        (CHOICE, [Part(data={"rejected": True, "text": "never"})], Rejection(True, "never")),
        (AMOUNT, [Part(text="as you like"), Part(data={"amount": 3})], {"amount": 3}),
        (AMOUNT, [Part(text='{"amount": 3}')], {"amount": 3}),
        # A rejection is one, also where it would fit.
        (AMOUNT, [Part(data={"rejected": True})], Rejection(True)),
        (WORD, [Part(text="abc")], "abc"),
        (WORD, [Part(text="5")], "5"),
        (WORD, [Part(text='"ab"')], "ab"),
        (WORD, [Part(data={"rejected": True, "text": "none"})], Rejection(True, "none")),
        (Question("?", schema={"pattern": "by hand"}), [Part(data=1)], 1),
    ],
)
def test_an_answer_is_what_the_question_wants(question: Question, parts: list[Part], value: object) -> None:
    assert read_answer(question, Message("m", parts=tuple(parts))) == value


@pytest.mark.parametrize(
    ("question", "parts", "field", "why"),
    [
        (CHOICE, [Part(text="maybe")], "message.parts[0].text", "must be one of yes, no"),
        (CHOICE, [Part(data=["yes"])], "message.parts[0].data", "must be one of yes, no"),
        (AMOUNT, [Part(text="three")], "message.parts[0].text", "it must be of the type object"),
        (
            AMOUNT,
            [Part(text=""), Part(data={"amount": "3"})],
            "message.parts[1].data.amount",
            "amount must be",
        ),
        (WORD, [Part(data={"rejected": True, "because": 5})], "message.parts[0].data", "it must be of the"),
        (WORD, [Part(text="[" * 5000)], "message.parts[0].text", "at most 3 characters"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_place(
    question: Question, parts: list[Part], field: str, why: str
) -> None:
    with pytest.raises(InvalidParams, match=why) as refusal:
        read_answer(question, Message("m", parts=tuple(parts)))
    assert refusal.value.field == field


def test_data_that_is_written_as_text_has_the_bounds_of_data() -> None:
    lists = f"[{'[],' * 150_000}[]]"
    with pytest.raises(InvalidParams, match="it must be of the type array"):
        read_answer(Question("?", schema={"type": "array"}), Message("m", parts=(Part(text=lists),)))
