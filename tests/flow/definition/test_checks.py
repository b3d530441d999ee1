"""Schemas of workflows: this process compiles and checks only what is small."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from trunkline.flow.definition import checks
from trunkline.flow.definition.checks import SchemaCheck, is_small, plain_schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "a"}}},
        {"patternProperties": {"a": {}}},
        {"propertyNames": {"pattern": "a"}},
        # A pattern that no rule uses is compiled too.
        {"$defs": {"unused": {"pattern": r"\w{200}"}}},
        {"anyOf": [{"$ref": "#"}]},
        {"$dynamicRef": "#a"},
        {"$schema": "https://example.com/meta"},
        {"unevaluatedProperties": False},
        {"enum": list(range(10_000))},
    ],
)
def test_a_costly_schema_is_not_compiled_in_this_process(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "Draft202012Validator", None)
    assert SchemaCheck(schema).find_fault({}) is UNSET


def test_a_small_schema_is_compiled_and_checked_at_once() -> None:
    check = SchemaCheck({"type": "object", "properties": {"a/b": {"type": "integer"}}, "required": ["a/b"]})
    assert is_small(check.text)
    assert check.find_fault({"a/b": 1}) is None
    assert check.find_fault({"a/b": "x"}) == '/a~1b: "x" is not of type "integer"'
    assert check.find_fault({}) == '/: "a/b" is a required property'
    assert len(str(check.find_fault({"a/b": "x" * 2000}))) == checks.LONGEST_FAULT


@pytest.mark.parametrize("value", [[0] * 1000, [{"a": 1}] * 500, "x" * 100_000])
def test_a_large_value_is_left_to_a_worker(value: object) -> None:
    choices = SchemaCheck({"items": {"anyOf": [{"maximum": n} for n in range(100)]}})
    assert choices.find_fault([1]) is None
    assert choices.find_fault(value) is UNSET


@pytest.mark.parametrize("value", [[object()] * 2000, {f"k{n}": object() for n in range(2000)}])
def test_a_large_value_is_not_written_as_json_to_learn_that_it_is_large(value: object) -> None:
    assert SchemaCheck({}).find_fault(value) is UNSET


def test_schemas_are_refused_by_size_and_form() -> None:
    with pytest.raises(ValueError, match="at most 256 KiB"):
        SchemaCheck({"const": "x" * (256 << 10)})
    with pytest.raises(ValueError, match="no JSON Schema"):
        SchemaCheck({"type": "nonsense"})


def test_reducers_are_left_out_of_a_state_schema() -> None:
    schema = {"properties": {"log": {"type": "array", "reducer": "append"}, "any": True}}
    assert plain_schema(schema) == {"properties": {"log": {"type": "array"}, "any": True}}
    assert plain_schema({"properties": 1}) == {"properties": 1}
