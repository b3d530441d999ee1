"""Questions as forms: flat schemas as they are, everything else as one text, and the answers that come back."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.mcp.elicitation import answer_parts, form_of, rejection_parts
from trunkline.wire.question import Question

FLAT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"], "x-own": 1},
        "when": {"type": "string", "format": "iso-week"},
        "many": {"type": "integer", "minimum": 1},
        "sure": {"type": "boolean"},
    },
    "required": ["colour", "other"],
    "additionalProperties": False,
}


def test_a_plain_question_is_one_text() -> None:
    words, schema = form_of(Question("Which colour?"))
    assert words == "Which colour?"
    assert schema["required"] == ["answer"]
    assert schema["properties"]["answer"]["type"] == "string"
    assert [part.text for part in answer_parts(Question("?"), {"answer": "red"})] == ["red"]


def test_choices_are_offered() -> None:
    _, schema = form_of(Question("Which?", choices=["a", "b"]))
    assert schema["properties"]["answer"]["enum"] == ["a", "b"]


def test_a_flat_schema_is_the_form() -> None:
    question = Question("Fill in", schema=FLAT)
    _, schema = form_of(question)
    assert schema["properties"] == {
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "when": {"type": "string"},
        "many": {"type": "integer", "minimum": 1},
        "sure": {"type": "boolean"},
    }
    assert schema["required"] == ["colour"]
    assert answer_parts(question, {"many": 2})[0].data == {"many": 2}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "integer", "enum": [1]}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_another_schema_is_asked_for_as_json_in_a_text(schema: dict[str, Any]) -> None:
    question = Question("Fill in", schema=schema)
    _, form = form_of(question)
    assert '"type"' in form["properties"]["answer"]["description"]
    assert answer_parts(question, {"answer": '{"a": 1}'})[0].text == '{"a": 1}'


def test_what_cannot_be_seen_is_not_shown() -> None:
    words, _ = form_of(Question("ok\u200b\x1b[2J" + "x" * 9000))
    assert "\x1b" not in words
    assert "\u200b" not in words
    assert len(words) <= 4096


def test_who_declines_is_told_of_as_our_agents_read_it() -> None:
    data: Any = rejection_parts(Question("?", id="q1"))[0].data
    assert data["rejected"] is True
    assert "declines" in (rejection_parts(Question("?"))[0].text or "")
