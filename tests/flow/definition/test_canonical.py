"""Equal values have equal canonical texts, and the texts are those that ECMAScript writes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow import vectors
from tests.flow.definition.sample import line
from trunkline.flow.definition.canonical import canonical, definition_hash


def survives(number: float) -> bool:
    return not (number == 0 and math.copysign(1, number) < 0 or 2**53 < abs(number) < 1e21)


numbers = st.floats(allow_nan=False, allow_infinity=False).filter(survives)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(0, 99).map(str), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(values)
def test_the_text_reads_back_as_the_value(value: Any) -> None:
    read = json.loads(canonical(value), parse_int=float)
    assert read == value, "as doubles, which JSON numbers are to most"
    assert canonical(read) == canonical(value)


@given(st.dictionaries(texts, st.integers(-(2**53), 2**53), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(value: dict[str, int], random: Any) -> None:
    members = list(value.items())
    random.shuffle(members)
    assert canonical(dict(members)) == canonical(value)


@given(numbers)
def test_numbers_are_the_shortest_that_read_back(number: float) -> None:
    text = canonical(number).decode()
    assert float(text) == number
    assert len(text.split("e")[0].replace(".", "").strip("-0")) <= 17


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"), (0.0, "0"), (0.1, "0.1"), (123.456, "123.456"), (1e15, "1000000000000000"),
        (1e21, "1e+21"), (1.5e300, "1.5e+300"), (1e-6, "0.000001"), (1e-7, "1e-7"), (-2.5e-10, "-2.5e-10"),
        (5e-324, "5e-324"), (2**53, "9007199254740992"), (-(2.0**53), "-9007199254740992"), (True, "true"),
    ],
)  # fmt: skip
def test_numbers(number: float, text: str) -> None:
    assert canonical(number).decode() == text


@pytest.mark.parametrize(
    "number", [2**53 + 1, -(2**53) - 1, 12345678901234567890, 10**400, 1e20, -1e16, 2.0**53 + 2, -0.0]
)
def test_number_is_refused_when_its_text_would_read_back_as_another(number: float) -> None:
    with pytest.raises(ValueError, match="write"):
        canonical({"a": [number]})


def test_the_order_of_keys() -> None:
    # An astral character is two code units that come before those of the end of the plane.
    keys = ["a", "1a", "10", "2", "01", "", "\U0001f600", "\ufb33", "4294967295", "4294967294"]
    ordered = json.loads(
        canonical(dict.fromkeys(keys)), object_pairs_hook=lambda pairs: [key for key, _ in pairs]
    )
    assert ordered == ["2", "10", "4294967294", "", "01", "1a", "4294967295", "a", "\U0001f600", "\ufb33"]


def test_texts_are_escaped_where_json_says_so() -> None:
    assert (
        canonical('\b\t\n\f\r"\\/\x01\x7f\u2028é').decode() == '"\\b\\t\\n\\f\\r\\"\\\\/\\u0001\x7f\u2028é"'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "\ud800", {1: 2}, {1, 2}, object()])
def test_what_is_no_json(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical(value)


def test_depth_has_a_limit() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="200 levels"):
        canonical(deep)


def test_a_signature_does_not_change_the_hash() -> None:
    document = line()
    assert len(definition_hash(document)) == 64
    signed = {**document, "signature": {}, "document": {**document["document"], "signature": {"value": "x"}}}
    assert definition_hash(signed) == definition_hash(document)
    assert definition_hash(line(a={})) != definition_hash(document)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conformance-agent-delegate-linear", "6d0698a42b4d377a2670666a16b7a801e3574565fcaaddfcfdb3f5f2edeb441c"),
        ("lighthouse-customer-routing", "691aadcfa8524b9fd4258c37200024bbedd8bca362a6d443be7ce18d6b9ee042"),
        ("conformance-host-activity-linear", "5f97ff9cd98775195180a7e4615ab721ba72813fa14f5b025e5ed149cb2bb873"),
    ],
)  # fmt: skip
def test_hashes_of_the_examples(name: str, expected: str) -> None:
    assert definition_hash(vectors.example(name)) == expected
