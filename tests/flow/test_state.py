"""What the output of a node makes of the state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from trunkline.flow.state import merged, same_json


@pytest.mark.parametrize(
    ("reducer", "before", "value", "after"),
    [
        ("overwrite", [1], [2], [2]),
        ("append", [1], [2, 3], [1, 2, 3]),
        ("append", [1], {"a": 1}, [1, {"a": 1}]),
        ("append", None, 1, [1]),
        ("append", "text", 1, [1]),
        ("append", [1], [], [1]),
        ("merge", {"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 1}, {"a": {"b": 1, "c": [2]}, "d": 1}),
        ("merge", {"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ("merge", 3, {"a": 1}, {"a": 1}),
        ("merge", {"a": {"b": 1}}, {"a": None}, {"a": None}),
    ],
)
def test_reducers(reducer: str, before: Any, value: Any, after: Any) -> None:
    """Objects are merged at every level (D12)."""
    state, output = {"key": before, "other": 1}, {"key": value}
    kept = deepcopy((state, output))
    assert merged(state, output, {"key": reducer}) == {"key": after}
    assert (state, output) == kept


def test_keys_without_a_reducer_are_replaced() -> None:
    assert merged({"a": {"b": 1}}, {"a": {"c": 1}, "new": None}, {}) == {"a": {"c": 1}, "new": None}


def test_only_objects_are_merged() -> None:
    assert merged({"a": {"b": 1}}, {"a": [1]}, {"a": "merge"}) == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": {"b": 0}}, {"a": {"b": False}}, False),
        ({"a": True}, {"a": True}, True),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ([1], [1, 2], False),
        ({}, [], False),
        ("1", 1, False),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same_json(other, one) is same
