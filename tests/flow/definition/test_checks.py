"""Schemas of workflows: whoever writes one keeps nobody waiting, as no check of it can be ended."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trunkline.errors import FlowInvalid
from trunkline.flow.definition import schema_cost
from trunkline.flow.definition.checks import SchemaCheck

TOO_LONG = "/: it takes too long to check against its schema"
# A value of JSON: what it may hold is a value again.
VALUE = {
    "anyOf": [
        {"type": ["string", "number"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}
# Each text has it go back some ten thousand times, and fits in the end.
BACKWARDS = r"^(?:(?=(a))a|a)*[c-d]|[a-b]*$"


def multiplied(keyword: str, levels: int) -> dict[str, Any]:
    """A schema of a few lines that holds 3 to the power of its levels against one value."""
    levelled = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 3} for n in range(levels)}
    return {"$defs": {**levelled, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"p": value}
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (multiplied("allOf", 40), {}),
        (multiplied("anyOf", 40), 1),
        # It doubles with each level of the value.
        ({"allOf": [{"properties": {"p": {"$ref": "#"}}}] * 2}, nested(60)),
        ({"allOf": [{"patternProperties": {"p": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}] * 2}, nested(60)),
        ({"properties": {"p": {"allOf": [{"$ref": "#/properties/p"}]}}}, nested(2)),
        ({"items": {"allOf": [{"type": "integer"}] * 4000}}, list(range(10_000))),
        ({"items": {"enum": list(range(20_000))}}, [-1] * 20_000),
        ({"items": {"dependentRequired": {f"k{n}": ["z"] for n in range(10_000)}}}, [{"z": 1}] * 20_000),
        ({"items": {"pattern": BACKWARDS}}, ["a" * 14] * 2000),
        ({"propertyNames": {"pattern": BACKWARDS}}, {f"{n:b}".replace("0", "b").replace("1", "a"): n for n in range(2000)}),
        (VALUE, [[1, "a"]] * 100_000),
        # A text is one value, and each pattern goes through all of it; one that looks ahead does so at each place.
        ({"anyOf": [{"pattern": f"^(a|b)*c{n}$"} for n in range(500)]}, "a" * 1_000_000),
        ({"patternProperties": {f"^(a|b)*c{n}$": {} for n in range(500)}}, {"a" * 1_000_000: 1}),
        ({"pattern": "(?=.*z)q"}, "a" * 100_000),
    ],
)  # fmt: skip
def test_what_would_take_long_is_not_begun(schema: dict[str, Any], value: object) -> None:
    assert SchemaCheck(schema, "/state_schema").wrong(value) == TOO_LONG


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (multiplied("allOf", 5), {}, 1),
        ({"items": {"type": "integer"}}, list(range(300_000)), [1, "a"]),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(100)}}, {"p1": "a" * 9_000_000}, {"p1": 1}),
        ({"items": {"pattern": "^[a-z]+$"}}, ["abc"] * 100_000, ["a1"]),
        ({"items": {"pattern": "^(?=.*b)[a-c]+$"}}, ["ab"] * 100, ["a"]),
        (VALUE, [{"a": [1, 2, "x"]}] * 5000, [None]),
        ({"$id": "https://s.example/x", "$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"const": 1}}}, 1, 2),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [1, 2], [1, 2, 3]),
        # What is called like a keyword is none among the names of members.
        ({"properties": {"$id": {"type": "string"}, "$anchor": True}}, {"$id": "x", "$anchor": 1}, {"$id": 1}),
    ],
)  # fmt: skip
def test_what_takes_no_longer_is_checked(schema: dict[str, Any], fits: object, does_not: object) -> None:
    check = SchemaCheck(schema, "/state_schema")
    assert check.wrong(fits) is None
    assert check.wrong(does_not) not in (None, TOO_LONG)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$id": "inner", "$ref": "#/$defs/x", "$defs": {"x": {}}}}, "$defs": {"x": {}}},
        {"$defs": {"x": {"$anchor": "there"}}, "$ref": "#there"},
        {"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}},
        # Of one without an end all the rest is looked at too.
        {"properties": {"a": {"$ref": "#"}, "b": {"$anchor": "there"}}},
        {"$id": "https://s.example/x", "properties": {"a": {"$ref": "https://s.example/x"}}},
    ],
)
def test_what_cannot_be_followed_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(FlowInvalid, match="no JSON Schema"):
        SchemaCheck(schema, "/state_schema")


def test_a_chain_of_references_is_followed_or_refused() -> None:
    def chain(length: int) -> dict[str, Any]:
        links: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
        return {"$defs": {**links, f"d{length}": {"type": "object"}}, "$ref": "#/$defs/d0"}

    assert SchemaCheck(chain(100), "/state_schema").wrong({}) is None
    with pytest.raises(FlowInvalid, match="too deep"):
        SchemaCheck(chain(3000), "/state_schema")


def test_a_schema_that_takes_everything_costs_nothing() -> None:
    assert schema_cost.SchemaCost(True, is_quick=True).allows([1] * 1000)


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        # Each of them is wrong: to say so of all takes a minute, and of the first no time.
        ({"items": {"enum": [[0] * 5000 + [n] for n in range(20)]}}, [[0] * 5000 + [99]] * 400, "/0: [0,0,"),
        ({"items": {"allOf": [{"multipleOf": 1.1 + n} for n in range(100)]}}, [1e300] * 10_000, "/0: 1e+300 is not"),
        # Of alternatives it is made with all that is wrong with each of them.
        ({"anyOf": [{"items": {"enum": [[0] * 5000 + [n] for n in range(20)]}}, {"type": "string"}]},
         [[0] * 5000 + [99]] * 400, "/: it does not fit its schema"),
        ({"anyOf": [{"items": {"allOf": [{"const": 1}] * 80}}, {"type": "string"}]}, [2] * 20_000,
         "/: it does not fit its schema"),
        ({"anyOf": [{"items": {"const": 1}}, {"type": "string"}]}, [2] * 100, "/: [2,2,"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_no_more_time_than_it_is_found_in(
    schema: dict[str, Any], value: object, told: str
) -> None:
    check = SchemaCheck(schema, "/state_schema")
    began = time.process_time()
    assert (check.wrong(value) or "").startswith(told)
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize(
    "value",
    [
        {"id": "abcdefgh", "text": "x" * 20_000_000},
        [{"id": "abcdefgh", "text": "x" * 40}] * 100_000,
    ],
)
def test_long_texts_where_no_pattern_is_are_checked(value: object) -> None:
    record = {"properties": {"id": {"pattern": "^[a-z]{8}$"}, "text": {"type": "string"}}}
    assert SchemaCheck({**record, "items": record}, "/state_schema").wrong(value) is None
