"""Folding is pure: looks, steps and storage do not change what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from time import process_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.log.samples import ends, logs, middle, opening, recorded, said
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import AT_ONCE, NEVER, State, fold
from trunkline.log.head import Head, head_after
from trunkline.wire.types import Artifact, Part, TaskState

Log = tuple[ev.AnyEvent, ...]
FIELDS = [name for name in State.__slots__ if not name.startswith("_") and name != "artifacts"]


def picture(state: State) -> dict[str, object]:
    """Everything a state says."""
    shown = {name: getattr(state, name) for name in FIELDS}
    return {**shown, "task": state.task(), "history": state.history, "answers": list(state.answers)}


def digest(log: Sequence[ev.AnyEvent]) -> bytes:
    return blake2b(b"\n".join(map(encoding.encode_one, log))).digest()


@given(logs)
def test_a_stored_log_folds_to_the_same_state(log: Log) -> None:
    again = [encoding.decode_one(encoding.encode_one(event)) for event in log]
    assert picture(fold("t", recorded(again))) == picture(fold("t", recorded(log)))


@given(logs, st.data())
def test_steps_and_looks_change_nothing(log: Log, data: st.DataObject) -> None:
    before = digest(log)
    stepped = State("t")
    for one in recorded(log):
        stepped.apply(one)
        match data.draw(st.sampled_from(["no look", "task", "history", "artifact"])):
            case "task":
                stepped.task(data.draw(st.none() | st.integers(0, 3)), artifacts=data.draw(st.booleans()))
            case "history":
                assert stepped.history == tuple(stepped.task().history)
            case "artifact":
                assert [stepped.artifacts.whole(a.artifact_id) for a in stepped.task().artifacts] == list(
                    stepped.task().artifacts
                )
            case _:
                pass
    assert picture(stepped) == picture(fold("t", recorded(log)))
    assert digest(log) == before


@given(logs, st.integers(0, 14))
def test_fold_of_all_is_fold_in_two_parts(log: Log, cut: int) -> None:
    state = fold("t", recorded(log[:cut]))
    for one in recorded(log[cut:], after=len(log[:cut])):
        state.apply(one)
    assert picture(state) == picture(fold("t", recorded(log)))
    assert state.seq == len(log)


@given(logs, st.lists(middle, max_size=4), st.lists(ends, max_size=1))
def test_head_after_is_the_state_after(log: Log, more: list[ev.AnyEvent], end: list[ev.AnyEvent]) -> None:
    state = fold("t", recorded(log))
    told = head_after(state, [*more, *end], at=9_999)
    before, changed = listed(state), 0
    for place, event in enumerate([*more, *end], state.seq + 1):
        # One that a node holds is woken by nobody: its deadline stays what it is.
        parked = state.wake_at is not None and not state.node
        state.apply(ev.Recorded(place, 9_999, event))
        if isinstance(event, ev.Status | ev.Replied | ev.Claimed | ev.Parked) or (
            parked
            and isinstance(
                event, ev.FollowUp | ev.CancelRequested | ev.ChildEnded | ev.ChildAsked | ev.Notified
            )
        ):
            changed = place
    if not changed:
        assert told is None
        assert listed(state) == before
    else:
        assert told == replace(listed(state), seq=changed)


def listed(state: State) -> Head:
    return Head(
        "t",
        state.context_id,
        state.principal,
        state.state,
        state.status_at,
        0,
        state.node,
        state.agent,
        state.parent,
        state.child,
        state.wake_at,
    )


def test_a_child_of_an_agent_is_listed_as_such() -> None:
    first = ev.Submitted(said(), "c", "o", "n1", agent="scribe", parent="p")
    head = head_after(State("t"), (first,), 5)
    assert head is not None
    assert (head.agent, head.parent, head.child, head.wake_at) == ("scribe", "p", "", None)
    assert msgspec.json.decode(encoding.encode((first,)))[0]["owner"] == "o"


WAKING = [
    ev.FollowUp(said("now")),
    ev.CancelRequested("o"),
    ev.ChildEnded("k", TaskState.FAILED),
    ev.ChildAsked("k", "q"),
]


@pytest.mark.parametrize("event", WAKING, ids=lambda one: type(one).__name__)
def test_what_is_said_to_a_parked_task_makes_it_due(event: ev.AnyEvent) -> None:
    state = fold("t", recorded((opening(), ev.Status(TaskState.WORKING), ev.Parked(0, "k"))))
    assert (state.node, state.wake_at, state.child) == ("", NEVER, "k")
    state.apply(ev.Recorded(4, 77, event))
    # Whatever a clock shows.
    assert state.wake_at == AT_ONCE
    state.apply(ev.Recorded(5, 78, ev.Claimed("n2")))
    assert (state.node, state.wake_at, state.child) == ("n2", None, "")


@pytest.mark.parametrize(
    ("more", "active_at"),
    [
        # The process died, or let go: nothing says when it stopped listening.
        ([(900, ev.Claimed("n2"))], 900),
        ([(500, ev.Claimed("")), (900, ev.Claimed("n2"))], 900),
        # It was parked until 150, and taken up in time, later, and after the clock was set back.
        ([(100, ev.Parked(150)), (150, ev.Claimed("n2"))], 2),
        ([(100, ev.Parked(150)), (900, ev.Claimed("n2"))], 752),
        ([(100, ev.Parked(rest_ms=50)), (900, ev.Claimed("n2"))], 752),
        ([(100, ev.Parked(150)), (50, ev.Claimed("n2"))], 2),
        # It was woken, by a word that is heard at once.
        ([(100, ev.Parked(0, "k")), (120, ev.FollowUp(said("now"))), (130, ev.Claimed("n2"))], 130),
        ([(100, ev.Parked(0, "k")), (150, ev.Claimed("n2"))], 2),
    ],
)
def test_time_in_which_no_process_follows_a_task_is_no_silence(
    more: list[tuple[int, ev.AnyEvent]], active_at: int
) -> None:
    state = fold("t", [ev.Recorded(1, 1, opening()), ev.Recorded(2, 2, ev.Status(TaskState.WORKING))])
    for seq, (at, event) in enumerate(more, 3):
        state.apply(ev.Recorded(seq, at, event))
    assert state.active_at == active_at


@pytest.mark.parametrize("event", WAKING, ids=lambda one: type(one).__name__)
def test_what_is_said_to_a_running_task_parks_and_wakes_nothing(event: ev.AnyEvent) -> None:
    state = fold("t", recorded((opening(), ev.Status(TaskState.WORKING), event)))
    assert (state.node, state.wake_at) == ("n1", None)


def test_an_ended_task_is_not_parked() -> None:
    state = fold("t", recorded((opening(), ev.Parked(5_000, "k"), ev.Status(TaskState.CANCELED))))
    assert (state.wake_at, state.child) == (None, "")


def test_head_of_a_new_task() -> None:
    assert head_after(State("t"), (opening(),), 5) == Head("t", "c", "o", TaskState.SUBMITTED, 5, 1, "n1")


def test_events_must_follow_each_other() -> None:
    state = fold("t", recorded((opening(),)))
    with pytest.raises(ValueError, match="does not follow"):
        state.apply(ev.Recorded(3, 0, ev.Claimed("n")))
    with pytest.raises(ValueError, match="does not follow"):
        state.apply(ev.Recorded(1, 0, opening()))
    with pytest.raises(ValueError, match="event 5 does not follow 1"):
        state.apply(ev.Recorded(5, 0, ev.Compacted(3)))
    assert state.seq == 1


def test_a_range_stands_for_the_events_up_to_its_own() -> None:
    whole = Artifact("a", parts=(Part(text="xyz"),))
    state = fold("t", recorded((opening(),)))
    state.apply(ev.Recorded(5, 0, ev.Compacted(4, (whole,))))
    assert (state.seq, state.task().artifacts) == (5, (whole,))
    assert head_after(state, (ev.Compacted(3), ev.Status(TaskState.COMPLETED)), 7) == Head(
        "t", "c", "o", TaskState.COMPLETED, 7, 9, "n1"
    )
    assert head_after(state, (ev.Compacted(3),), 7) is None


@pytest.mark.parametrize("known", [1, 2, 3, 4])
def test_a_reader_inside_a_range_gets_its_artifacts_anew(known: int) -> None:
    """Its log was compacted while it stood in the middle: nothing is doubled, and the order stays."""
    log = (opening(), chunk("x"), ev.Delta("b", "1"), ev.Delta("b", "2"), ev.Delta("a", "y"))
    whole = fold("t", recorded(log))
    reader = fold("t", recorded(log[:known]))
    reader.apply(ev.Recorded(5, 0, ev.Compacted(4, whole.task().artifacts)))
    assert reader.task() == whole.task()
    with pytest.raises(ValueError, match="does not follow"):
        reader.apply(ev.Recorded(5, 0, ev.Compacted(4)))


def test_what_a_newer_version_wrote_and_steps_are_passed_by() -> None:
    state = fold("t", recorded((opening(), ev.Status(TaskState.WORKING))))
    before = {**picture(state), "seq": 4}
    state.apply(ev.Recorded(3, 9, ev.Unread(b'{"kind":"later"}')))
    state.apply(ev.Recorded(4, 9, ev.Stepped(0, "fetch", {"k": 1})))
    assert picture(state) == before


def test_steps_beside_the_first_message_belong_to_the_opening() -> None:
    state = fold("t", recorded((opening(), ev.Stepped(0, "sent"), ev.Stepped(1, "taken"))))
    assert state.opened == state.seq == 3
    state.apply(ev.Recorded(4, 9, ev.Status(TaskState.WORKING)))
    state.apply(ev.Recorded(5, 9, ev.Stepped(2, "sent")))
    assert state.opened == 3


@pytest.mark.parametrize(
    ("state", "over", "interrupted", "resting"),
    [
        (TaskState.SUBMITTED, False, False, False),
        (TaskState.WORKING, False, False, False),
        (TaskState.INPUT_REQUIRED, False, True, True),
        (TaskState.AUTH_REQUIRED, False, True, True),
        (TaskState.COMPLETED, True, False, True),
        (TaskState.FAILED, True, False, True),
        (TaskState.CANCELED, True, False, True),
        (TaskState.REJECTED, True, False, True),
    ],
)
def test_what_a_state_means(state: TaskState, over: bool, interrupted: bool, resting: bool) -> None:
    folded = fold("t", recorded((opening(), ev.Status(state))))
    assert (folded.over, folded.interrupted, folded.resting) == (over, interrupted, resting)


def test_what_was_submitted() -> None:
    first = ev.Submitted(said(), "c", "o", "n1", "sum", ("text/plain",), {"k": 1}, "00-1-2-01")
    state = fold("t", recorded((first,)))
    assert (state.context_id, state.principal, state.node, state.skill) == ("c", "o", "n1", "sum")
    assert (state.output_modes, state.metadata, state.message) == (("text/plain",), {"k": 1}, said())
    assert state.trace == "00-1-2-01"
    assert state.status().timestamp == "1970-01-01T00:00:01.001Z"


def test_an_answer_takes_its_question_into_the_history() -> None:
    question, answer, later = said("which?"), said("that"), said("and hurry")
    log = (
        opening(),
        ev.Status(TaskState.INPUT_REQUIRED, question),
        ev.FollowUp(answer),
        ev.Status(TaskState.WORKING),
        ev.FollowUp(later),
    )
    state = fold("t", recorded(log))
    assert state.history == (said(), question, answer, later)
    assert state.answers == [answer]
    assert state.status_message is None


def test_answers_are_taken_up_one_by_one() -> None:
    state = fold("t", recorded((opening(), ev.Status(TaskState.INPUT_REQUIRED), ev.FollowUp(said("that")))))
    assert (len(state.answers), state.taken) == (1, 0)
    state.apply(ev.Recorded(4, 9, ev.AnswerRead(0)))
    assert state.taken == 1


def test_a_question_without_words_leaves_no_trace_in_the_history() -> None:
    log = (opening(), ev.Status(TaskState.AUTH_REQUIRED), ev.FollowUp(said("token")))
    assert fold("t", recorded(log)).history == (said(), said("token"))


def test_history_can_be_cut_but_only_for_the_reader() -> None:
    state = fold("t", recorded((opening(), ev.FollowUp(said("1")), ev.FollowUp(said("2")))))
    assert [len(state.task(n).history) for n in (None, 0, 1, 2, 3, 9)] == [3, 0, 1, 2, 3, 3]
    assert state.task(1).history == (said("2"),)
    assert len(state.history) == 3


def test_a_reply_ends_the_task() -> None:
    state = fold("t", recorded((opening(), ev.Replied(said("pong")))))
    assert (state.state, state.reply, state.status_message) == (
        TaskState.COMPLETED,
        said("pong"),
        said("pong"),
    )


def test_claims_and_cancel_requests_are_remembered() -> None:
    state = fold("t", recorded((opening(), ev.Claimed("n2"), ev.CancelRequested("me"))))
    assert (state.node, state.cancel_requested, state.state) == ("n2", True, TaskState.SUBMITTED)


def chunk(text: str, *, append: bool = False, media_type: str = "") -> ev.Chunk:
    return ev.Chunk(Artifact("a", parts=(Part(text=text, media_type=media_type),)), append=append)


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        ([ev.Delta("a", "x"), ev.Delta("a", "y")], ["xy"]),
        ([chunk("x"), ev.Delta("a", "y"), ev.Delta("a", "z")], ["x", "yz"]),
        ([ev.Delta("a", "x"), chunk("y", append=True), ev.Delta("a", "z")], ["x", "y", "z"]),
        ([ev.Delta("a", "x"), ev.Delta("a", "y", append=False)], ["y"]),
        ([chunk("x"), chunk("y")], ["y"]),
        ([chunk("x", append=True), chunk("y", append=True)], ["x", "y"]),
    ],
)
def test_how_an_artifact_grows(events: list[ev.AnyEvent], parts: list[str]) -> None:
    quiet = fold("t", recorded((opening(), *events)))
    assert [part.text for part in quiet.artifacts.whole("a").parts] == parts
    watched = fold("t", recorded((opening(),)))
    for one in recorded(events, after=1):
        watched.apply(one)
        watched.task()
    assert watched.task() == quiet.task()


def test_a_delta_does_not_touch_a_part_that_is_not_its_own() -> None:
    log = (
        opening(),
        ev.Delta("a", "x"),
        chunk("# y", append=True, media_type="text/markdown"),
        ev.Delta("a", "z"),
    )
    parts = fold("t", recorded(log)).artifacts.whole("a").parts
    assert parts == (Part(text="x"), Part(text="# y", media_type="text/markdown"), Part(text="z"))


def test_appending_adds_to_what_is_known_of_an_artifact() -> None:
    first = Artifact("a", "name", "", (), {"k": 1, "l": 1}, ("e1",))
    more = Artifact("a", "", "words", (), {"l": 2}, ("e1", "e2"))
    state = fold("t", recorded((opening(), ev.Chunk(first), ev.Chunk(more, append=True))))
    assert state.artifacts.whole("a") == Artifact("a", "name", "words", (), {"k": 1, "l": 2}, ("e1", "e2"))


def test_a_task_without_its_artifacts() -> None:
    state = fold("t", recorded((opening(), chunk("x"))))
    assert state.task(artifacts=False).artifacts == ()
    assert len(state.task().artifacts) == 1


WORKING = TaskState.WORKING
TAKEN_OVER = ev.Claimed("n2")
ANEW = ev.Stepped(-1, "")
ROWS_THAT_WAIT = ev.FlowRows((ev.FlowRow("ActivityRequested", {}),), waits=True)


@pytest.mark.parametrize(
    ("events", "takeovers"),
    [
        ((), 0),
        ((TAKEN_OVER,), 1),
        ((TAKEN_OVER, ev.Claimed("n3")), 2),
        # What anybody but the executor says is no progress of it; nor is that it has begun.
        (
            (TAKEN_OVER, ev.FollowUp(said()), ev.Status(WORKING), ev.CancelRequested("me"), ev.Claimed("n3")),
            2,
        ),
        ((TAKEN_OVER, ev.Delta("a", "further"), ev.Claimed("n3")), 1),
        ((TAKEN_OVER, ev.Stepped(0, "one"), ev.Claimed("n3")), 1),
        # A status adds nothing to the one before, so it may be said for ever.
        ((TAKEN_OVER, ev.Status(WORKING, said()), ev.Claimed("n3")), 2),
        # A run from the beginning gets no further by saying again what was said.
        ((ev.Delta("a", "x"), TAKEN_OVER, ANEW, ev.Delta("a", "x", append=False), ev.Stepped(0, "one")), 1),
        ((TAKEN_OVER, ANEW, ev.Status(WORKING, said()), ev.Claimed("n3"), ANEW, ev.Delta("a", "y")), 2),
        ((TAKEN_OVER, ANEW, ev.Status(TaskState.INPUT_REQUIRED)), 0),
        # Nor does one that says it otherwise, until it comes to a step.
        ((ev.Delta("a", "x"), TAKEN_OVER, ev.Delta("a", "y", append=False), ev.Delta("a", "z")), 1),
        ((ev.Delta("a", "x"), TAKEN_OVER, ev.Delta("a", "y", append=False), ev.Stepped(0, "one")), 0),
        # Let go in peace, parked, or asked: nobody died.
        ((ev.Claimed(""), TAKEN_OVER), 0),
        ((TAKEN_OVER, ev.Claimed(""), ev.Claimed("n3")), 1),
        ((TAKEN_OVER, ev.Parked(5), ev.Claimed("n3")), 0),
        ((ev.Status(TaskState.INPUT_REQUIRED), TAKEN_OVER, ev.FollowUp(said()), ev.Status(WORKING)), 0),
        # A resumed executor that only waits is no cause of a crash, until something is appended.
        ((TAKEN_OVER, ev.WaitBegun(), ev.Claimed("n3")), 0),
        ((TAKEN_OVER, ev.WaitBegun(), ev.Claimed("n3"), ev.Claimed("n4")), 1),
        ((TAKEN_OVER, ev.WaitBegun(), ev.ChildEnded("c", WORKING), ev.Claimed("n3")), 1),
        # Its wait was over before the crash was found, so that it may have been at work.
        ((TAKEN_OVER, ev.WaitBegun(1), ev.Claimed("n3")), 1),
        ((TAKEN_OVER, ev.WaitBegun(1 << 60), ev.Claimed("n3")), 0),
        # A workflow's run waits until its rows say otherwise, whatever it hears.
        ((ROWS_THAT_WAIT, TAKEN_OVER, ev.ChildEnded("c", WORKING), ev.Claimed("n3")), 0),
        ((ROWS_THAT_WAIT, ev.FlowRows(()), TAKEN_OVER, ev.FlowRows(()), ev.Claimed("n3")), 2),
        # Until an activity begins again in the process that took the run over, its crashes do not count.
        ((ROWS_THAT_WAIT, ev.FlowRows(()), TAKEN_OVER, ev.Claimed("n3"), ev.Claimed("n4")), 1),
        ((ev.FlowRows(()), ev.Claimed(""), ev.Claimed("n2"), ev.Claimed("n3")), 0),
        # A run that was killed before its first rows had no activity open.
        ((ev.Stepped(0, "flow.definition"), TAKEN_OVER, ev.Claimed("n3"), ev.Claimed("n4")), 0),
        ((ev.Stepped(0, "flow.definition"), TAKEN_OVER, ev.FlowRows(()), ev.Claimed("n3")), 1),
        # A question alone outlives its node; an activity beside it may be the cause of the crash.
        ((ev.Status(TaskState.INPUT_REQUIRED), TAKEN_OVER), 0),
        ((ev.FlowRows(()), ev.Status(TaskState.INPUT_REQUIRED, busy=True), TAKEN_OVER), 1),
        ((ROWS_THAT_WAIT, ev.Status(TaskState.INPUT_REQUIRED, busy=True), TAKEN_OVER), 0),
    ],
)
def test_takeovers_without_progress_are_counted(events: tuple[ev.AnyEvent, ...], takeovers: int) -> None:
    assert fold("t", recorded((opening(), *events))).crashes.takeovers == takeovers


def test_the_first_piece_of_an_answer_says_what_it_is_called() -> None:
    log = (opening(), ev.Delta("a", "x", append=False, name="response"), ev.Delta("a", "y"))
    (made,) = fold("t", recorded(log)).task().artifacts
    assert (made.name, made.parts) == ("response", (Part(text="xy"),))


def test_what_many_pieces_say_of_an_artifact_is_put_together_once() -> None:
    more = [Artifact("a", metadata={f"k{place}": 1}, extensions=(f"e{place}",)) for place in range(15_000)]
    log = recorded((opening(), ev.Chunk(Artifact("a")), *[ev.Chunk(one, append=True) for one in more]))
    began = process_time()
    whole = fold("t", log).artifacts.whole("a")
    assert process_time() - began < 2, "with each piece anew, it takes the square of their number"
    assert len(whole.metadata or {}) == len(whole.extensions) == 15_000


def test_a_piece_without_parts_keeps_what_was_written() -> None:
    state = fold(
        "t", recorded((opening(), ev.Compacted(1, (Artifact("a", parts=(Part(text="x"),)),), ("a",))))
    )
    for seq, event in enumerate(
        (ev.Delta("a", "y"), ev.Chunk(Artifact("a", name="n"), append=True)), state.seq + 1
    ):
        state.apply(ev.Recorded(seq, 0, event))
    assert state.artifacts.whole("a") == Artifact("a", "n", parts=(Part(text="xy"),))
