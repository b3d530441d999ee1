"""Who is told of what: every change of state, once each, to those who were there."""

from __future__ import annotations

import pytest

from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.notifications import announced, delivery_id, host, lane
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState

TASK = "01980000-0000-7000-8000-000000000000"
SAID = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
WORKING, DONE = ev.Status(TaskState.WORKING), ev.Status(TaskState.COMPLETED)
ASKS = ev.Status(TaskState.INPUT_REQUIRED)
ENDS = [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED]


def target(name: str, url: str = "https://hooks.example/") -> ev.PushTarget:
    return ev.PushTarget(name, url, "1.0")


A, B = target("a"), target("b")


def submitted(push: ev.PushTarget | None = None) -> ev.Submitted:
    return ev.Submitted(SAID, "c", "me", "n1", push=push)


def after(*events: ev.AnyEvent) -> State:
    state = State(TASK)
    for recorded in encoding.placed(ev.spanned(events), 1, events):
        state.apply(recorded)
    return state


def told(state: State, *events: ev.AnyEvent) -> list[tuple[int, str]]:
    return [(seq, one.id) for seq, one in announced(state, events)]


def test_nobody_is_told_where_nobody_asked() -> None:
    assert told(after(), submitted(), WORKING, DONE) == []


def test_a_submission_is_not_told_and_what_follows_in_the_same_append_is() -> None:
    assert told(after(), submitted(A)) == []
    assert told(after(), submitted(A), WORKING, ev.Delta("x", "y"), DONE) == [(2, "a"), (4, "a")]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_told(end: TaskState) -> None:
    assert told(after(submitted(A), WORKING), ev.Status(end)) == [(3, "a")]


def test_a_direct_answer_is_told_as_the_end_that_it_is() -> None:
    assert told(after(submitted(A)), ev.Replied(SAID)) == [(2, "a")]


def test_progress_within_a_state_is_no_change() -> None:
    assert told(after(submitted(A), WORKING), WORKING, ev.Delta("x", "y"), WORKING) == []


def test_questions_and_their_answers_are_told() -> None:
    assert told(after(submitted(A), WORKING), ASKS) == [(3, "a")]
    assert told(after(submitted(A), WORKING, ASKS), ev.FollowUp(SAID), WORKING) == [(5, "a")]


def test_all_targets_are_told_in_the_order_they_came() -> None:
    state = after(submitted(A), ev.PushSet(B, "me"))
    assert told(state, WORKING, DONE) == [(3, "a"), (3, "b"), (4, "a"), (4, "b")]


@pytest.mark.parametrize("events", [(), (WORKING,)], ids=["submitted", "working"])
def test_whoever_comes_during_the_work_hears_of_the_next_change(events: tuple[ev.AnyEvent, ...]) -> None:
    state = after(submitted(), *events)
    assert told(state, ev.PushSet(A, "me")) == []
    assert told(state, ev.PushSet(A, "me"), DONE) == [(state.seq + 2, "a")]


@pytest.mark.parametrize("rest", [*ENDS, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_whoever_comes_late_is_told_at_once_and_alone(rest: TaskState) -> None:
    state = after(submitted(A), WORKING, ev.Status(rest))
    assert told(state, ev.PushSet(B, "me")) == [(4, "b")]


def test_a_direct_answer_is_an_end_for_those_who_come_late() -> None:
    assert told(after(submitted(), ev.Replied(SAID)), ev.PushSet(A, "me")) == [(3, "a")]


def test_one_who_is_set_again_after_the_end_is_told_again() -> None:
    state = after(submitted(A), WORKING, DONE)
    assert told(state, ev.PushSet(target("a", "https://elsewhere.example/"), "me")) == [(4, "a")]


def test_an_answer_that_brings_its_target_tells_it_of_the_change_only() -> None:
    state = after(submitted(A), WORKING, ASKS)
    assert told(state, ev.PushSet(B, "me"), ev.FollowUp(SAID), WORKING) == [(6, "a"), (6, "b")]


def test_whoever_left_is_told_nothing() -> None:
    state = after(submitted(A), ev.PushSet(B, "me"), WORKING)
    assert told(state, ev.PushDeleted("a", "me"), DONE) == [(5, "b")]
    assert told(after(submitted(A), WORKING, ev.PushDeleted("a", "me")), DONE) == []
    assert told(state, ev.PushDeleted("nobody", "me")) == []


def test_a_replaced_target_is_told_once_and_by_its_new_address() -> None:
    state = after(submitted(A), WORKING, ev.PushSet(target("a", "https://new.example/"), "me"))
    ((seq, one),) = announced(state, (DONE,))
    assert (seq, one.url) == (4, "https://new.example/")


def test_seqs_count_what_a_range_stands_for() -> None:
    state = after(submitted(A), WORKING)
    ranged = ev.Compacted(5, (Artifact("x"),))
    assert told(state, ranged, DONE) == [(8, "a")]


def test_a_delivery_has_one_id_that_sorts_and_fits_a_signature() -> None:
    assert delivery_id(TASK, 2, "a") == delivery_id(TASK, 2, "a")
    assert len({delivery_id(TASK, seq, name) for seq in (2, 3) for name in "ab"}) == 4
    assert delivery_id(TASK, 9, "z") < delivery_id(TASK, 10, "a") < delivery_id(TASK, 20_000, "a")
    made = delivery_id(TASK, 2, "odd id ../ü\t")
    assert made.isascii() and made.startswith(TASK) and "." not in made and " " not in made


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://Hooks.Example/a?b#c", "hooks.example"),
        ("http://hooks.example", "hooks.example"),
        ("https://hooks.example:8443/", "hooks.example"),
        ("http://[2606:4700::ABCD]/", "2606:4700::abcd"),
        ("http://[broken/", ""),
        ("nothing", ""),
    ],
)
def test_the_host_of_a_url(url: str, name: str) -> None:
    assert host(url) == name


def test_a_lane_is_a_host_and_whose_it_is() -> None:
    one = lane("https://hooks.example:1/a", "t", "alice")
    assert one == lane("http://hooks.example:2/b", "t", "alice"), "400 ports of one host wait together"
    others = [
        lane("https://other.example/", "t", "alice"),
        lane("https://hooks.example/", "t", "bob"),
        lane("https://hooks.example/", "u", "alice"),
        lane("https://hooks.example/", "t" * 5000, "\0 "),
    ]
    assert len({one, *others}) == 5
    assert all(each.isprintable() and each.count(" ") == 2 and len(each) < 60 for each in others)
