"""Whatever a function says and wherever its runs die: the task is as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.run.desk import DONE, WORKING, said
from tests.sample import at_most
from trunkline.errors import Misuse
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import State, fold
from trunkline.run.executor import Again
from trunkline.run.replay import Replay, replay
from trunkline.wire.types import Artifact, Part, TaskState

Script = Sequence[ev.AnyEvent]
SUBMITTED = ev.Submitted(said(), "c", "me", "n")
FIRST = (SUBMITTED, WORKING)
ANEW = ev.Stepped(-1, "")


def status(text: str) -> ev.Status:
    return ev.Status(TaskState.WORKING, said(text))


def chunk(artifact_id: str, value: object, *, append: bool = False, last: bool = False) -> ev.Chunk:
    return ev.Chunk(Artifact(artifact_id, parts=(Part(data=value),)), append, last)


def delta(text: str, append: bool = True, artifact_id: str = "answer", last: bool = False) -> ev.Delta:
    return ev.Delta(artifact_id, text, append, last)


def placed(events: Iterable[ev.AnyEvent]) -> list[ev.Recorded]:
    """Events as a store gives them back."""
    return [
        ev.Recorded(seq, 1, event)
        for seq, event in enumerate(encoding.decode(encoding.encode(list(events))), 1)
    ]


def play(played: Replay | None, script: Script, cut: Callable[[str], list[str]]) -> list[ev.AnyEvent]:
    """What a run of a script adds to a log; text falls into other pieces in each run."""
    if played is None:
        return [*(piece for event in script for piece in pieces(event, cut)), DONE]
    added = list(played.opening())
    for event in script:
        if isinstance(event, ev.Stepped):
            stepped = played.step(event.place, event.name)
            assert stepped is None or stepped.result == event.result
            added += [] if stepped else [event]
            continue
        for piece in pieces(event, cut):
            added += played.take(piece)
    added += played.closing()
    return [*added, DONE]


def pieces(event: ev.AnyEvent, cut: Callable[[str], list[str]]) -> list[ev.AnyEvent]:
    if not isinstance(event, ev.Delta) or not event.text:
        return [event]
    texts = cut(event.text)
    return [
        ev.Delta(event.artifact_id, text, event.append or number > 0, event.last and number == len(texts) - 1)
        for number, text in enumerate(texts)
    ]


def whole(text: str) -> list[str]:
    return [text]


def state_of(events: Iterable[ev.AnyEvent]) -> State:
    return fold("task", placed(events))


def artifacts(events: Iterable[ev.AnyEvent]) -> dict[str, Artifact]:
    return {artifact.artifact_id: artifact for artifact in state_of(events).task().artifacts}


def again(how: Again, log: Script, script: Script) -> list[ev.AnyEvent]:
    """What a further run of a script adds to this log."""
    return play(replay(how, placed(log)), script, whole)


def spoken(events: Iterable[ev.AnyEvent]) -> dict[str, Any]:
    """All that readers were told, deltas as the text they make."""
    told: dict[str, Any] = {"status": [], "steps": [], "chunks": []}
    for event in events:
        match event:
            case ev.Delta():
                told[event.artifact_id] = told.get(event.artifact_id, "") + event.text
            case ev.Chunk():
                told["chunks"].append(event)
            case ev.Status(state=TaskState.WORKING, message=message) if message is not None:
                told["status"].append(message.parts)
            case ev.Stepped(place=place):
                told["steps"].append(place)
            case _:
                pass
    told["steps"].sort()
    return told


TEXT = st.text("ab", min_size=1, max_size=6)
IDS = st.sampled_from(["answer", "other"])
WORDS = st.one_of(
    st.builds(lambda text, anew, name, last: delta(text, not anew, name, last), TEXT, st.booleans(), IDS,
              st.booleans()),
    st.builds(lambda name, value, append: chunk(name, value, append=append), IDS, st.integers(0, 2),
              st.booleans()),
    st.builds(status, TEXT),
    st.just(WORKING),
    st.builds(lambda text: ev.Stepped(0, text, {"text": text}), TEXT),
)  # fmt: skip
SCRIPTS = st.lists(WORDS, max_size=12).map(lambda words: numbered(words))
CRASHES = st.lists(st.integers(0, 30), max_size=4)


def numbered(words: list[ev.AnyEvent]) -> Script:
    """The script with its steps at their places."""
    script: list[ev.AnyEvent] = []
    place = 0
    for word in words:
        if isinstance(word, ev.Stepped):
            word = ev.Stepped(place, word.name, word.result)
            place += 1
        script.append(word)
    return script


@st.composite
def cuts(draw: st.DrawFn) -> Callable[[str], list[str]]:
    size = draw(st.integers(1, 7))
    return lambda text: [text[start : start + size] for start in range(0, len(text), size)]


@settings(deadline=None, max_examples=at_most(400, 100))
@given(SCRIPTS, CRASHES, st.lists(cuts(), min_size=5, max_size=5))
def test_a_resumed_run_says_what_is_missing_and_nothing_twice(
    script: Script, crashes: list[int], cutting: list[Callable[[str], list[str]]]
) -> None:
    smooth = [*FIRST, *play(None, script, cutting[0])]
    log: list[ev.AnyEvent] = [*FIRST, *play(None, script, cutting[0])]
    for crash, cut in zip(crashes, cutting[1:], strict=False):
        log = log[: 2 + crash] if crash < len(log) - 2 else log[:-1]
        log += play(replay(Again.RESUME, placed(log)), script, cut)
    assert state_of(log).task() == state_of(smooth).task()
    assert spoken(log) == spoken(smooth)


@settings(deadline=None, max_examples=at_most(400, 100))
@given(SCRIPTS, st.lists(st.tuples(SCRIPTS, st.integers(0, 30), st.sampled_from(Again)), max_size=4))
def test_the_artifacts_are_those_of_the_run_that_completes(
    script: Script, dead: list[tuple[Script, int, Again]]
) -> None:
    """Also if the function says something else each time, and begins anew or goes on as it likes."""
    script = [word for word in script if not isinstance(word, ev.Stepped)]
    log: list[ev.AnyEvent] = [*FIRST]
    for other, crash, how in dead:
        words = [word for word in other if not isinstance(word, ev.Stepped)]
        log += again(Again.RESTART if how is Again.RESTART else Again.RESUME, log, words)[:-1][:crash]
    expected = artifacts([*FIRST, *script, DONE])
    for how in (Again.RESTART, Again.RESUME):
        ended = [*log, *again(how, log, script)]
        found = artifacts(ended)
        assert {name: found[name] for name in expected} == expected
        assert set(found) - set(expected) <= set(artifacts(log))


@settings(deadline=None, max_examples=at_most(200, 60))
@given(SCRIPTS, st.integers(0, 30), st.integers(0, 30))
def test_a_resumed_run_goes_on_from_a_restarted_one(script: Script, first: int, second: int) -> None:
    log = [*FIRST, *play(None, script, whole)[:-1][:first]]
    anew = again(Again.RESTART, log, script)
    assert [event for event in anew if event != ANEW][:-1] == restarted(script, log)
    log += anew[:-1][:second]
    done = [event.place for event in anew[:second] if isinstance(event, ev.Stepped) and event.place >= 0]
    rest = again(Again.RESUME, log, script)
    steps = [event.place for event in script if isinstance(event, ev.Stepped)]
    if ANEW in log:
        assert [event.place for event in rest if isinstance(event, ev.Stepped)] == [
            place for place in steps if place not in done
        ]
    assert artifacts([*log, *rest]) == artifacts([*FIRST, *script, DONE])


def restarted(script: Script, log: Script) -> list[ev.AnyEvent]:
    """The script with the first word on each artifact of the log beginning it anew."""
    old, said_again = set(artifacts(log)), list[ev.AnyEvent]()
    for event in script:
        if isinstance(event, ev.Delta) and event.artifact_id in old:
            old.discard(event.artifact_id)
            event = ev.Delta(event.artifact_id, event.text, append=False, last=event.last)
        elif isinstance(event, ev.Chunk) and event.artifact.artifact_id in old:
            old.discard(event.artifact.artifact_id)
            event = ev.Chunk(event.artifact, append=False, last=event.last)
        said_again.append(event)
    return said_again


def test_a_first_run_has_no_replay() -> None:
    assert replay(Again.NO, placed(FIRST)) is None


@pytest.mark.parametrize(
    ("recorded", "said_now", "added"),
    [
        ([delta("ab", False)], [delta("abc", False)], [delta("c")]),
        ([delta("a", False), delta("b")], [delta("a", False), delta("b")], []),
        ([delta("ab", False)], [delta("a", False)], [delta("a", False)]),
        ([delta("ab", False)], [delta("ax", False)], [delta("ax", False)]),
        ([delta("ab", False)], [delta("a", False), delta("x"), delta("y")], [delta("ax", False), delta("y")]),
        ([delta("ab", False)], [delta("ab", False, last=True)], [delta("", last=True)]),
        ([delta("ab", False, last=True)], [delta("ab", False), delta("", last=True)], []),
        ([chunk("a", 1), chunk("a", 2)], [chunk("a", 1), chunk("a", 2)], []),
        ([chunk("a", 1)], [chunk("a", 1), chunk("a", 2, append=True)], [chunk("a", 2, append=True)]),
        ([chunk("a", 1)], [chunk("a", 2)], [chunk("a", 2)]),
        ([chunk("a", 1, append=True)], [chunk("a", 1, append=True)], []),
        ([chunk("a", [1, 2])], [chunk("a", (1, 2))], []),
        ([chunk("a", 1)], [chunk("a", 1, last=True)], [chunk("a", 1, last=True)]),
        ([chunk("a", 1)], [delta("x", artifact_id="a")], [delta("x", False, "a")]),
        ([delta("x", artifact_id="a")], [chunk("a", 1, append=True)], [chunk("a", 1)]),
        ([delta("x", False), chunk("answer", 1, append=True)], [delta("xy", False)], [delta("xy", False)]),
        ([chunk("a", 1)], [], []),
        ([status("one"), WORKING, status("two")], [status("one"), status("two"), WORKING], [WORKING]),
        ([status("one"), status("two")], [status("x"), status("two")], [status("x"), status("two")]),
        ([WORKING], [WORKING, status("one")], [status("one")]),
        # A dead run that was restarted said the same once more, and more of it.
        ([delta("a", False), delta("abc", False)], [delta("a", False), delta("bcd")], [delta("d")]),
        ([status("one"), ANEW, status("one"), status("two")], [status("one"), status("two")], []),
        # What was said twice, and what a later run began otherwise, is compared with the last of them.
        ([delta("ab", False), delta("ab", False)], [delta("ab", False)], []),
        ([delta("ab", False), delta("x", False)], [delta("ab", False)], [delta("ab", False)]),
    ],
)
def test_what_a_resumed_run_adds(recorded: Script, said_now: Script, added: Script) -> None:
    assert again(Again.RESUME, [SUBMITTED, *recorded], said_now) == [*added, DONE]


def test_what_cannot_be_written_equals_nothing() -> None:
    strange = ev.Chunk(Artifact("a", metadata={"x": object()}))
    assert again(Again.RESUME, [SUBMITTED, chunk("a", 1)], [strange]) == [strange, DONE]


def test_steps_that_ended_in_another_order_keep_their_places() -> None:
    played = replay(Again.RESUME, placed([*FIRST, ev.Stepped(1, "b", 2)]))
    assert played is not None
    assert played.step(0, "a") is None
    assert played.step(1, "b") == ev.Stepped(1, "b", 2)
    assert (list(played.closing()), played.trouble) == ([], "")


def test_a_step_of_another_name_stops_everything() -> None:
    played = replay(Again.RESUME, placed([*FIRST, ev.Stepped(0, "charge", 1)]))
    assert played is not None
    with pytest.raises(Misuse, match="step 1 is recorded as 'charge' and is now 'refund'"):
        played.step(0, "refund")
    assert list(played.take(delta("more"))) == []
    assert list(played.closing()) == []
    assert "'refund'" in played.trouble


def test_a_step_that_is_no_longer_done_is_told_at_the_end() -> None:
    played = replay(Again.RESUME, placed([*FIRST, ev.Stepped(0, "a"), ev.Stepped(1, "b")]))
    assert played is not None
    played.step(0, "a")
    assert list(played.closing()) == []
    assert "step 2 is recorded as 'b' and was not done any more" in played.trouble


def test_a_restarted_run_forgets_the_steps_of_dead_ones() -> None:
    log = [
        *FIRST,
        ev.Stepped(0, "old", 1),
        ev.Stepped(1, "older", 1),
        ANEW,
        ev.Stepped(0, "new", 2),
    ]
    played = replay(Again.RESUME, placed(log))
    assert played is not None
    assert played.step(0, "new") == ev.Stepped(0, "new", 2)
    assert played.step(1, "newer") is None
    restart = replay(Again.RESTART, placed(log))
    assert restart is not None
    assert restart.step(0, "anything") is None
    assert list(restart.opening()) == [ANEW]
    untouched = replay(Again.RESTART, placed([SUBMITTED]))
    assert untouched is not None
    assert list(untouched.opening()) == []


def test_an_answer_that_is_written_anew_keeps_its_name() -> None:
    first = ev.Delta("answer", "one", append=False, name="response")
    resumed = replay(Again.RESUME, placed([*FIRST, first]))
    assert resumed is not None
    assert list(resumed.take(ev.Delta("answer", "two", append=False, name="response"))) == [
        ev.Delta("answer", "two", append=False, name="response")
    ]
