"""Row 58, the names of tools: stable, unique, short enough, whatever agents are called."""

from __future__ import annotations

import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.bridge.tool import SkillAddress, slug, tool_names
from trunkline.errors import Misuse


@pytest.mark.parametrize(
    ("agent", "skill", "name"),
    [
        ("My Agent!", "do-stuff", "a2a__my_agent__do_stuff"),
        ("  spaces  ", "s", "a2a__spaces__s"),
        ("multi---dash", "under___score", "a2a__multi_dash__under_score"),
        ("Café Zürich", "Über", "a2a__cafe_zurich__uber"),
    ],
)
def test_names(agent: str, skill: str, name: str) -> None:
    assert tool_names([SkillAddress(agent, "http://x", skill)]) == (name,)


def test_a_name_without_any_letter_of_ours_has_one_all_the_same() -> None:
    assert slug("天気") != slug("地震")
    assert re.fullmatch("x[0-9a-f]{8}", slug("天気"))


def test_a_prefix_of_your_own_or_none() -> None:
    owner = SkillAddress("shop", "http://x", "sell")
    assert tool_names([owner], "remote") == ("remote__shop__sell",)
    assert tool_names([owner], "") == ("shop__sell",)
    with pytest.raises(Misuse, match="prefix"):
        tool_names([owner], "a b")


def test_equal_names_get_a_tail_that_no_order_changes() -> None:
    owners = [
        SkillAddress("Shop", "http://a", "sell"),
        SkillAddress("shop!", "http://b", "sell"),
        SkillAddress("bank", "http://c", "pay"),
    ]
    first = dict(zip(owners, tool_names(owners), strict=True))
    assert first[owners[2]] == "a2a__bank__pay"
    assert all(re.fullmatch("a2a__shop__sell_[0-9a-f]{8}", first[owner]) for owner in owners[:2])
    for order in permutations(owners):
        assert dict(zip(order, tool_names(order), strict=True)) == first


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    one, other = (SkillAddress("agent" * 10, "http://a", f"{'skill' * 10}{end}") for end in "ab")
    names = tool_names([one, other])
    assert tool_names([one]) == names[:1]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {64}


def test_the_same_agent_twice_is_refused_with_the_way_out() -> None:
    owner = SkillAddress("shop", "http://a", "sell")
    with pytest.raises(Misuse, match="mapping"):
        tool_names([owner, owner])


@given(
    st.lists(
        st.tuples(st.text(max_size=90), st.text(max_size=9), st.text(max_size=90)), max_size=8, unique=True
    )
)
def test_every_name_fits_every_model(rows: list[tuple[str, str, str]]) -> None:
    names = tool_names([SkillAddress(*row) for row in rows])
    assert len(set(names)) == len(rows)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
