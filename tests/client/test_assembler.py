"""What is put together from frames, however they come."""

from __future__ import annotations

from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.agents import COMPLETED, WORKING, chunk, hello, message, status, stored, task
from trunkline.client.assembler import Assembler, Update
from trunkline.client.transport import Frame
from trunkline.errors import Unreadable
from trunkline.wire.answers import read_notice
from trunkline.wire.types import ArtifactUpdate, Task, TaskState


def frame(told: Any) -> Frame:
    place, told = told if isinstance(told, tuple) else ("", told)
    return Frame(read_notice(msgspec.json.encode(told)), str(place))


def read(gather: Assembler, *told: Any) -> list[Update]:
    return [update for one in told for update in gather.take(frame(one))]


def text(gather: Assembler) -> str:
    found = gather.result()
    return "" if found is None else found.text


def task_of(told: dict[str, Any]) -> Task:
    answer = read_notice(msgspec.json.encode(told)).answer
    assert isinstance(answer, Task)
    return answer


def test_a_stream_is_told_word_by_word() -> None:
    gather = Assembler()
    updates = read(gather, *hello())
    assert [update.text for update in updates] == ["", "", "hello", " ", "world", ""]
    assert [update.kind for update in updates] == [
        "task",
        "status",
        "artifact",
        "artifact",
        "artifact",
        "status",
    ]
    assert (text(gather), gather.rests, gather.doubtful, gather.last_id) == ("hello world", True, False, "6")


def test_pieces_become_one_text() -> None:
    gather = Assembler()
    read(gather, *hello())
    found = gather.result()
    assert found is not None
    assert [len(artifact.parts) for artifact in found.artifacts] == [1]


def test_a_message_in_pieces_is_one_text() -> None:
    gather = Assembler()
    updates = read(gather, *[message(piece) for piece in ("1 ", "2 ", "2 ", "3")])
    assert ([update.text for update in updates], text(gather)) == (["1 ", "2 ", "2 ", "3"], "1 2 2 3")
    read(gather, message("another", messageId="m10"))
    assert text(gather) == "another"


def test_a_message_without_end_is_counted() -> None:
    gather = Assembler()
    read(gather, *[message(str(n) * 100) for n in range(10)])
    assert gather.size.total > 1000


def test_a_message_that_comes_twice_is_said_once() -> None:
    gather = Assembler()
    first, again = read(gather, message("Hello")), read(gather, message("Hello"))
    assert ([update.text for update in first], again) == (["Hello"], [])
    assert text(gather) == "Hello"


def test_what_is_no_text_stays_between_the_pieces() -> None:
    gather = Assembler()
    data = chunk("")
    data["artifactUpdate"]["artifact"] |= {"parts": [{"data": 1}], "metadata": {"a": 1}, "name": "named"}
    read(gather, (1, chunk("a", append=False)), (2, chunk("b")), (3, data), (4, chunk("c")), (5, chunk("d")))
    found = gather.result()
    assert found is not None
    (artifact,) = found.artifacts
    assert [part.text for part in artifact.parts] == ["ab", None, "cd"]
    assert (artifact.name, artifact.metadata) == ("named", {"a": 1})


def test_what_comes_twice_by_id_is_dropped() -> None:
    gather = Assembler()
    frames = hello()
    assert "".join(u.text for u in read(gather, *frames[:4], *frames[2:])) == "hello world"
    assert (text(gather), gather.doubtful) == ("hello world", False)


def test_what_comes_in_the_wrong_order_is_doubtful() -> None:
    gather = Assembler()
    one, two, three, four, five, six = hello()
    read(gather, one, two, three, five, four, six)
    assert gather.doubtful
    assert gather.last_id == "6"


def test_pieces_without_ids_are_doubtful() -> None:
    gather = Assembler()
    read(gather, *hello(ids=False))
    assert gather.doubtful


def test_whole_artifacts_without_ids_are_not() -> None:
    gather = Assembler()
    read(gather, task("TASK_STATE_SUBMITTED"), chunk("all", append=False, last=True), status(COMPLETED))
    assert (text(gather), gather.doubtful) == ("all", False)


def test_a_missed_beginning_is_doubtful() -> None:
    gather = Assembler()
    read(gather, (1, task("TASK_STATE_SUBMITTED")), (3, chunk("world")), (4, status(COMPLETED)))
    assert gather.doubtful


def test_the_whole_at_the_end_is_not_told_again() -> None:
    gather = Assembler()
    *frames, end = hello()
    updates = read(gather, *frames, (7, chunk("hello world", append=False, last=True)), (8, end[1]))
    assert "".join(update.text for update in updates) == "hello world"
    assert text(gather) == "hello world"


