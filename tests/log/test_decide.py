"""The table of transitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.log.samples import ENDS, ends, logs, middle, opening, recorded, said
from trunkline.errors import InvalidParams, TaskFull, TaskNotCancelable, TurnOver, UnsupportedOperation
from trunkline.log import events as ev
from trunkline.log.decide import Cancel, Claim, Emit, ForceCancel, Park, Release, Say, decide
from trunkline.log.delegation import Notify, RestChild
from trunkline.log.fold import BYTES_LIMIT, EVENTS_LIMIT, State, fold, is_full
from trunkline.log.notifications import PUSH_EVENTS_LIMIT, PUSH_LIMIT, DeletePush, SetPush
from trunkline.wire.question import question_metadata
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import (
    INTERRUPTED,
    STATES,
    TERMINAL,
    Artifact,
    Message,
    Part,
    Task,
    TaskState,
    TaskStatus,
)

WORKING = ev.Status(TaskState.WORKING)
DONE = ev.Status(TaskState.COMPLETED)
ASKED = ev.Status(TaskState.INPUT_REQUIRED)
CANCELED = ev.Status(TaskState.CANCELED)
CHUNK = ev.Chunk(Artifact("a"))


def task(*events: ev.AnyEvent) -> State:
    return fold("t", recorded((opening(), *events)))


@pytest.mark.parametrize("end", [*ENDS, None])
def test_nothing_follows_an_end(end: TaskState | None) -> None:
    state = task(ev.Replied(said()) if end is None else ev.Status(end))
    word = plain_state(state.state)
    assert decide(state, ForceCancel()) == ()
    assert decide(state, Claim("n2", dead="n1")) == ()
    with pytest.raises(UnsupportedOperation, match=f"ended \\({word}\\)"):
        decide(state, Say(said()))
    with pytest.raises(TaskNotCancelable, match=f"ended \\({word}\\)"):
        decide(state, Cancel("me"))
    with pytest.raises(TurnOver, match=f"ended \\({word}\\)"):
        decide(state, Emit("n1", (DONE,)))


def test_a_working_or_asking_task_is_parked_by_its_node_alone() -> None:
    for state in (task(WORKING), task(ASKED)):
        assert decide(state, Park("n1", 5_000, "k")) == (ev.Parked(5_000, "k"),)
        assert decide(state, Park("n2")) == ()
    assert decide(task(DONE), Park("n1")) == ()


@pytest.mark.parametrize(
    "events",
    [
        (WORKING, ev.CancelRequested("o")),
        (ASKED, ev.FollowUp(said("yes")), WORKING),
        (WORKING, ev.ChildEnded("k", TaskState.COMPLETED)),
    ],
    ids=["cancel", "answer", "child"],
)
def test_a_task_is_not_parked_when_what_it_waits_for_is_there(events: tuple[ev.AnyEvent, ...]) -> None:
    assert decide(task(*events), Park("n1", child="k")) == ()


def test_an_answer_that_was_taken_up_does_not_keep_a_task_from_parking() -> None:
    state = task(ASKED, ev.FollowUp(said("yes")), WORKING, ev.AnswerRead(0))
    assert decide(state, Park("n1")) == (ev.Parked(),)


def test_a_parked_task_is_claimed_as_one_that_nobody_has() -> None:
    state = task(WORKING, ev.Parked(5_000))
    assert decide(state, Claim("n2", dead="n1")) == ()
    assert decide(state, Claim("n2", dead="")) == (ev.Claimed("n2"),)
    with pytest.raises(TurnOver):
        decide(state, Emit("n1", (CHUNK,)))


def test_a_question_is_claimed_only_if_it_has_a_moment() -> None:
    assert decide(task(ASKED, ev.Parked(5_000)), Claim("n2", dead="")) == (ev.Claimed("n2"),)
    assert decide(task(ASKED, ev.Parked()), Claim("n2", dead="")) == ()
    assert decide(task(ASKED), Claim("n2", dead="n1")) == ()


def test_the_answer_to_a_parked_question_claims_it() -> None:
    added = decide(task(ASKED, ev.Parked()), Say(said("yes"), claim="n2"))
    assert added == (ev.Claimed("n2"), ev.FollowUp(said("yes")), WORKING)


def test_the_end_of_a_child_is_recorded_once() -> None:
    ended = RestChild("k", TaskState.FAILED)
    state = task(WORKING)
    assert decide(state, ended) == (ev.ChildEnded("k", TaskState.FAILED),)
    assert decide(task(WORKING, *decide(state, ended)), ended) == ()
    assert decide(task(DONE), ended) == ()


def test_a_question_of_a_child_is_recorded_once_and_not_after_its_end() -> None:
    asks = RestChild("k", TaskState.INPUT_REQUIRED, "q1")
    state = task(WORKING)
    assert decide(state, asks) == (ev.ChildAsked("k", "q1"),)
    state = task(WORKING, *decide(state, asks))
    assert decide(state, asks) == ()
    assert decide(state, RestChild("k", TaskState.INPUT_REQUIRED, "q2")) == (ev.ChildAsked("k", "q2"),)
    # After a crash it may ask them in another order, and the first one again.
    again = task(WORKING, ev.ChildAsked("k", "q1"), ev.ChildAsked("k", "q2"))
    assert decide(again, asks) == (ev.ChildAsked("k", "q1"),)
    assert decide(task(WORKING, ev.ChildEnded("k", TaskState.FAILED)), asks) == ()
    assert decide(task(DONE), asks) == ()


def test_of_ends_that_an_agent_tells_only_that_of_another_task_is_news() -> None:
    def told(task_id: str) -> Task:
        return Task(task_id, "c", TaskStatus(TaskState.COMPLETED))

    state = task(WORKING, ev.Notified(TaskState.COMPLETED, told("wrong")))
    for late in (
        Notify(TaskState.COMPLETED, told("wrong")),
        Notify(TaskState.COMPLETED),
        Notify(TaskState.WORKING, told("right")),
        Notify(),
    ):
        assert decide(state, late) == ()
    right = told("right")
    assert decide(state, Notify(TaskState.FAILED, right)) == (ev.Notified(TaskState.FAILED, right),)


def test_a_cancel_that_has_to_be_told_elsewhere_ends_nothing_by_itself() -> None:
    requested = ev.CancelRequested("me")
    assert decide(task(ASKED), Cancel("me", told=True)) == (requested,)
    for asks in (ASKED, WORKING):
        taken = Cancel("me", "n2", told=True, before="n1")
        assert decide(task(asks), taken) == (ev.Claimed("n2"), requested)
        # Somebody was faster, who hears of it; or it is claimed already.
        assert decide(task(asks), replace(taken, before="n0")) == (requested,)
        assert decide(task(asks), replace(taken, claim="n1")) == (requested,)


def test_a_message_to_a_working_task_is_only_recorded() -> None:
    assert decide(task(WORKING), Say(said("more"), claim="n2")) == (ev.FollowUp(said("more")),)


def test_an_answer_sets_the_task_to_work() -> None:
    assert decide(task(ASKED), Say(said("yes"))) == (ev.FollowUp(said("yes")), WORKING)
    assert decide(task(ASKED), Say(said("yes"), claim="n1")) == (ev.FollowUp(said("yes")), WORKING)
    assert decide(task(ASKED), Say(said("yes"), claim="n2")) == (
        ev.Claimed("n2"),
        ev.FollowUp(said("yes")),
        WORKING,
    )


def answering(question: str) -> Message:
    return Message(
        "a", parts=(Part(text="done"),), metadata=question_metadata(question) if question else None
    )


@pytest.mark.parametrize("state", STATES, ids=plain_state)
def test_who_is_there_to_answer_says_something_only_to_what_asks(state: TaskState) -> None:
    question = Message("q1", parts=(Part(text="Log in, or which one?"),))
    asked = task(ev.Status(state, question))
    for answer in (answering(""), answering("q1")):
        if state in INTERRUPTED:
            assert decide(asked, Say(answer, by="carol")) == (ev.FollowUp(answer, "carol"), WORKING)
        else:
            with pytest.raises(UnsupportedOperation if state in TERMINAL else InvalidParams):
                decide(asked, Say(answer, by="carol"))
    if state in INTERRUPTED:
        with pytest.raises(InvalidParams, match="does not ask the question 'q0' now"):
            decide(asked, Say(answering("q0"), by="carol"))
        # Once it is answered, who comes second is told so.
        answered = task(ev.Status(state, question), ev.FollowUp(answering("q1"), "carol"))
        with pytest.raises(InvalidParams, match="does not ask"):
            decide(answered, Say(answering(""), by="dave"))


@given(logs)
def test_whatever_happened_only_an_open_question_is_answered_by_others(log: tuple[ev.AnyEvent, ...]) -> None:
    state = fold("t", recorded(log))
    asks = state.state in INTERRUPTED and state.status_message is not None
    try:
        added = decide(state, Say(Message("m-answer", parts=(Part(data={"rejected": True}),)), by="carol"))
    except (InvalidParams, UnsupportedOperation):
        assert not asks
    else:
        assert asks and [event.by for event in added if isinstance(event, ev.FollowUp)] == ["carol"]


def test_a_message_of_another_context_is_refused() -> None:
    with pytest.raises(InvalidParams, match="another context"):
        decide(task(), Say(said(context_id="d")))
    assert decide(task(), Say(said(context_id="c"))) == (ev.FollowUp(said(context_id="c")),)


def test_cancel_asks_once_and_ends_what_waits() -> None:
    assert decide(task(WORKING), Cancel("me")) == (ev.CancelRequested("me"),)
    assert decide(task(WORKING, ev.CancelRequested("me")), Cancel("you")) == ()
    assert decide(task(ASKED), Cancel("me")) == (ev.CancelRequested("me"), CANCELED)
    assert decide(task(ev.CancelRequested("me"), ASKED), Cancel("you")) == (CANCELED,)
    assert decide(task(WORKING), ForceCancel()) == (CANCELED,)


def test_what_a_dead_node_left_is_claimed_once() -> None:
    assert decide(task(WORKING), Claim("n2", dead="n1")) == (ev.Claimed("n2"),)
    # Somebody who saw the same death was faster.
    assert decide(task(WORKING, ev.Claimed("n3")), Claim("n2", dead="n1")) == ()
    assert decide(task(WORKING, ev.Claimed("n2")), Claim("n2", dead="n1")) == ()


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_what_waits_for_its_caller_needs_no_claim(state: TaskState) -> None:
    assert decide(task(ev.Status(state)), Claim("n2", dead="n1")) == ()


def test_a_node_lets_go_of_what_is_its_own() -> None:
    assert decide(task(WORKING), Release("n1")) == (ev.Claimed(""),)
    assert decide(task(WORKING), Release("n2")) == ()
    assert decide(task(WORKING, DONE), Release("n1")) == ()


def full(*events: ev.AnyEvent, by: str = "events") -> State:
    """A task that holds as much as it may."""
    state = task(*events)
    if by == "bytes":
        state.size = BYTES_LIMIT
    else:
        count = EVENTS_LIMIT - state.seq
        state.apply(ev.Recorded(EVENTS_LIMIT, 1, ev.Compacted(count)))
    return state


def test_a_task_is_full_at_its_limits_and_not_before() -> None:
    state = task(WORKING)
    state.size = BYTES_LIMIT - 1
    state.apply(ev.Recorded(EVENTS_LIMIT - 1, 1, ev.Compacted(EVENTS_LIMIT - 3)))
    assert not is_full(state)
    assert decide(state, Emit("n1", (CHUNK,))) == (CHUNK,)
    with pytest.raises(TaskFull):
        decide(state, Emit("n1", (CHUNK, CHUNK)))
    assert is_full(full(WORKING))
    assert is_full(full(WORKING, by="bytes"))


@pytest.mark.parametrize("by", ["events", "bytes"])
def test_a_full_task_can_only_end(by: str) -> None:
    with pytest.raises(
        UnsupportedOperation, match="limit .20 000 events or 64 MiB.; send without taskId"
    ) as refused:
        decide(full(WORKING, by=by), Say(said("more")))
    assert refused.value.field == "message.taskId"
    with pytest.raises(UnsupportedOperation, match="20 000 events or 64 MiB"):
        decide(full(ASKED, by=by), Say(said("yes")))
    for more in ((CHUNK,), (CHUNK, CHUNK), (ASKED,), (CHUNK, ASKED)):
        with pytest.raises(TaskFull, match="task t has reached its limit .20 000 events or 64 MiB."):
            decide(full(WORKING, by=by), Emit("n1", more))
    assert decide(full(WORKING, by=by), Emit("n1", (CHUNK, DONE))) == (CHUNK, DONE)
    with pytest.raises(TaskFull):
        decide(full(WORKING, by=by), Emit("n1", (CHUNK, CHUNK, DONE)))
    assert decide(full(WORKING, by=by), Emit("n1", (ev.Replied(said()),))) == (ev.Replied(said()),)
    assert decide(full(WORKING, by=by), Cancel("me")) == (ev.CancelRequested("me"),)
    assert decide(full(ASKED, by=by), Cancel("me")) == (ev.CancelRequested("me"), CANCELED)
    assert decide(full(WORKING, by=by), ForceCancel()) == (CANCELED,)
    assert decide(full(WORKING, by=by), Claim("n2", dead="n1")) == (ev.Claimed("n2"),)


def test_only_the_owner_speaks() -> None:
    with pytest.raises(TurnOver, match="another node"):
        decide(task(ev.Claimed("n2")), Emit("n1", (DONE,)))
    assert decide(task(WORKING, ev.Claimed("n2")), Emit("n2", (DONE,))) == (DONE,)


@pytest.mark.parametrize(
    ("said_first", "recorded_first"),
    [
        ((CHUNK, DONE), (WORKING, CHUNK, DONE)),
        ((DONE,), (WORKING, DONE)),
        ((WORKING, DONE), (WORKING, DONE)),
        ((ev.Replied(said()),), (ev.Replied(said()),)),
        ((ASKED,), (WORKING, ASKED)),
    ],
)
def test_working_is_always_recorded_except_before_a_direct_answer(
    said_first: tuple[ev.AnyEvent, ...], recorded_first: tuple[ev.AnyEvent, ...]
) -> None:
    assert decide(task(), Emit("n1", said_first)) == recorded_first
    assert decide(task(WORKING), Emit("n1", said_first)) == said_first


@pytest.mark.parametrize("late", [CHUNK, DONE, WORKING, ASKED, ev.Replied(said())])
@pytest.mark.parametrize("end", [DONE, CANCELED, ev.Replied(said())])
def test_what_follows_a_verdict_in_one_append_is_dropped(end: ev.AnyEvent, late: ev.AnyEvent) -> None:
    assert decide(task(WORKING), Emit("n1", (CHUNK, end, late, late))) == (CHUNK, end)


@given(logs, st.lists(middle | ends, min_size=1, max_size=5))
def test_whatever_is_emitted_there_is_one_end_and_nothing_behind_it(
    log: tuple[ev.AnyEvent, ...], more: list[ev.AnyEvent]
) -> None:
    state = fold("t", recorded(log))
    try:
        added = decide(state, Emit(state.node, tuple(more)))
    except TurnOver:
        assert state.over
        return
    for one in recorded(added, after=state.seq):
        assert not state.over
        state.apply(one)


def target(name: str = "a", url: str = "https://hooks.example/") -> ev.PushTarget:
    return ev.PushTarget(name, url, "1.0")


@pytest.mark.parametrize("events", [(), (WORKING,), (ASKED,), (WORKING, DONE)])
def test_a_target_may_come_and_go_at_any_time(events: tuple[ev.AnyEvent, ...]) -> None:
    state = task(*events)
    assert decide(state, SetPush(target(), "me")) == (ev.PushSet(target(), "me"),)
    assert decide(state, DeletePush("a", "me")) == ()
    state = task(*events, ev.PushSet(target(), "me"))
    assert decide(state, DeletePush("a", "me", "why")) == (ev.PushDeleted("a", "me", "why"),)


def test_a_deletion_may_be_meant_for_one_only() -> None:
    new, old = target(url="https://new.example/"), target()
    state = task(ev.PushSet(old, "me"), ev.PushSet(new, "me"))
    assert decide(state, DeletePush("a", "me", only=old)) == ()
    assert decide(state, DeletePush("a", "me", only=new)) == (ev.PushDeleted("a", "me"),)


def test_a_message_may_bring_a_target() -> None:
    brought = ev.PushSet(target(), "o")
    more = Say(said("more"), push=target())
    assert decide(task(WORKING), more) == (brought, ev.FollowUp(said("more")))
    assert decide(task(ASKED), more) == (brought, ev.FollowUp(said("more")), WORKING)


def test_a_task_has_so_many_targets_and_no_more() -> None:
    full = task(*[ev.PushSet(target(str(place)), "me") for place in range(PUSH_LIMIT)])
    for command in (SetPush(target("one more"), "me"), Say(said(), push=target("one more"))):
        with pytest.raises(InvalidParams, match="delete one"):
            decide(full, command)
    assert decide(full, SetPush(target("3"), "me")) == (ev.PushSet(target("3"), "me"),)


@pytest.mark.parametrize(("seq", "size"), [(PUSH_EVENTS_LIMIT, 0), (1, BYTES_LIMIT)])
def test_targets_do_not_let_a_task_grow_for_ever(seq: int, size: int) -> None:
    state = task(WORKING, DONE)
    state.seq, state.size = seq, size
    with pytest.raises(UnsupportedOperation, match="reached its limit"):
        decide(state, SetPush(target(), "me"))


def test_states_as_people_read_them() -> None:
    assert [plain_state(state) for state in STATES] == [
        "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required",
    ]  # fmt: skip
