"""Who does a piece of work: targets, conversations, exclusions, the draw, the split, and what is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.fleet.catalogue.entry import SkillEffect
from trunkline.fleet.routing.choose import (
    COOLDOWN,
    NO_SKILL,
    SHOWN,
    UNAVAILABLE,
    UNKNOWN_SKILL,
    UNKNOWN_TARGET,
    Standing,
    Wish,
    choose,
    draw,
    fan_out,
    share_of,
    weight,
)
from trunkline.fleet.routing.ranking import TrackRecord

ANN = Standing(agent="ann", skills=frozenset({"draft", "chat"}))
BEN = Standing(agent="ben", skills=frozenset({"draft"}))
NEW = Standing(agent="new", skills=None)
FLEET = (ANN, BEN, NEW)

NAMES = st.sampled_from(["ann", "ben", "cat", "dan", "nobody"])
SKILLS = st.sampled_from(["", "draft", "chat", "fly"])
STANDINGS = st.lists(
    st.builds(
        Standing,
        agent=st.sampled_from(["ann", "ben", "cat", "dan"]),
        skills=st.none() | st.frozensets(st.sampled_from(["draft", "chat"])),
        excluded=st.sampled_from(["", "", "it is disabled"]),
        is_unreachable=st.booleans(),
        success_rate=st.none() | st.floats(0, 1),
        cost_usd=st.none() | st.floats(0, 10),
        latency_ms=st.none() | st.floats(0, 1e6),
    ),
    unique_by=lambda one: one.agent,
)
WISHES = st.builds(
    Wish,
    skill=SKILLS,
    target=st.just("") | NAMES,
    sticky=st.just("") | NAMES,
    helm=st.just("") | NAMES,
    key=st.text(max_size=5),
    split=st.dictionaries(NAMES, st.floats(0, 1), max_size=3),
    latency_weight=st.sampled_from([0.0, 1.0]),
)


def test_hb08_ten_thousand_draws_follow_the_weights() -> None:
    able = [
        Standing(agent="a", skills=frozenset({"x"}), success_rate=0.9, cost_usd=0.5),
        Standing(agent="b", skills=frozenset({"x"}), success_rate=0.5, cost_usd=0.0),
        Standing(agent="c", skills=frozenset({"x"})),
    ]
    assert [weight(one) for one in able] == pytest.approx([0.6, 0.5, 1.0])
    chance = Random(8)
    won = [choose(Wish(skill="x"), able, chance.random()).winner for _ in range(10_000)]
    for name, expected in (("a", 0.6 / 2.1), ("b", 0.5 / 2.1), ("c", 1 / 2.1)):
        assert abs(won.count(name) / 10_000 - expected) < 0.03


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=6), st.integers(1, 300))
def test_evenly_spaced_numbers_are_drawn_in_proportion_to_the_weights(
    weights: list[float], count: int
) -> None:
    places = [draw(weights, (n + 0.5) / count) for n in range(count)]
    for place, one in enumerate(weights):
        assert abs(places.count(place) - count * one / sum(weights)) <= 1 + 1e-9


GOOD = Standing(agent="good", skills=frozenset({"x"}), success_rate=1.0)


def test_two_thirds_of_3000_draws_are_won_by_weight_1_against_one_half() -> None:
    half = Standing(agent="half", skills=frozenset({"x"}), success_rate=0.5)
    won = [choose(Wish(skill="x"), [GOOD, half], (n + 0.5) / 3000).winner for n in range(3000)]
    assert (won.count("good"), won.count("half")) == (2000, 1000)


def test_share_of_an_agent_follows_the_weights_while_outcomes_move_them() -> None:
    """An agent that failed in half of 2000 tasks, and in none of those that it draws, is drawn more and more."""
    chance, completed, total = Random(28), 1000, 2000
    won, expected = 0, 0.0
    for _ in range(3000):
        other = Standing(agent="other", skills=frozenset({"x"}), success_rate=completed / total)
        expected += 1 / (1 + completed / total)
        if choose(Wish(skill="x"), [GOOD, other], chance.random()).winner == "good":
            won += 1
        else:
            completed, total = completed + 1, total + 1
    # Three standard deviations of 3000 draws are 80 of them. With constant weights 2000 would be expected.
    assert abs(won - expected) < 80
    assert 1850 < expected < 1905


def test_latency_weighs_only_where_it_is_set() -> None:
    slow = Standing(agent="a", success_rate=1.0, latency_ms=3000)
    assert weight(slow) == 1.0
    assert weight(slow, latency_weight=1.0) == 0.25


@pytest.mark.parametrize(
    ("wish", "refusal", "named"),
    [
        (Wish(), NO_SKILL, "skill or an agent"),
        (Wish(skill="fly"), UNKNOWN_SKILL, "'fly'"),
        (Wish(skill="draft", target="typo"), UNKNOWN_TARGET, "'typo'"),
        (Wish(skill="fly", target="ann"), UNKNOWN_SKILL, "'ann'"),
        (Wish(helm="gone"), NO_SKILL, "skill or an agent"),
    ],
)
def test_hb07_refusals_are_told_apart(wish: Wish, refusal: str, named: str) -> None:
    made = choose(wish, FLEET, 0.5)
    assert (made.refusal, made.winner) == (refusal, "")
    assert named in made.reason


def test_a_target_that_is_excluded_is_not_replaced() -> None:
    off = Standing(agent="off", skills=frozenset({"draft"}), excluded="it is disabled")
    made = choose(Wish(skill="draft", target="off"), (*FLEET, off), 0.5)
    assert (made.refusal, made.winner) == (UNAVAILABLE, "")
    assert "it is disabled" in made.reason
    assert [one.excluded for one in made.candidates] == ["it is disabled"]


def test_a_conversation_stays_where_it_is_unless_another_skill_is_asked_for() -> None:
    assert {choose(Wish(sticky="ben"), FLEET, n / 9).winner for n in range(9)} == {"ben"}
    assert {choose(Wish(skill="draft", sticky="ben"), FLEET, n / 9).winner for n in range(9)} == {"ben"}
    assert choose(Wish(skill="chat", sticky="ben"), FLEET, 0.5).winner == "ann"
    assert choose(Wish(skill="chat", sticky="gone"), FLEET, 0.5).winner == "ann"
    off = Standing(agent="ben", skills=frozenset({"draft"}), excluded="its breaker is open")
    assert choose(Wish(skill="draft", sticky="ben"), (ANN, off), 0.5).refusal == UNAVAILABLE


def test_a_default_agent_that_the_tenant_does_not_have_is_not_named() -> None:
    assert "gone" not in str(choose(Wish(helm="gone"), FLEET, 0.5))


def test_the_reason_says_whether_other_agents_have_the_skill() -> None:
    busy = Standing(agent="ben", skills=frozenset({"draft"}), excluded="it is disabled")
    only = Standing(agent="ann", skills=frozenset({"draft"}))
    assert "it is the only agent with the skill 'draft'" in choose(Wish(skill="draft"), [only], 0.5).reason
    reason = choose(Wish(skill="draft"), [only, busy], 0.5).reason
    assert "no other agent with the skill 'draft' is free" in reason


def test_the_helm_takes_what_names_no_skill() -> None:
    assert choose(Wish(helm="ann"), FLEET, 0.5).winner == "ann"


def test_an_agent_whose_skills_are_not_known_is_reached_by_name_alone() -> None:
    assert choose(Wish(skill="fly", target="new"), FLEET, 0.5).winner == "new"
    assert choose(Wish(skill="fly"), FLEET, 0.5).refusal == UNKNOWN_SKILL


def test_exclusions_are_shown_and_never_drawn() -> None:
    cold = Standing(agent="ann", skills=frozenset({"draft"}), excluded="it cools down", cools=True)
    made = choose(Wish(skill="draft"), (cold, BEN), 0.0)
    assert made.winner == "ben"
    assert {one.agent: one.excluded for one in made.candidates} == {"ann": "it cools down", "ben": ""}
    assert choose(Wish(skill="draft"), (cold,), 0.0).refusal == COOLDOWN


def test_agent_that_declares_the_requested_effect_ranks_higher() -> None:
    close = SkillEffect(domain="board", path="open", delta=-1, confidence=0.8)
    declares = Standing(agent="zoe", skills=frozenset({"draft"}), effects=(close,))
    wish = Wish(skill="draft", effect="board:open")
    made = choose(wish, (ANN, BEN, declares), 0.0)
    assert [one.agent for one in made.candidates] == ["zoe", "ann", "ben"]
    assert made.candidates[0].parts == {"weight": 1.8, "declared": 0.0, "effect": 0.8}
    for other in ("", "board:closed", "shop"):
        plain = choose(Wish(skill="draft", effect=other), (ANN, declares), 0.0)
        assert [one.parts["weight"] for one in plain.candidates] == [1.0, 1.0], other
    assert choose(Wish(skill="draft", effect="board"), (ANN, declares), 0.0).candidates[0].agent == "zoe"


def test_declared_effect_adds_to_the_score_of_a_known_agent() -> None:
    track = TrackRecord(runs=9, success_rate=0.5)
    effect = SkillEffect(domain="board", path="open", confidence=0.4)
    known = Standing(agent="zoe", skills=frozenset({"draft"}), track=track, effects=(effect,))
    shown = choose(Wish(skill="draft", effect="board:open"), (known,), 0.0).candidates[0]
    assert (shown.score, shown.parts["effect"]) == (1.4, 0.4)


DOWN = Standing(agent="down", skills=frozenset({"draft"}), is_unreachable=True)


def test_unreachable_agent_is_not_drawn_while_another_agent_is_free() -> None:
    made = [choose(Wish(skill="draft"), (ANN, BEN, DOWN), number / 20) for number in range(20)]
    assert {one.winner for one in made} == {"ann", "ben"}
    shown = {one.agent: one.excluded for one in made[0].candidates}
    assert shown == {"ann": "", "ben": "", "down": "it cannot be reached, and another agent has the skill"}
    split = Wish(skill="draft", split={"down": 1.0, "ben": 0.1})
    assert {choose(split, (ANN, BEN, DOWN), number / 20).winner for number in range(20)} == {"ben"}


def test_unreachable_agent_is_drawn_when_no_other_agent_is_free() -> None:
    busy = Standing(agent="ann", skills=frozenset({"draft"}), excluded="its breaker is open")
    assert choose(Wish(skill="draft"), (busy, DOWN), 0.5).winner == "down"
    assert choose(Wish(skill="draft", target="down"), (ANN, DOWN), 0.5).winner == "down"
    assert choose(Wish(skill="draft", sticky="down"), (ANN, DOWN), 0.5).winner == "down"


def test_a_split_is_by_key_and_never_changes_for_one() -> None:
    split = {"ann": 1.0, "ben": 1.0}
    keys = [str(n) for n in range(2000)]
    won = [choose(Wish(skill="draft", key=key, split=split), FLEET, 0.0).winner for key in keys]
    assert won == [choose(Wish(skill="draft", key=key, split=split), FLEET, 0.9).winner for key in keys]
    assert abs(won.count("ann") / 2000 - 0.5) < 0.05
    assert choose(Wish(skill="draft", key="k", split={"ben": 1.0}), FLEET, 0.0).winner == "ben"


def test_candidates_are_sorted_by_their_score_and_bounded() -> None:
    good, bad = TrackRecord(runs=9, success_rate=1.0), TrackRecord(runs=9, success_rate=0.1)
    several = [Standing(agent=f"a{n}", skills=frozenset({"x"}), track=bad) for n in range(30)]
    best = Standing(agent="z", skills=frozenset({"x"}), track=good, success_rate=1.0)
    shown = choose(Wish(skill="x"), [*several, best], 0.5).candidates
    assert len(shown) == SHOWN
    assert (shown[0].agent, shown[0].score, shown[0].parts["successRate"]) == ("z", 2.0, 1.0)


def test_all_means_every_agent_with_the_skill_and_names_count_once() -> None:
    assert fan_out(["all"], "draft", FLEET) == ("ann", "ben")
    assert fan_out(["ben", "ann", "ben", "typo"], "draft", FLEET) == ("ben", "ann", "typo")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True))
def test_a_draw_never_falls_on_what_weighs_nothing(weights: list[float], number: float) -> None:
    place = draw(weights, number)
    assert weights[place] > 0 or sum(weights) == 0


@given(WISHES, STANDINGS, st.floats(0, 1, exclude_max=True))
def test_every_decision_has_a_winner_that_may_or_a_refusal(
    wish: Wish, standings: list[Standing], number: float
) -> None:
    made = choose(wish, standings, number)
    assert bool(made.winner) != bool(made.refusal)
    by_name = {one.agent: one for one in standings}
    if made.winner:
        winner = by_name[made.winner]
        assert not winner.excluded
        assert not wish.skill or winner.skills is None or wish.skill in winner.skills
        assert wish.target in ("", made.winner)


@given(st.text())
def test_shares_lie_between_nothing_and_all(key: str) -> None:
    assert 0 <= share_of(key) < 1
