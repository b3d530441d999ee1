"""Compaction changes how much is stored and nothing that is told."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.log.samples import ends, middle, opening, said, submitted
from tests.log.test_fold import picture
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.compact import Append, compact
from trunkline.log.fold import State, fold
from trunkline.wire.reports import UNTOLD
from trunkline.wire.types import TaskState

PIECES = (ev.Delta, ev.Chunk, ev.Stepped)
DONE = ev.Status(TaskState.COMPLETED)
WORKING = ev.Status(TaskState.WORKING)


def split(events: Sequence[ev.AnyEvent], sizes: Sequence[int]) -> list[Append]:
    """The events in appends of these sizes, the rest in one; ten milliseconds apart."""
    appends: list[Append] = []
    start = 0
    for size in (*sizes, len(events)):
        part = list(events[start : start + size])
        start += len(part)
        if part:
            appends.append(Append(start, 1_000 + 10 * len(appends), part))
    return appends


ended = st.builds(
    lambda first, rest, end: (first, *rest, end), submitted, st.lists(middle, max_size=20), ends
)
logs = st.builds(split, ended, st.lists(st.integers(1, 4), max_size=12))


def placed(appends: Sequence[Append]) -> list[ev.Recorded]:
    return [one for append in appends for one in encoding.placed(append.last, append.at, append.events)]


def folded(appends: Sequence[Append]) -> State:
    return fold("t", placed(appends))


def events_of(appends: Sequence[Append]) -> list[list[ev.AnyEvent]]:
    return [append.events for append in appends]


@given(logs)
def test_a_compacted_log_tells_the_same(log: list[Append]) -> None:
    before = encoding.encode([one.event for one in placed(log)])
    shorter = compact("t", log)
    assert encoding.encode([one.event for one in placed(log)]) == before
    if shorter is None:
        return
    assert picture(folded(shorter)) == picture(folded(log))
    assert len(placed(shorter)) < len(placed(log))
    # An append of the result stands where one with the same last seq was, at the same time.
    assert {(append.last, append.at) for append in shorter} <= {(append.last, append.at) for append in log}
    # Dense: every range begins where the event before it ended.
    seq = 0
    for one in placed(shorter):
        assert one.seq - ev.span(one.event) == seq
        seq = one.seq
    assert seq == log[-1].last
    # Who did what and when stays; only pieces went.
    kept = [one for one in placed(log) if not isinstance(one.event, PIECES)]
    left = [one for one in placed(shorter) if not isinstance(one.event, ev.Compacted)]
    assert [one for one in left if not isinstance(one.event, PIECES)] == kept
    # A piece that would not get smaller is the one it was.
    assert [one for one in left if isinstance(one.event, PIECES) and one not in placed(log)] == []


@given(logs)
def test_nothing_is_left_for_a_second_time(log: list[Append]) -> None:
    shorter = compact("t", log)
    assert compact("t", shorter if shorter is not None else log) is None


@given(logs, st.data())
def test_a_reader_who_comes_back_in_the_middle_ends_with_the_same_task(
    log: list[Append], data: st.DataObject
) -> None:
    shorter = compact("t", log) or log
    known = data.draw(st.integers(0, log[-1].last))
    reader = fold("t", placed(log)[:known])
    for one in placed(shorter):
        if one.seq > known:
            reader.apply(one)
    assert picture(reader) == picture(folded(log))


@given(logs)
def test_what_compaction_wrote_is_stored_like_any_event(log: list[Append]) -> None:
    for append in compact("t", log) or ():
        assert encoding.decode(encoding.encode(append.events)) == append.events


@given(logs)
def test_a_webhook_that_comes_late_tells_what_it_would_have_told(log: list[Append]) -> None:
    """1.7: at every seq that a target is told of, the compacted log folds to the artifacts of that moment."""
    shorter = compact("t", log) or log
    assert len(encoding.encode([one.event for one in placed(shorter)])) <= len(
        encoding.encode([one.event for one in placed(log)])
    ), "compaction never makes a log larger"
    told = State("t")
    for recorded in placed(log):
        before = told.state
        told.apply(recorded)
        event = recorded.event
        changes = isinstance(event, ev.Status) and event.state is not before
        if changes or isinstance(event, ev.Replied | ev.PushSet):
            then = fold("t", [one for one in placed(shorter) if one.seq <= recorded.seq])
            assert then.task().artifacts == told.task().artifacts


def test_nodes_that_died_over_a_task_count_no_more_when_it_has_ended() -> None:
    pieces = (ev.Delta("a", "", append=False), ev.Delta("a", "", append=False))
    log = split((opening(), ev.Claimed("n1"), *pieces, ev.Replied(said())), [])
    assert picture(folded(compact("t", log) or log)) == picture(folded(log))


def test_ranges_that_cannot_merge_count_too() -> None:
    pieces = (ev.Delta("a", "", append=False), ev.Delta("b", "", append=False), ev.Stepped(0, ""))
    log = split((opening(), *pieces, DONE), [2])
    whole, left = (
        len(encoding.encode([one.event for one in placed(each)])) for each in (log, compact("t", log) or log)
    )
    assert left <= whole


def test_an_artifact_that_grows_over_many_questions_is_not_kept_whole_at_each() -> None:
    asked, working = ev.Status(TaskState.INPUT_REQUIRED), ev.Status(TaskState.WORKING)
    turns = [
        one for _ in range(40) for one in (ev.Delta("a", "x" * 500), asked, ev.FollowUp(said()), working)
    ]
    log = split((opening(), *turns, DONE), [1] * 200)
    shorter = compact("t", log) or log
    whole, left = (len(encoding.encode([one.event for one in placed(each)])) for each in (log, shorter))
    assert left <= whole


def test_a_streamed_answer_becomes_three_rows() -> None:
    log = [
        Append(2, 10, [opening(), ev.Status(TaskState.WORKING)]),
        *[Append(4 + 2 * n, 20 + n, [ev.Delta("a", f"{n} "), ev.Delta("a", ", ")]) for n in range(50)],
        Append(104, 99, [ev.Delta("a", "end", last=True), DONE]),
    ]
    shorter = compact("t", log)
    assert shorter is not None
    whole = folded(log).task().artifacts
    assert [(append.last, append.at) for append in shorter] == [(2, 10), (102, 69), (104, 99)]
    assert events_of(shorter)[1:] == [[ev.Compacted(100)], [ev.Compacted(1, whole, ("a",)), DONE]]


def test_pieces_on_both_sides_of_a_question_stay_apart() -> None:
    asked, answered = ev.Status(TaskState.INPUT_REQUIRED, said("which?")), ev.FollowUp(said("that"))
    pieces: list[ev.AnyEvent] = [ev.Delta("a", "x"), ev.Stepped(0, "fetch", "page")]
    log = split(
        (opening(), WORKING, *pieces, asked, answered, *pieces, ev.Delta("b", "y"), DONE),
        (2, 1, 1, 2, 1, 1, 1),
    )
    shorter = compact("t", log)
    assert shorter is not None
    then, whole = folded(log[:4]).task().artifacts, folded(log).task().artifacts
    assert events_of(shorter) == [
        [opening(), WORKING],
        [ev.Compacted(2, then, ("a",))],
        [asked, answered],
        [ev.Compacted(3, whole, ("a", "b"))],
        [DONE],
    ]


def test_a_task_that_goes_on_is_left_alone() -> None:
    pieces = [ev.Delta("a", "x")] * 9
    assert compact("t", split((opening(), *pieces), ())) is None
    assert compact("t", split((opening(), *pieces, ev.Status(TaskState.INPUT_REQUIRED)), ())) is None


def test_what_cannot_get_shorter_is_left_alone() -> None:
    assert (
        compact(
            "t", split((opening(), ev.Delta("a", "x"), ev.FollowUp(said()), ev.Delta("a", "y"), DONE), (1, 1))
        )
        is None
    )


def test_what_a_run_reports_and_its_caller_does_not_want_stays_for_who_counts_it_later() -> None:
    untold = ev.Stepped(1, UNTOLD, {"cost": 2})
    steps = (ev.Stepped(0, "fetch", "page" * 100), ev.Delta("a", "x"), untold)
    shorter = compact("t", split((opening(), WORKING, *steps, DONE), [2]))
    assert shorter is not None
    assert [one.event for one in placed(shorter) if isinstance(one.event, ev.Stepped)] == [untold]
