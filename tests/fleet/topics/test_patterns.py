"""`*` and `#` in patterns of topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams
from trunkline.fleet.topics.patterns import matches, read_pattern

TABLE = [
    ("a.b", "a.b", True),
    ("a.b", "a.c", False),
    ("a.b", "a.b.c", False),
    ("a.b.c", "a.b", False),
    ("*", "a", True),
    ("*", "a.b", False),
    ("*.b", "a.b", True),
    ("a.*.c", "a.b.c", True),
    ("a.*.c", "a.b.b.c", False),
    ("a.*", "a", False),
    ("a.*", "a.b.c", False),
    ("#", "a", True),
    ("#", "a.b.c", True),
    ("a.#", "a", True),
    ("a.#", "a.b", True),
    ("a.#", "a.b.c", True),
    ("a.#", "ab", False),
    ("a.#", "b.a", False),
    ("*.#", "a", True),
    ("a.*.#", "a", False),
    ("a.*.#", "a.b", True),
    ("#.b", "a.b", False),
    ("a.#.c", "a.b.c", False),
    ("#.#", "a", False),
    ("a*", "ab", False),
    ("a#", "a", False),
    # A dot inside a segment is sent escaped; a pattern may spell it either way.
    ("ceremony.quinn%2Edaily-digest.execute", "ceremony.quinn%2Edaily-digest.execute", True),
    ("ceremony.quinn.daily-digest.execute", "ceremony.quinn%2Edaily-digest.execute", True),
    ("ceremony.quinn.*.execute", "ceremony.quinn%2Edaily-digest.execute", True),
    ("ceremony.*.execute", "ceremony.quinn%2Edaily-digest.execute", True),
    ("ceremony.quinn.#", "ceremony.quinn%2Edaily-digest.execute", True),
    ("ceremony.café.execute", "ceremony.caf%C3%A9.execute", True),
    ("ceremony.quinn.hourly.execute", "ceremony.quinn%2Edaily-digest.execute", False),
    ("a.*.*", "a.b", False),
]


@pytest.mark.parametrize(("pattern", "topic", "expected"), TABLE)
def test_HB_32_the_table_of_wildcards(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern.split("."), topic) is expected


SEGMENT = st.sampled_from(["a", "b", "c"])
PATTERN = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4)


@given(PATTERN, st.booleans(), st.lists(SEGMENT, min_size=1, max_size=6))
def test_HB_32_a_pattern_is_a_regular_expression(before: list[str], rest: bool, topic: list[str]) -> None:
    pattern = [*before, "#"] if rest or not before else before
    written = "".join([r"\.[^.]+" if one == "*" else rf"\.{one}" for one in before])
    expected = re.fullmatch(written + (r"(\..+)?" if pattern[-1] == "#" else ""), "." + ".".join(topic))
    assert matches(read_pattern(".".join(pattern)), ".".join(topic)) is (expected is not None)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "#.a", "a.#.b", "a." * 16 + "a", "a" * 513])
def test_what_never_matches_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_pattern(text)
    assert refused.value.field == "topic"
