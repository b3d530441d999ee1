"""The state of a run: what the output of a node changes in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def next_state(
    state: Mapping[str, Any], output: Mapping[str, Any], reducers: Mapping[str, str], *, overwrites: bool
) -> dict[str, Any]:
    """Return the state after the output of a node; with `overwrites`, reducers have no effect."""
    return {**state, **(output if overwrites else merged(state, output, reducers))}


def merged(
    state: Mapping[str, Any], output: Mapping[str, Any], reducers: Mapping[str, str]
) -> dict[str, Any]:
    """What the output of a node makes of the keys that it names: only those; the state stays as it is."""
    return {
        key: _reduced(reducers.get(key, "overwrite"), state.get(key), value)
        for key, value in output.items()
        # Nothing but an object can be merged into one.
        if isinstance(value, dict) or reducers.get(key) != "merge"
    }


def _reduced(reducer: str, before: Any, value: Any) -> Any:
    match reducer:
        case "append":
            kept = cast("list[Any]", before) if isinstance(before, list) else []
            return [*kept, *value] if isinstance(value, list) else [*kept, value]
        case "merge":
            return _deep(before if isinstance(before, dict) else {}, value)
        case _:
            return value


def _deep(before: Any, update: Any) -> dict[str, Any]:
    """Objects are merged at every level; all else, arrays too, is replaced."""
    made: dict[str, Any] = dict(before)
    for key, value in update.items():
        inner = made.get(key)
        if isinstance(value, dict):
            made[key] = _deep(inner if isinstance(inner, dict) else {}, value)
        else:
            made[key] = value
    return made


def same_json(one: object, other: object) -> bool:
    """Whether two values are the same as JSON: to Python `True` is 1, there it is not."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            here, there = cast("dict[str, object]", left), cast("dict[str, object]", right)
            if here.keys() != there.keys():
                return False
            pairs += [(value, there[key]) for key, value in here.items()]
        elif isinstance(left, list) and isinstance(right, list):
            items, others = cast("list[object]", left), cast("list[object]", right)
            if len(items) != len(others):
                return False
            pairs += zip(items, others, strict=True)
        elif left != right or isinstance(left, bool) != isinstance(right, bool):
            return False
    return True
