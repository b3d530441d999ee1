"""What models say becomes parts; what does not fit is refused by name."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from trunkline.bridge.arguments import decode_arguments, read_arguments
from trunkline.bridge.schema import Inputs, inputs_of
from trunkline.errors import InvalidParams
from trunkline.wire.card import SKILL_PARAMETERS, Extension, Skill
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import Part

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n rest").decode()
WAVE = base64.b64encode(b"RIFF1234WAVEfmt ").decode()
ODD = base64.b64encode(b"nothing known").decode()


def inputs(*modes: str) -> Inputs:
    return inputs_of(Skill("look", "", "", (), input_modes=modes), PeerCard(name="a"))


ALL = inputs("text/plain", "application/json", "image/*", "audio/wav", "audio/mpeg", "application/pdf")


def parts(said: dict[str, Any], of: Inputs = ALL) -> tuple[Part, ...]:
    return read_arguments(said, of).parts


def test_text_comes_first_then_data_then_files() -> None:
    found = parts({"image_url": "https://x/a.png", "data": {"a": 1}, "query": "look"})
    assert found == (
        Part(text="look"),
        Part(data={"a": 1}),
        Part(url="https://x/a.png", media_type="image/png"),
    )


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ({"image_data": PNG}, Part(raw=PNG, media_type="image/png")),
        ({"image_data": f"data:image/webp;base64,{PNG}"}, Part(raw=PNG, media_type="image/webp")),
        ({"image_url": f"data:image/webp;base64,{PNG}"}, Part(raw=PNG, media_type="image/webp")),
        ({"image_data": f"{PNG[:8]}\n{PNG[8:]}"}, Part(raw=PNG, media_type="image/png")),
        ({"image_data": ODD}, Part(raw=ODD, media_type="image/*")),
        ({"image_url": "https://x/look?a=1"}, Part(url="https://x/look?a=1", media_type="image/*")),
        ({"audio_data": WAVE}, Part(raw=WAVE, media_type="audio/wav")),
        ({"audio_data": ODD}, Part(raw=ODD, media_type="audio/*")),
        ({"file_data": ODD}, Part(raw=ODD, media_type="application/pdf")),
        (
            {"file_data": ODD, "file_name": "a.csv"},
            Part(raw=ODD, filename="a.csv", media_type="text/csv"),
        ),
        (
            {"file_url": "https://x/b", "file_name": "b.pdf"},
            Part(url="https://x/b", filename="b.pdf", media_type="application/pdf"),
        ),
    ],
)
def test_files_go_as_they_are(said: dict[str, Any], part: Part) -> None:
    """D22: base64 is passed on, never encoded again."""
    assert parts({"query": "look", **said})[1:] == (part,)


def test_the_one_media_type_of_a_skill_is_what_it_is_given() -> None:
    assert parts({"image_data": ODD}, inputs("image/jpeg")) == (Part(raw=ODD, media_type="image/jpeg"),)
    assert parts({"file_data": ODD}, inputs("video/mp4", "font/ttf")) == (
        Part(raw=ODD, media_type="application/octet-stream"),
    )


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": 5}, "query"),
        ({"query": "x", "image_data": "not base64!"}, "image_data"),
        ({"query": "x", "image_data": "abc"}, "image_data"),
        ({"query": "x", "image_url": "file:///etc/passwd"}, "image_url"),
        ({"query": "x", "data": "[1"}, "data"),
        ({"query": "x", "data": [1]}, "data"),
        ({"query": "x", "colour": "red"}, "colour"),
        ({"query": "x", "task_id": 7}, "task_id"),
    ],
)
def test_what_does_not_fit_is_named(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams, match=field) as refused:
        parts(said)
    assert refused.value.field == field


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(InvalidParams, match="image_url, image_data"):
        parts({"image_data": None}, inputs("image/*"))


def test_data_may_be_the_text_of_an_object() -> None:
    assert parts({"data": '{"a": 1}'}, inputs("application/json")) == (Part(data={"a": 1}),)


def test_an_answer_needs_nothing_else() -> None:
    asked = read_arguments({"task_id": "t-1", "query": "blue"}, inputs("application/json"))
    assert (asked.task_id, asked.parts) == ("t-1", (Part(text="blue"),))
    assert read_arguments({"task_id": "t-1"}, ALL).parts == ()


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TYPED = inputs_of(
    Skill("look", "", "", ()),
    PeerCard(
        name="a",
        extensions=(Extension(SKILL_PARAMETERS, "", False, {"skills": {"look": {"schema": SCHEMA}}}),),
    ),
)


def test_typed_arguments_are_one_data_part() -> None:
    assert parts({"city": "Oslo", "days": 2, "task_id": None, "answer": ""}, TYPED) == (
        Part(data={"city": "Oslo", "days": 2}),
    )
    assert parts({}, TYPED) == (Part(data={}),)


def test_a_typed_tools_question_is_answered_in_words_or_data() -> None:
    said = {"city": "Oslo", "task_id": "t-1", "answer": "tomorrow"}
    asked = read_arguments(said, TYPED)
    assert (asked.task_id, asked.parts) == ("t-1", (Part(text="tomorrow"),))
    assert parts({"city": "Oslo", "task_id": "t-1"}, TYPED) == (Part(data={"city": "Oslo"}),)
    with pytest.raises(InvalidParams, match="task_id"):
        parts({"city": "Oslo", "answer": "tomorrow"}, TYPED)


@pytest.mark.parametrize("given", [{"query": "a"}, '{"query": "a"}', b'{"query": "a"}'])
def test_arguments_as_an_object_or_its_text(given: Any) -> None:
    assert decode_arguments(given) == {"query": "a"}


@pytest.mark.parametrize("given", ["{", "[1]", "7"])
def test_arguments_that_are_no_object(given: str) -> None:
    with pytest.raises(InvalidParams, match="arguments"):
        decode_arguments(given)


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert decode_arguments("") == {}
