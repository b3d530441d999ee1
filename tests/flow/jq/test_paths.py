"""What is evaluated in the process is what jq gives, for every plain filter and every value."""

from __future__ import annotations

from typing import Any

import jq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from trunkline.flow.jq.paths import quick_value

_compile: Any = jq.compile  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
NAMES = ["a", "b", "count", "and", "_x1", "if"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.5, 1.0, -0.0, 2**53, 2**53 + 1, 1e300])
    | st.sampled_from(["", "a", "b", "A", "é", "\x00", "\U0001f600", "\ufffd", "10", "9"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
roots = st.dictionaries(st.sampled_from(NAMES), values, max_size=4) | values

steps = st.sampled_from([*[f".{name}" for name in NAMES], '."a"', '["b"]', "[0]", "[-1]", "[2]"])


@st.composite
def paths(draw: st.DrawFn) -> str:
    first = draw(st.sampled_from([".", ".a", ".b", ".count", '.["a"]', ".[0]"]))
    rest = "".join(draw(st.lists(steps, max_size=2)))
    return first if first == "." and not rest.startswith("[") else first + rest


literals = st.sampled_from(
    ["0", "1", "-1", "1.5", "2.0", "0.1", "true", "false", "null", '""', '"a"', '"é"', "[]", "{}"]
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(
        ["==", "!=", "<", "<=", ">", ">=", " and ", " or ", "//", " // ", "+", " - ", "-", "|", " | "]
    )
    return (
        st.tuples(inner, signs, inner).map("".join)
        | inner.map("({})".format)
        | inner.map("{} | not".format)
        | inner.map("{} | length".format)
        | st.lists(inner, max_size=3).map(lambda some: f"[{', '.join(some)}]")
        | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=2).map(
            lambda some: "{" + ", ".join(f"{name}: {value}" for name, value in some) + "}"
        )
        | st.sampled_from(["{a}", "{a, b}", '{"a b": .a}', "{a: .b, count}"])
    )


programs = st.recursive(paths() | literals, _joined, max_leaves=5)


def by_jq(program: str, root: Any) -> list[Any]:
    """All outputs of jq; a text where it fails."""
    try:
        return list(_compile(program).input_value(root))
    except ValueError as error:
        return [f"failed: {error}"]


def exactly(value: Any) -> Any:
    """A value in which `1`, `1.0` and `true` differ, as they do in JSON."""
    if isinstance(value, list):
        return [exactly(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return type(value), value


@given(programs, roots)
@example(".a == 1", {"a": True})
@example("[true] == [1]", None)
@example(".a // .b", {"a": False, "b": 0})
@example(".a.b // 1", {"a": "text"})
@example("1 - 1 - 1", None)
@example("1 // 2 // 3", None)
@example(".a == .b == .a", {})
@example(".a < .b", {"a": [1], "b": {}})
def test_equal_to_jq(program: str, root: Any) -> None:
    value = quick_value(program, root)
    if value is not UNSET:
        assert [exactly(value)] == [exactly(one) for one in by_jq(program, root)]


@given(st.text(st.sampled_from('.abe[]{}()"01-+=!<>|/,: andortfl\n#\\$?*'), max_size=12), roots)
def test_equal_to_jq_whatever_is_written(program: str, root: Any) -> None:
    value = quick_value(program, root)
    if value is not UNSET:
        assert [exactly(value)] == [exactly(one) for one in by_jq(program, root)]


@pytest.mark.parametrize(
    ("program", "value"),
    [
        (".", {"a": {"b": [1, 2]}, "n": 3, "s": "x", "no": False}),
        (" .a.b[0] ", 1),
        (".a.b[-1]", 2),
        ('.["a"].missing.more', None),
        (".n + 1 < 5 and .s == \"x\"", True),
        (".no // .missing // \"else\"", "else"),
        ("(.s == \"y\" or .n >= 3) | not", False),
        ("{s, n: .n, list: [.s, .a.b[1]]}", {"s": "x", "n": 3, "list": ["x", 2]}),
        (".a.b | length > 1", True),
        ("[.no, .n - 4]", [False, -1]),
    ],
)  # fmt: skip
def test_plain_filters_stay_here(program: str, value: object) -> None:
    root = {"a": {"b": [1, 2]}, "n": 3, "s": "x", "no": False}
    assert quick_value(program, root) == value
    assert by_jq(program, root) == [value]


@pytest.mark.parametrize(
    ("program", "root"),
    [
        (".a.b", {"a": 1}),
        (".a[0]", {"a": {}}),
        (".a", {"a": 2**53 + 1}),
        (".a", {"a": 1.0}),
        (".a", {"a": float("nan")}),
        (".a", {"a": (1,)}),
        (".a", {"a": {1: 2}}),
        (".a == 1", {"a": 2**60}),
        ("[1] < [2]", None),
        ("length", True),
        (".a + {}", {}),
        ("env", None),
        ("$ENV", None),
        (".[]", [1]),
        (".a?", 1),
        (".a == 1 == true", {"a": 1}),
        ("", None),
        ("1.a", None),
        ("a::b", None),
        ('"\\(.a)"', {}),
        (".a |= 1", {}),
        (".a //= 1", {}),
        ("{a: .b == 1}", {}),
        ("(" * 100 + "1" + ")" * 100, None),
        (".a" * 1000, None),
    ],
)
def test_all_else_is_left_to_jq(program: str, root: object) -> None:
    assert quick_value(program, root) is UNSET


def test_values_of_any_depth() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert quick_value(".", deep) is UNSET


@pytest.mark.parametrize(
    "program", [".", ".a", "[.a, .a]", ".a == .a", "[.b, .b, .b]", '{"x": .b, "y": .b, "z": .b}']
)
def test_what_would_keep_others_waiting_is_for_jq(program: str) -> None:
    large = {"a": [{"n": n} for n in range(15_000)], "b": list(range(9000)), "c": 1}
    assert quick_value(program, large) is UNSET
    # What is small is found in what is large.
    assert quick_value(".a[14999].n == 14999 and .c == 1", large) is True
    assert quick_value(".b", large) == large["b"]


@pytest.mark.parametrize("program", ["[.s, .s, .s]", "{a: .s, b: .s, c: .s}", "[.s] | [., ., .]"])
def test_a_text_that_is_repeated_counts_each_time(program: str) -> None:
    assert quick_value(program, {"s": "x" * 400_000}) is UNSET
    assert quick_value(program, {"s": "x"}) is not UNSET
