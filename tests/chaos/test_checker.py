"""The checker itself: a good history passes, and each promise that is broken by hand is named."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from tests.chaos.checker import check, shown
from tests.chaos.history import OK, REFUSED, UNKNOWN, Death, Got, History, Logged, Reading, Seen, Told
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.compact import Append, compact
from trunkline.log.fold import fold
from trunkline.log.head import Head
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Message, Part, Role, TaskState

AT = 1_800_000_000_000
MARK = "p0000000a"
OTHER = "p0000000b"


def said(message_id: str, text: str = "canary-a go") -> Message:
    return Message(message_id, role=Role.USER, parts=(Part(text=text),))


def status(state: TaskState) -> ev.Status:
    return ev.Status(state)


EVENTS: tuple[ev.AnyEvent, ...] = (
    ev.Submitted(said("m1"), "ctx", "a", "n1"),
    ev.Status(TaskState.WORKING),
    ev.Delta("answer", f"{MARK}.0 ", append=False),
    ev.Delta("answer", f"{MARK}.1 "),
    ev.Delta("answer", "", last=True),
    ev.Status(TaskState.COMPLETED),
)
TEXT = f"{MARK}.0 {MARK}.1 "
WANTS = "p.0 p.1 "


def logged(*events: ev.AnyEvent, task_id: str = "t1") -> Logged:
    return placed(encoding.placed(ev.spanned(events), AT, events), task_id)


def placed(records: list[ev.Recorded], task_id: str = "t1") -> Logged:
    state = fold(task_id, records)
    listed = (ev.Submitted, ev.Claimed, ev.Status, ev.Replied)
    changed = max(one.seq for one in records if isinstance(one.event, listed))
    head = Head(task_id, state.context_id, state.principal, state.state, state.status_at, changed, state.node)
    return Logged("default", task_id, records, head)


def sent(**more: Any) -> Told:
    told = Told("send", "a", "s0#1", AT - 5, AT + 5, OK, "m1", "t1", [Seen("t1", "completed", TEXT)])
    for name, value in more.items():
        setattr(told, name, value)
    return told


def read(log: Logged, **more: Any) -> Reading:
    frames = [*shown(log.records)]
    reading = Reading("a", log.task_id, snapshot=False, frames=frames, ended=True, canaries=["a"])
    for name, value in more.items():
        setattr(reading, name, value)
    return reading


def broken(log: Logged | list[Logged], *told: Told, **more: Any) -> list[str]:
    """The rules that a history breaks."""
    history = History(1, list(told), more.pop("readings", []), more.pop("deaths", []))
    logs = log if isinstance(log, list) else [log]
    return [violation.rule for violation in check(logs, history, **more)]


@pytest.fixture
def good() -> Logged:
    return logged(*EVENTS)


def test_a_good_history_has_nothing_to_say_of(good: Logged) -> None:
    unknown = Told("send", "a", "s0#1", AT, message_id="m2")
    pry = Told("pry", "b", "s0#1", AT, AT, REFUSED, task_id="t1", error="-32001")
    get = Told("get", "a", "s0#1", AT, AT, OK, task_id="t1", seen=[Seen("t1", "working", f"{MARK}.0 ")])
    snapshot = Reading(
        "a", "t1", True, [Got(3, "task", "working", f"{MARK}.0 "), *read(good).frames[3:]], ended=True
    )
    assert broken(good, sent(canaries=["a"]), unknown, pry, get, readings=[read(good), snapshot]) == []


# H1


def test_H1_an_acknowledged_task_is_missing() -> None:
    assert broken([], sent(seen=[])) == ["H1"]


def test_H1_an_acknowledged_follow_up_is_missing(good: Logged) -> None:
    assert broken(good, sent(), Told("say", "a", "s0#1", AT, AT, OK, "m2", "t1")) == ["H1"]


def test_H1_a_message_was_taken_twice(good: Logged) -> None:
    assert broken([good, logged(*EVENTS, task_id="t2")]) == ["H1"]


def test_H1_a_refused_message_was_taken(good: Logged) -> None:
    assert broken(good, sent(outcome=REFUSED, error="-32603 later")) == ["H1"]
    later = {"invoked": AT - 90, "returned": AT - 80}
    assert broken(good, sent(outcome=REFUSED, **later), sent(outcome=UNKNOWN)) == []
    assert broken(good, sent(outcome=REFUSED), sent(repeat=True)) == ["H1"]


def test_H1_a_server_that_was_not_sure_may_have_taken_it(good: Logged) -> None:
    unsure = sent(outcome=REFUSED, error="-32603 send the same message again in a while")
    assert broken(good, unsure) == []
    assert broken(good, unsure, strict=True) == ["H1"]


def test_H1_an_unknown_outcome_may_be_there_or_not(good: Logged) -> None:
    assert broken(good, sent(outcome=UNKNOWN)) == broken([], sent(outcome=UNKNOWN)) == []


@pytest.mark.parametrize(
    "seen",
    [
        Seen("t1", "completed", f"{MARK}.0 "),
        Seen("t1", "failed", TEXT),
        Seen("t1", "working", f"{MARK}.1 "),
        Seen("t2", "completed", TEXT),
    ],
)
def test_H1_an_answer_showed_what_never_was(good: Logged, seen: Seen) -> None:
    assert broken(good, Told("get", "a", "s0#1", AT, AT, OK, task_id="t1", seen=[seen])) == ["H1"]


def test_H1_a_list_showed_a_state_that_never_was(good: Logged) -> None:
    assert broken(good, Told("list", "a", "s0#1", AT, AT, OK, seen=[Seen("t1", "working", "")])) == []
    assert broken(good, Told("list", "a", "s0#1", AT, AT, OK, seen=[Seen("t1", "failed", "")])) == ["H1"]


def test_H1_a_canceled_task_went_on(good: Logged) -> None:
    assert broken(good, Told("cancel", "a", "s0#1", AT, AT, OK, task_id="t1")) == ["H1"]


def test_H1_a_result_is_not_the_one_that_was_asked_for(good: Logged) -> None:
    assert broken(good, sent(wants=WANTS)) == []
    assert broken(good, sent(wants=WANTS * 2)) == ["H1"]


def test_H1_a_result_of_two_runs() -> None:
    two = logged(*EVENTS[:3], ev.Claimed("n2"), ev.Delta("answer", f"{OTHER}.1 "), *EVENTS[4:])
    assert broken(two, sent(seen=[], wants=WANTS), deaths=[Death("s0#1", AT)]) == ["H1"]


def test_H1_a_task_that_may_only_complete() -> None:
    failed = logged(*EVENTS[:4], status(TaskState.FAILED))
    assert broken(failed, sent(seen=[], must="failed")) == []
    assert broken(failed, sent(seen=[], must="completed")) == ["H1"]


def test_H1_a_server_does_not_know_an_acknowledged_task(good: Logged) -> None:
    assert broken(good, Told("lost", "a", "s0#1", AT, AT, REFUSED, task_id="t1", error="-32001")) == ["H1"]


# H2, H3, H7 and the end


def test_H2_a_hole(good: Logged) -> None:
    del good.records[2]
    assert broken(good) == ["H2"]


def test_H2_the_same_seq_twice(good: Logged) -> None:
    good.records.insert(2, good.records[2])
    assert broken(good) == ["H2"]


def test_H2_a_head_without_events(good: Logged) -> None:
    good.records.clear()
    assert broken(good) == ["H2"]


def test_H2_a_log_without_a_beginning() -> None:
    records = encoding.placed(1, AT, EVENTS[1:2])
    assert broken(Logged("default", "t1", records, None)) == ["H2"]


@pytest.mark.parametrize(
    "late", [ev.Delta("answer", "late"), ev.Claimed("n2"), ev.FollowUp(said("m2")), status(TaskState.FAILED)]
)
def test_H3_something_after_the_end(late: ev.AnyEvent) -> None:
    assert "H3" in broken(logged(*EVENTS, late))


def test_H3_what_a_newer_version_wrote_may_follow() -> None:
    assert broken(logged(*EVENTS, ev.Unread(b'{"kind":"watched"}'))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"state": TaskState.WORKING},
        {"seq": 5},
        {"node": "n2"},
        {"status_at": 1},
        {"principal": "b"},
        {"context_id": ""},
    ],
)
def test_H7_a_head_that_is_not_the_fold(good: Logged, change: dict[str, Any]) -> None:
    assert good.head is not None
    good.head = replace(good.head, **change)
    assert broken(good) == ["H7"]


def test_H7_no_head(good: Logged) -> None:
    good.head = None
    assert broken(good) == ["H7"]


def test_END_a_task_was_left_at_work() -> None:
    assert broken(logged(*EVENTS[:4])) == ["END"]
    assert broken(logged(*EVENTS[:4]), at_rest=False) == []
    assert broken(logged(*EVENTS[:4], status(TaskState.INPUT_REQUIRED))) == []


# H4


@pytest.mark.parametrize("place", range(6))
def test_H4_a_frame_is_missing(good: Logged, place: int) -> None:
    reading = read(good)
    del reading.frames[place]
    assert broken(good, readings=[reading]) == ["H4"]


@pytest.mark.parametrize("place", range(6))
def test_H4_a_frame_came_twice(good: Logged, place: int) -> None:
    reading = read(good)
    reading.frames.insert(place, reading.frames[place])
    assert broken(good, readings=[reading]) == ["H4"]


@pytest.mark.parametrize(
    "change", [{"text": "x"}, {"append": False}, {"last": True}, {"kind": "status"}, {"seq": 40}]
)
def test_H4_a_frame_is_another_one(good: Logged, change: dict[str, Any]) -> None:
    reading = read(good)
    reading.frames[3] = replace(reading.frames[3], **change)
    assert broken(good, readings=[reading]) == ["H4"]


def test_H4_a_reader_may_leave_early(good: Logged) -> None:
    assert broken(good, readings=[read(good, frames=read(good).frames[:3], ended=False)]) == []


def test_H4_a_reader_who_never_got_the_end(good: Logged) -> None:
    assert broken(good, readings=[read(good, frames=[], ended=False, starved=True)]) == ["H4"]


@pytest.mark.parametrize(
    "first",
    [
        Got(3, "task", "working", ""),
        Got(3, "task", "completed", f"{MARK}.0 "),
        Got(9, "task", "completed", TEXT),
    ],
)
def test_H4_a_snapshot_that_never_was(good: Logged, first: Got) -> None:
    assert broken(good, readings=[read(good, snapshot=True, frames=[first], ended=False)]) == ["H4"]


def test_H4_a_stream_of_nothing(good: Logged) -> None:
    reading = read(good)
    assert broken([], readings=[reading]) == ["H4"]


# H6


def test_H6_a_takeover_after_a_death() -> None:
    taken = logged(*EVENTS[:4], ev.Claimed("n2"), ev.Delta("answer", f"{OTHER}.0 "), EVENTS[-1])
    assert broken(taken, sent(seen=[]), deaths=[Death("s0#1", AT - 1)]) == []
    assert broken(taken, sent(seen=[]), deaths=[Death("*", AT - 1)]) == []


def test_H6_a_takeover_from_the_living() -> None:
    taken = logged(*EVENTS[:4], ev.Claimed("n2"), EVENTS[-1])
    assert broken(taken, sent(seen=[]), deaths=[Death("s0#1", AT + 5_000)]) == ["H6"]
    assert broken(taken, sent(seen=[]), deaths=[Death("s1#1", AT - 1)]) == ["H6"]


def test_H6_two_take_it_after_one_death() -> None:
    twice = logged(*EVENTS[:2], ev.Claimed("n2"), ev.Claimed("n3"), EVENTS[-1])
    of_second = sent(server="s1#1", task_id="t2", message_id="m2", seen=[])
    second = logged(ev.Submitted(said("m2"), "ctx", "a", "n2"), EVENTS[-1], task_id="t2")
    assert broken([twice, second], sent(seen=[]), of_second, deaths=[Death("s0#1", AT - 1)]) == ["H6"]


def test_H6_a_node_claims_what_it_owns() -> None:
    assert broken(logged(*EVENTS[:2], ev.Claimed("n1"), EVENTS[-1])) == ["H6"]


def test_H6_an_answer_moves_a_task_without_a_death() -> None:
    asked = status(TaskState.INPUT_REQUIRED)
    moved = logged(*EVENTS[:2], asked, ev.Claimed("n2"), ev.FollowUp(said("m2")), *EVENTS[1:2], EVENTS[-1])
    assert broken(moved, sent(seen=[])) == []


def test_H6_a_late_word_of_the_dead() -> None:
    late = logged(*EVENTS[:4], ev.Claimed("n2"), ev.Delta("answer", f"{MARK}.2 "), EVENTS[-1])
    assert broken(late) == ["H6"]


def test_H6_two_servers_under_one_name(good: Logged) -> None:
    second = logged(ev.Submitted(said("m2"), "ctx", "a", "n1"), EVENTS[-1], task_id="t2")
    of_second = sent(server="s1#1", task_id="t2", message_id="m2", seen=[])
    assert broken([good, second], sent(), of_second) == ["H6"]
    of_second.repeat = True
    assert broken([good, second], sent(), of_second) == []


# H8


def test_H8_words_of_a_stranger(good: Logged) -> None:
    assert broken(good, sent(canaries=["a", "b"])) == ["H8"]
    assert broken(good, readings=[read(good, canaries=["b"])]) == ["H8"]


def test_H8_a_stranger_got_in(good: Logged) -> None:
    assert broken(good, Told("pry", "b", "s0#1", AT, AT, OK, task_id="t1")) == ["H8"]


# Compaction


@pytest.fixture
def folded(good: Logged) -> Logged:
    merged = compact("t1", [Append(one.seq, one.at, [one.event]) for one in good.records])
    assert merged is not None
    return placed(
        [one for append in merged for one in encoding.placed(append.last, append.at, append.events)]
    )


def test_a_compacted_log_is_dense_and_shows_the_same_end(good: Logged, folded: Logged) -> None:
    assert len(folded.records) < len(good.records)
    before = Told("get", "a", "s0#1", AT, AT, OK, task_id="t1", seen=[Seen("t1", "working", f"{MARK}.0 ")])
    assert broken(folded, sent(wants=WANTS), before) == []
    assert broken(folded, sent(seen=[Seen("t1", "completed", "x")])) == ["H1"]
    assert plain_state(fold("t1", folded.records).state) == "completed"


def test_frames_read_before_and_after_a_compaction(good: Logged, folded: Logged) -> None:
    early = read(good)
    (whole,) = [one.seq for one in folded.records if isinstance(one.event, ev.Compacted)]
    late = read(folded)
    late.frames.insert(2, Got(whole, "artifact", "", TEXT))
    snapshot = read(good, snapshot=True, frames=[Got(4, "task", "working", TEXT), *early.frames[4:]])
    assert broken(folded, readings=[early, late, snapshot]) == []


def test_a_snapshot_that_was_taken_between_two_ranges() -> None:
    whole = ev.Artifact("answer", parts=(Part(text=TEXT),))
    working, done = ev.Status(TaskState.WORKING), ev.Status(TaskState.COMPLETED)
    log = logged(EVENTS[0], working, ev.Compacted(1), ev.Compacted(2, (whole,)), done)
    for seq, text in ((3, f"{MARK}.0 "), (4, TEXT)):
        first = Got(seq, "task", "working", text)
        assert broken(log, readings=[read(log, snapshot=True, frames=[first], ended=False)]) == []
    last = Got(6, "task", "completed", "x")
    assert broken(log, readings=[read(log, snapshot=True, frames=[last], ended=False)]) == ["H4"]


def test_outside_the_range_every_frame_counts(good: Logged, folded: Logged) -> None:
    for place in (0, 1, 5):
        reading = deepcopy(read(good))
        del reading.frames[place]
        assert broken(folded, readings=[reading]) == ["H4"]


def test_inside_the_range_only_artifacts_are_shown(good: Logged, folded: Logged) -> None:
    reading = read(good)
    reading.frames[3] = Got(4, "status", "working")
    assert broken(folded, readings=[reading]) == ["H4"]


def test_a_range_that_is_too_short_is_a_hole(folded: Logged) -> None:
    place = next(n for n, one in enumerate(folded.records) if isinstance(one.event, ev.Compacted))
    folded.records[place] = replace(folded.records[place], event=ev.Compacted(1))
    assert broken(folded) == ["H2"]
