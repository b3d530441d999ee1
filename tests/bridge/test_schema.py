"""Row 7: what a tool takes follows the skill's media types over the card's, and its typed parameters over both."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.bridge.schema import inputs_of, output_of, parameters_of
from trunkline.wire.card import SKILL_PARAMETERS, Extension, Skill
from trunkline.wire.peer_card import PeerCard

TYPED = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "title": "Where"}


def skill(*modes: str, output: tuple[str, ...] = ()) -> Skill:
    return Skill("look", "Look", "Looks", (), input_modes=modes, output_modes=output)


def names(*modes: str, card: tuple[str, ...] = ()) -> tuple[set[str], list[str]]:
    schema = inputs_of(skill(*modes), PeerCard(name="a", default_input_modes=card)).schema
    return set(schema["properties"]) - {"task_id"}, schema["required"]


@pytest.mark.parametrize(
    ("modes", "expected", "required"),
    [
        ((), {"query"}, ["query"]),
        (("text/plain",), {"query"}, ["query"]),
        (("text",), {"query"}, ["query"]),
        (("Text/Markdown; charset=utf-8",), {"query"}, ["query"]),
        (("text/plain", "image/png"), {"query", "image_url", "image_data"}, ["query"]),
        (("text/plain", "audio/*"), {"query", "audio_data"}, ["query"]),
        (("image/*",), {"query", "image_url", "image_data"}, []),
        (("text/plain", "application/pdf"), {"query", "file_url", "file_data", "file_name"}, ["query"]),
        (("video/mp4",), {"query", "file_url", "file_data", "file_name"}, []),
        (("application/json",), {"query", "data"}, []),
        (("text/plain", "application/ld+json"), {"query", "data"}, ["query"]),
        (("*/*",), {"query", "data", "file_url", "file_data", "file_name"}, ["query"]),
    ],
)
def test_arguments_by_media_type(modes: tuple[str, ...], expected: set[str], required: list[str]) -> None:
    assert names(*modes) == (expected, required)


def test_the_skills_modes_win_over_the_cards() -> None:
    assert names(card=("image/png",))[0] == {"query", "image_url", "image_data"}
    assert names("text/plain", card=("image/png",))[0] == {"query"}


def test_every_tool_can_be_answered() -> None:
    for modes in ((), ("application/json",), ("image/*",)):
        assert {"task_id", "query"} <= inputs_of(skill(*modes), PeerCard(name="a")).schema[
            "properties"
        ].keys()


def declared(schema: Any) -> PeerCard:
    params = {"skills": {"look": {"schema": schema}, "other": "nothing"}}
    return PeerCard(name="a", extensions=(Extension(SKILL_PARAMETERS, "", False, params),))


def test_typed_parameters_are_the_arguments() -> None:
    inputs = inputs_of(skill("application/json"), declared(TYPED))
    assert inputs.typed
    assert list(inputs.schema["properties"]) == ["city", "task_id", "answer"]
    assert inputs.schema["required"] == ["city"]
    assert "title" not in inputs.schema


def test_a_parameter_of_the_same_name_is_the_skills() -> None:
    own = {"type": "object", "properties": {"task_id": {"type": "integer"}, "answer": {"type": "boolean"}}}
    inputs = inputs_of(skill(), declared(own))
    assert (inputs.task_id, inputs.answer) == ("a2a_task_id", "a2a_answer")
    assert inputs.schema["properties"]["task_id"] == {"type": "integer"}


@pytest.mark.parametrize("schema", [None, "text", {"type": "string"}, {"type": "object"}, []])
def test_a_schema_that_is_none_is_not_used(schema: Any) -> None:
    assert parameters_of("look", declared(schema)) is None


def test_a_schema_on_the_skill_itself_is_read() -> None:
    card = PeerCard(name="a", document={"skills": ["odd", {"id": "look", "inputSchema": TYPED}]})
    assert parameters_of("look", card) == TYPED
    assert parameters_of("other", card) is None


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (("text/plain",), set[str]()),
        (("text/plain", "application/json"), {"data"}),
        (("image/png",), {"files"}),
    ],
)
def test_output_by_media_type(modes: tuple[str, ...], expected: set[str]) -> None:
    schema = output_of(skill(output=modes), PeerCard(name="a"))
    always = {"response", "state", "task_id", "context_id", "question"}
    assert set(schema["properties"]) == always | expected
