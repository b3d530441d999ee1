"""Which values fit a schema, where one does not and why, and which schemas are refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from trunkline.errors import Misuse
from trunkline.wire.json_schema import SIZE_LIMIT, mismatch, read_schema

ORDER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Order",
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 10, "description": "how many"},
        "colour": {"enum": ["red", "blue"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 2},
        "note": {"type": ["string", "null"], "default": None},
    },
    "required": ["amount"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "minLength": 2, "maxLength": 3}},
}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"amount": 3}, None),
        ({"amount": 3.0, "colour": "red", "tags": ["ab", "abc"], "note": None}, None),
        (5, ("", "must be of the type object")),
        ({}, ("", "lacks 'amount'")),
        ({"amount": True}, (".amount", "must be of the type integer")),
        ({"amount": 1.5}, (".amount", "must be of the type integer")),
        ({"amount": 0}, (".amount", "must be at least 1")),
        ({"amount": 11}, (".amount", "must be at most 10")),
        ({"amount": 3, "colour": "green"}, (".colour", 'must be one of "red", "blue"')),
        ({"amount": 3, "other": 1}, (".other", "is not known here")),
        ({"amount": 3, "tags": []}, (".tags", "must have at least 1 items")),
        ({"amount": 3, "tags": ["ab", "ab", "ab"]}, (".tags", "must have at most 2 items")),
        ({"amount": 3, "tags": ["ab", "a"]}, (".tags[1]", "must have at least 2 characters")),
        ({"amount": 3, "tags": ["abcd"]}, (".tags[0]", "must have at most 3 characters")),
        ({"amount": 3, "note": 5}, (".note", "must be of the type string or null")),
    ],
)
def test_an_object_fits_or_the_first_place_that_does_not_is_named(value: Any, found: Any) -> None:
    assert mismatch(read_schema(ORDER), value) == found


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({}, [None, 1, "a", [], {}], []),
        ({"type": "boolean"}, [True], [1, None]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"const": 1}, [1, 1.0], [True, 2]),
        ({"const": None}, [None], [0, ""]),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5, "no number"], [0, 1]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 5], [4]),
        ({"oneOf": [{"minimum": 3}, {"maximum": 5}]}, [2, 6], [4]),
        ({"allOf": [{"minimum": 3}, {"maximum": 5}]}, [4], [2, 6]),
        ({"properties": {"a": False}, "additionalProperties": {"type": "string"}}, [{"b": "c"}], [{"a": 1}, {"b": 1}]),
        ({"items": False}, [[]], [[1]]),
    ],
)  # fmt: skip
def test_each_keyword(schema: dict[str, Any], fits: list[Any], does_not: list[Any]) -> None:
    read = read_schema(schema)
    assert [value for value in fits if mismatch(read, value) is not None] == []
    assert [value for value in does_not if mismatch(read, value) is None] == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "pattern": "(a+)+$"}, "pattern"),
        ({"patternProperties": {}}, "patternProperties"),
        ({"$ref": "https://example.org/schema.json"}, "a \\$ref to 'https://example.org"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "a \\$ref to '#/\\$defs/none'"),
        ({"type": "text"}, "Invalid enum value 'text'"),
        ({"required": "a"}, "Expected `array`"),
        ({"description": "x" * SIZE_LIMIT}, "larger than"),
        ({"examples": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}, "deeper than"),
        ({"const": object()}, "is none that answers can be checked against"),
    ],
)
def test_what_cannot_be_checked_is_refused_when_it_is_asked(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        read_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        {
            "$ref": "#/$defs/a0",
            "$defs": {
                **{f"a{n}": {"oneOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 4} for n in range(20)},
                "a20": {"type": "string"},
            },
        },
    ],
)
def test_no_schema_takes_the_loop(schema: dict[str, Any]) -> None:
    assert mismatch(read_schema(schema), 1) is not None


@pytest.mark.parametrize("alternatives", [{}, {"anyOf": [{"maxItems": 0}, {}]}], ids=["plain", "any"])
def test_no_name_is_copied_for_each_of_its_members(alternatives: dict[str, Any]) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}, **alternatives}
    schema = read_schema({"additionalProperties": numbers})
    value = {"n" * 100_000: [1] * 2_000}
    tracemalloc.start()
    try:
        assert mismatch(schema, value) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("listing", [{"enum": list(range(3000))}, {"type": ["integer"] * 1200}])
def test_a_schema_that_lists_much_counts_as_several(listing: dict[str, Any]) -> None:
    schema = read_schema({"items": {"anyOf": [listing, {}]}})
    assert mismatch(schema, ["x"] * 10) is None
    assert mismatch(schema, ["x"] * 200) is not None