def test_an_artifact_that_is_replaced_is_told_whole() -> None:
    gather = Assembler()
    updates = read(gather, (1, chunk("draft", append=False)), (2, chunk("final", append=False)))
    assert [update.text for update in updates] == ["draft", "final"]
    assert text(gather) == "final"


def test_a_snapshot_tells_only_what_is_new() -> None:
    gather = Assembler()
    read(gather, *hello()[:3])
    (update,) = read(gather, task("TASK_STATE_WORKING", "hello wor"))
    assert (update.kind, update.text) == ("task", " wor")


def test_a_snapshot_that_contradicts_is_told_as_a_whole_artifact() -> None:
    gather = Assembler()
    read(gather, *hello()[:3])
    first, second = read(gather, task("TASK_STATE_WORKING", "goodbye"))
    assert (first.kind, first.text) == ("task", "")
    answer = second.notice.answer
    assert isinstance(answer, ArtifactUpdate)
    assert (second.kind, second.text, answer.append) == ("artifact", "goodbye", False)
    assert text(gather) == "goodbye"


def test_a_late_snapshot_changes_nothing() -> None:
    gather = Assembler()
    one, *rest = hello()
    read(gather, *rest, one)
    assert (text(gather), gather.rests, gather.doubtful) == ("hello world", True, True)


def test_an_end_is_final() -> None:
    gather = Assembler()
    read(gather, status(COMPLETED), status("TASK_STATE_WORKING"), task("TASK_STATE_SUBMITTED"))
    found = gather.result()
    assert found is not None
    assert found.state is TaskState.COMPLETED
    assert gather.doubtful


def test_an_artifact_after_the_end_counts_and_is_doubtful() -> None:
    gather = Assembler()
    read(gather, status(COMPLETED), chunk("late", append=False))
    assert (text(gather), gather.doubtful) == ("late", True)


def test_a_status_with_artifacts_brings_both() -> None:
    gather = Assembler()
    update = status(COMPLETED, "done")
    update["statusUpdate"]["artifacts"] = [{"artifactId": "x", "parts": [{"text": "result"}]}]
    told = read(gather, update)
    assert [(one.kind, one.text) for one in told] == [("artifact", "result"), ("status", "done")]
    assert text(gather) == "result"


def test_a_message_is_the_whole_answer() -> None:
    gather = Assembler()
    (update,) = read(gather, message("hi", contextId="c5"))
    assert (update.kind, update.text, gather.rests, gather.context_id) == ("message", "hi", True, "c5")


def test_settling_believes_what_is_stored() -> None:
    gather = Assembler()
    one, two, three, four, five, six = hello()
    read(gather, one, two, three, five, four, six)
    updates = gather.settle(task_of(stored(COMPLETED, "hello world")))
    assert text(gather) == "hello world"
    assert not gather.doubtful
    assert [update.text for update in updates] == ["", "hello world"]


def test_artifacts_stand_as_they_are_stored_whenever_they_came() -> None:
    gather = Assembler()
    read(
        gather,
        task(WORKING),
        chunk("one", append=False, artifact_id="a0"),
        chunk("three", append=False, artifact_id="a2"),
        status(COMPLETED),
    )
    gather.settle(task_of(stored(COMPLETED, "one", "two", "three")))
    assert text(gather) == "one\ntwo\nthree"
    read(gather, chunk("more", append=False, artifact_id="a9"))
    gather.settle(task_of(stored(COMPLETED, "one", "two", "three")))
    assert text(gather) == "one\ntwo\nthree\nmore"


def test_settling_says_nothing_where_nothing_is_new() -> None:
    gather = Assembler()
    read(gather, *hello())
    assert gather.settle(task_of(stored(COMPLETED, "hello world"))) == ()


def test_an_agent_that_stores_less_than_it_says_takes_nothing_away() -> None:
    gather = Assembler()
    read(gather, *hello(ids=False))
    gather.settle(task_of(stored(COMPLETED)))
    assert text(gather) == "hello world"
    gather.settle(task_of(stored("TASK_STATE_WORKING")))
    assert gather.ended


