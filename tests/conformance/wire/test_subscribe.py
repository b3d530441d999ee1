"""SubscribeToTask and resuming: snapshot first, nothing lost, nothing twice."""

from __future__ import annotations

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Binding, Rest, refused
from tests.conformance.wire.tasks import (
    TERMINAL,
    built,
    ended,
    finished,
    held,
    kind_of,
    read_until,
    release,
    speaker,
    state_of,
    stored,
    update_of,
)
from tests.harness import Frame


def test_SUB_01_the_first_frame_is_the_task_as_it_stands(v1: Binding) -> None:
    task = held(v1)
    with v1.subscribe(task["id"]) as frames:
        first = next(iter(frames))
    assert update_of(first) == task


def test_SUB_02_a_subscription_closes_at_the_end(v1: Binding) -> None:
    task = held(v1)
    with v1.subscribe(task["id"]) as frames:
        release(v1)
        assert state_of(frames.all()[-1]) == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("state", TERMINAL)
def test_SUB_03_an_ended_task_is_refused(v1: Binding, state: str) -> None:
    v1.expect(refused(v1.subscribe(ended(v1, state)["id"])), "UNSUPPORTED_OPERATION")


def test_SUB_04_an_unknown_task_is_not_found(v1: Binding) -> None:
    v1.expect(refused(v1.subscribe(UNKNOWN)), "TASK_NOT_FOUND")


def test_SUB_05_snapshot_and_events_leave_no_gap(v1: Binding) -> None:
    rpc = speaker(v1)
    with rpc.stream("count 40 5") as first:
        seen = read_until(first, "TASK_STATE_WORKING")
        task_id = update_of(seen[0])["id"]
        # Joins somewhere in the middle; where does not matter.
        with v1.subscribe(task_id) as frames:
            late = frames.all()
    whole = stored(finished(v1, task_id))
    assert built(late) == whole
    assert whole["answer"] == "".join(f"{number} " for number in range(1, 41))


def test_SUB_06_the_task_survives_its_first_stream(v1: Binding) -> None:
    task = held(v1)
    with v1.subscribe(task["id"]) as frames:
        release(v1)
        seen = frames.all()
    assert built(seen) == stored(finished(v1, task["id"]))


def test_SUB_02_a_subscription_stays_open_through_a_question(v1: Binding) -> None:
    asked = v1.send("ask")
    with v1.subscribe(asked["id"]) as frames:
        each = iter(frames)
        assert state_of(next(each)) == "TASK_STATE_INPUT_REQUIRED"
        v1.send("later", taskId=asked["id"], wait=False)
        rest = list(each)
    assert [state_of(one) for one in rest if kind_of(one) == "statusUpdate"] == [
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]


@pytest.fixture
def told(v1: Binding) -> list[Frame]:
    """All frames of a finished task of ten events on the wire."""
    with v1.stream("chunks 7") as frames:
        seen = frames.all()
    assert len(seen) == 10 and None not in [frame.id for frame in seen]
    return seen


def _same(some: list[Frame], others: list[Frame]) -> bool:
    return [(frame.id, frame.result) for frame in some] == [(frame.id, frame.result) for frame in others]


@pytest.mark.parametrize("place", range(10))
def test_resume_sends_what_follows_the_last_event(v1: Binding, told: list[Frame], place: int) -> None:
    with v1.subscribe(update_of(told[0])["id"], last=str(told[place].id)) as frames:
        assert _same(frames.all(), told[place + 1 :])


def test_resume_from_zero_is_the_whole_story(v1: Binding, told: list[Frame]) -> None:
    with v1.subscribe(update_of(told[0])["id"], last="0") as frames:
        assert _same(frames.all(), told)


@pytest.mark.parametrize(
    "last", ["+1", "-1", "1.0", "abc", "", "1 2", "0x1", str(2**63), str(2**64), "9" * 400]
)
def test_resume_from_nowhere_is_one_named_error(v1: Binding, told: list[Frame], last: str) -> None:
    answer = refused(v1.subscribe(update_of(told[0])["id"], last=last))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["Last-Event-ID"]


def test_resume_from_beyond_the_end_is_the_same_error(v1: Binding, told: list[Frame]) -> None:
    last = told[-1].id
    assert last is not None
    answer = refused(v1.subscribe(update_of(told[0])["id"], last=str(last + 1)))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["Last-Event-ID"]


def test_resume_of_a_running_task_has_no_snapshot_and_loses_nothing(v1: Binding) -> None:
    with v1.stream("hold 4") as frames:
        before = read_until(frames, "TASK_STATE_WORKING")
    task_id = update_of(before[0])["id"]
    with v1.subscribe(task_id, last=str(before[-1].id)) as frames:
        release(v1)
        after = frames.all()
    assert "task" not in [kind_of(frame) for frame in after]
    assert built([*before, *after]) == stored(finished(v1, task_id))


def test_resume_after_the_end_came_meanwhile(v1: Binding) -> None:
    with v1.stream("hold 3") as frames:
        before = read_until(frames, "TASK_STATE_WORKING")
    task_id = update_of(before[0])["id"]
    release(v1)
    finished(v1, task_id)
    with v1.subscribe(task_id, last=str(before[-1].id)) as frames:
        after = frames.all()
    assert built([*before, *after]) == stored(finished(v1, task_id))
    assert state_of(after[-1]) == "TASK_STATE_COMPLETED"


def test_resume_of_an_unknown_task_is_not_found(v1: Binding) -> None:
    v1.expect(refused(v1.subscribe(UNKNOWN, last="1")), "TASK_NOT_FOUND")


def test_frame_ids_are_the_seq_of_the_snapshot(v1: Binding) -> None:
    task = held(v1)
    with v1.subscribe(task["id"]) as frames:
        each = iter(frames)
        first = next(each)
        release(v1)
        rest = list(each)
    assert first.id is not None and [frame.id for frame in rest] == list(range(first.id + 1, first.id + 5))


def test_RST_05_subscribe_by_get_and_by_post(rest: Rest) -> None:
    task = held(rest)
    with rest.subscribe(task["id"], verb="GET") as one, rest.subscribe(task["id"], verb="POST") as other:
        release(rest)
        assert _same(one.all(), other.all())
