"""Looking into JSON that anybody may have written."""

from __future__ import annotations

import pytest

from trunkline.doctor.exchange import at, nested_objects, parsed, protocol_object, snake_members, state_of


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"task": {"id": "1"}}, "task"),
        ({"message": {"parts": []}}, "message"),
        ({"statusUpdate": {}}, "status-update"),
        ({"artifactUpdate": {}}, "artifact-update"),
        ({"kind": "status-update", "status": {}}, "status-update"),
        ({"id": "1", "status": {"message": {}}}, "task"),
        ({"taskId": "1", "status": {}}, "status-update"),
        ({"taskId": "1", "artifact": {}}, "artifact-update"),
        ({"parts": [], "message": {}}, "message"),
    ],
)
def test_an_object_is_known_in_every_dress(result: object, kind: str) -> None:
    found = protocol_object(result)
    assert found.kind == kind


@pytest.mark.parametrize("result", [None, [], 1, "task", {}, {"task": 1}, {"hello": {}}])
def test_nothing_is_nothing(result: object) -> None:
    assert protocol_object(result).kind == ""


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("TASK_STATE_INPUT_REQUIRED", "input-required"),
        ("input_required", "input-required"),
        ("completed", "completed"),
        ("TASK_STATE_CANCELLED", "canceled"),
        (3, ""),
    ],
)
def test_states(word: object, state: str) -> None:
    assert state_of({"status": {"state": word}}) == state


def test_names_that_are_the_agents_own_may_have_underscores() -> None:
    card = {
        "security": [{"api_key": []}],
        "securitySchemes": {"api_key": {}},
        "securityRequirements": [{"schemes": {"api_key": {}}}],
        "skills": [{"input_modes": [], "metadata": {"a_b": 1}}],
    }
    assert list(snake_members(card)) == ["skills[0].input_modes"]


def test_what_a_caller_wrote_is_not_looked_into() -> None:
    task = {
        "id": "1",
        "history": [{"role": "ROLE_USER", "parts": [{}]}, {"role": "ROLE_AGENT", "parts": [{}]}],
    }
    top = protocol_object({"task": task})
    assert [one.path for one in nested_objects(top)] == [
        "task",
        "task.history[0]",
        "task.history[1]",
        "task.history[1].parts[0]",
    ]


def test_broken_json_is_none() -> None:
    assert parsed(b"\xff{") is None
    assert parsed(b"[" * 100_000) is None
    assert at([1], "a", "b") is None