@given(st.lists(st.integers(0, 7), max_size=30), st.booleans())
def test_however_frames_come_the_stored_task_is_the_end(order: list[int], ids: bool) -> None:
    frames = [*hello(ids=ids), (8, chunk("!", append=True)) if ids else chunk("!"), task(WORKING, "hello")]
    gather = Assembler()
    told = ""
    for place in order:
        for update in gather.take(frame(frames[place])):
            told += update.text
    gather.settle(task_of(stored(COMPLETED, "hello world")))
    assert text(gather) == "hello world"
    assert gather.ended


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20), st.data())
def test_what_is_told_is_what_is_there_whatever_is_repeated(texts: list[str], data: st.DataObject) -> None:
    frames = [(place, chunk(text, append=place > 0)) for place, text in enumerate(texts)]
    gather = Assembler()
    told = ""
    for place, one in enumerate(frames):
        again = data.draw(st.integers(0, place))
        for repeated in (one, frames[again]):
            told += "".join(update.text for update in gather.take(frame(repeated)))
    assert told == "".join(texts) == text(gather)


def _told(*texts: str) -> list[str]:
    """What updates tell of an agent whose statuses say this, and whose artifact is the last text."""
    *said, answer = texts
    frames = [status(WORKING, text) for text in said]
    updates = read(Assembler(), *frames, chunk(answer, append=False), status(COMPLETED, answer))
    return [update.text for update in updates]


def test_statuses_that_tell_the_answer_from_its_beginning_are_told_once() -> None:
    assert _told("Hel", "Hello", "Hello", "Hello world", "Hello world!") == [
        "Hel",
        "lo",
        "",
        " world",
        "!",
        "",
    ]


def test_statuses_that_tell_the_answer_piece_by_piece_are_told_once() -> None:
    assert _told("Hel", "lo ", "world", "Hello world") == ["Hel", "lo ", "world", "", ""]


def test_what_was_told_before_the_answer_began_does_not_matter() -> None:
    assert _told("looking it up", "Hel", "Hello", "Hello") == ["looking it up", "Hel", "lo", "", ""]
    assert _told("step 1", "step 2", "done") == ["step 1", "step 2", "done", ""]


def test_a_question_that_comes_again_is_told_again() -> None:
    question = status("TASK_STATE_INPUT_REQUIRED", "go on?")
    updates = read(Assembler(), question, status(WORKING), question)
    assert [update.text for update in updates] == ["go on?", "", "go on?"]


def test_a_status_that_is_polled_twice_is_no_news() -> None:
    gather = Assembler("t1")
    assert [update.text for update in gather.settle(task_of(task(WORKING, said="step 1")))] == ["step 1"]
    assert gather.settle(task_of(task(WORKING, said="step 1"))) == ()
    assert [update.text for update in gather.settle(task_of(task(WORKING, said="step 2")))] == ["step 2"]


def with_metadata(told: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    (inner,) = told.values()
    inner["metadata"] = metadata
    return told


def test_however_many_frames_come_each_costs_what_it_holds() -> None:
    pieces = [with_metadata(status(), **{f"k{place}": place}) for place in range(10_000)]
    for place in range(10_000):
        piece = chunk("x" * 200)
        more = {"metadata": {f"k{place}": 1}, "extensions": [f"https://{place}"]}
        piece["artifactUpdate"]["artifact"] |= more
        pieces += [piece, status(said="the same")]
    frames = [frame(one) for one in (task(WORKING), chunk("x", append=False), *pieces)]
    gather, began = Assembler(), process_time()
    for one in frames:
        gather.take(one)
    assert process_time() - began < 2, "compared or copied as a whole, it takes the square of their number"
    found = gather.result()
    assert found is not None and found.task is not None
    (artifact,) = found.artifacts
    assert (
        len(artifact.metadata or {}) == len(artifact.extensions) == len(found.task.metadata or {}) == 10_000
    )


def test_a_result_stays_as_it_was_given() -> None:
    gather = Assembler()
    read(gather, with_metadata(task(WORKING), a=1))
    before = gather.result()
    read(gather, with_metadata(status(), b=2))
    assert before is not None and before.task is not None and before.task.metadata == {"a": 1}
    after = gather.result()
    assert after is not None and after.task is not None and after.task.metadata == {"a": 1, "b": 2}


def test_a_frame_about_another_task_is_refused_each_time_it_comes() -> None:
    gather = Assembler()
    read(gather, ("1", task(WORKING)), ("2", chunk("own", append=False)))
    for other in (task(COMPLETED, "other", task_id="t2"), chunk("other"), status(COMPLETED)):
        (inner,) = other.values()
        inner |= {"id": "t2"} if "id" in inner else {"taskId": "t2"}
        for _ in range(2):
            with pytest.raises(Unreadable, match="another task"):
                read(gather, ("3", other))
    read(gather, ("3", chunk(" still")), status(COMPLETED))
    assert (text(gather), gather.task_id) == ("own still", "t1")


def test_a_task_that_is_named_as_a_resource_is_the_same() -> None:
    gather = Assembler("tasks/t1")
    assert read(gather, task(WORKING)) and gather.task_id == "t1"
