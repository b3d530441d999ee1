"""SendStreamingMessage: frames, order, ends; many readers; what an agent that does not stream says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Binding, Rpc, refused
from tests.conformance.wire.conftest import Serve
from tests.conformance.wire.tasks import (
    INTERRUPTED,
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
    text_of,
    update_of,
)


def test_STR_01_the_first_frame_is_the_task(v1: Binding) -> None:
    with v1.stream("chunks 2") as frames:
        seen = frames.all()
    assert [kind_of(frame) for frame in seen].count("task") == 1
    assert kind_of(seen[0]) == "task"
    assert update_of(seen[0])["history"][0]["parts"] == [{"text": "chunks 2"}]


def test_STR_02_a_direct_message_is_the_only_frame(v1: Binding) -> None:
    with v1.stream("message hello") as frames:
        (only,) = frames.all()
    assert kind_of(only) == "message"
    assert text_of(update_of(only)) == "hello"


@pytest.mark.parametrize("word", ["echo", "fail", "reject"])
def test_STR_03_a_stream_closes_at_the_end(v1: Binding, word: str) -> None:
    with v1.stream(word) as frames:
        seen = frames.all()
    assert state_of(seen[-1]) in TERMINAL
    assert kind_of(seen[-1]) == "statusUpdate"


def test_STR_03_a_stream_closes_when_the_task_is_canceled(v1: Binding) -> None:
    with v1.stream("hold 1") as frames:
        seen = read_until(frames, "TASK_STATE_WORKING")
        v1.cancel(update_of(seen[0])["id"])
        rest = frames.all()
    assert [state_of(frame) for frame in rest] == ["TASK_STATE_CANCELED"]


@pytest.mark.parametrize(("word", "state"), [("ask", INTERRUPTED[0]), ("auth", INTERRUPTED[1])])
def test_STR_04_a_stream_closes_when_the_caller_is_needed(v1: Binding, word: str, state: str) -> None:
    with v1.stream(word) as frames:
        assert state_of(frames.all()[-1]) == state


def test_STR_05_frames_come_while_the_task_runs(v1: Binding) -> None:
    # Nothing after `working` can exist before `release`: frames seen until then were not held back.
    with v1.stream("hold 2") as frames:
        early = read_until(frames, "TASK_STATE_WORKING")
        release(v1)
        late = frames.all()
    assert kind_of(early[0]) == "task"
    assert [kind_of(frame) for frame in late] == ["artifactUpdate", "artifactUpdate", "statusUpdate"]


def test_STR_06_a_thousand_chunks_keep_their_order(v1: Binding) -> None:
    with v1.stream("chunks 1000") as frames:
        seen = frames.all()
    texts = [text_of(update_of(one)["artifact"]) for one in seen if kind_of(one) == "artifactUpdate"]
    assert [text.split()[0] for text in texts] == [f"chunk-{place:06d}" for place in range(1000)]
    ids = [frame.id for frame in seen if frame.id is not None]
    assert ids == sorted(set(ids))


def test_STR_07_every_frame_names_task_and_context(v1: Binding) -> None:
    with v1.stream("count 3 0") as frames:
        first, *rest = frames.all()
    task = update_of(first)
    assert {(update_of(one)["taskId"], update_of(one)["contextId"]) for one in rest} == {
        (task["id"], task["contextId"])
    }


@pytest.mark.parametrize("text", ["chunks 7", "count 60 0", "usage", "echo one"])
def test_STR_08_frames_add_up_to_the_stored_artifact(v1: Binding, text: str) -> None:
    with v1.stream(text) as frames:
        seen = frames.all()
    task = v1.get(update_of(seen[0])["id"]).result
    assert built(seen) == stored(task)
    updates = [update_of(one) for one in seen if kind_of(one) == "artifactUpdate"]
    appended = [bool(one.get("append")) for one in updates]
    assert appended[:-1] == [False, *[True] * (len(updates) - 2)][: len(updates) - 1]
    if text in ("count 60 0", "usage"):
        # What was written is told whole at its end: some clients keep nothing else.
        assert not appended[-1]
        assert updates[-1]["artifact"]["parts"] == task["artifacts"][0]["parts"]
    assert [bool(one.get("lastChunk")) for one in updates] == [False] * (len(updates) - 1) + [True]


def test_STR_09_two_readers_get_the_same(v1: Binding) -> None:
    task = held(v1, 20)
    with v1.subscribe(task["id"]) as one, v1.subscribe(task["id"]) as other:
        release(v1)
        first, second = one.all(), other.all()
    assert [(frame.id, frame.data) for frame in first] == [(frame.id, frame.data) for frame in second]
    assert len(first) == 22


def test_STR_10_dropping_one_reader_hurts_nobody(v1: Binding) -> None:
    task = held(v1, 5)
    with v1.subscribe(task["id"]) as kept:
        with v1.subscribe(task["id"]) as dropped:
            next(iter(dropped))
        release(v1)
        seen = kept.all()
    assert state_of(seen[-1]) == "TASK_STATE_COMPLETED"
    assert built(seen) == stored(finished(v1, task["id"]))


def test_STR_11_an_agent_that_does_not_stream_says_so(speak1: Callable[..., Binding], serve: Serve) -> None:
    spoken = speak1(serve("agents:mute").base)
    task = spoken.send("still sends")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    spoken.expect(refused(spoken.stream("hello")), "UNSUPPORTED_OPERATION")
    spoken.expect(refused(spoken.subscribe(task["id"])), "UNSUPPORTED_OPERATION")


@pytest.mark.parametrize("state", TERMINAL)
def test_STR_12_a_stream_to_an_ended_task_is_refused(v1: Binding, state: str) -> None:
    message = v1.message("more", taskId=ended(v1, state)["id"])
    v1.expect(refused(v1.stream(message)), "UNSUPPORTED_OPERATION")


def test_STR_12_a_stream_to_an_unknown_task_is_refused(v1: Binding) -> None:
    v1.expect(refused(v1.stream(v1.message("more", taskId=UNKNOWN))), "TASK_NOT_FOUND")


def test_STR_13_events_are_single_data_lines_of_json(v1: Binding) -> None:
    with v1.stream("chunks 3") as frames:
        headers = frames.response.headers
        text = frames.response.read().decode()
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-store, no-transform"
    assert headers["x-accel-buffering"] == "no"
    blocks = text.strip().split("\n\n")
    assert blocks[0].startswith("retry: ") and int(blocks[0][7:]) >= 1000
    for block in blocks[1:]:
        names = [line.partition(": ")[0] for line in block.split("\n")]
        assert names == ["id", "data"], block
        json.loads(block.partition("data: ")[2])


@pytest.mark.parametrize("text", ["chunks 5", "fail", "reject", "count 5 0", "toolerror"])
def test_STR_14_nothing_follows_a_terminal_state(v1: Binding, text: str) -> None:
    with v1.stream(text) as frames:
        states = [state_of(frame) for frame in frames]
    assert [state in TERMINAL for state in states] == [False] * (len(states) - 1) + [True]


def test_STR_04_an_answer_by_stream_goes_on_where_the_question_was(v1: Binding) -> None:
    asked = v1.send("ask")
    with v1.stream(v1.message("yes", taskId=asked["id"])) as frames:
        seen = frames.all()
    assert kind_of(seen[0]) == "task" and update_of(seen[0])["id"] == asked["id"]
    assert list(built(seen).values()) == ["yes"]
    assert state_of(seen[-1]) == "TASK_STATE_COMPLETED"


def test_STR_10_a_dropped_first_stream_leaves_the_task_running(v1: Binding) -> None:
    task = held(v1, 2)
    assert task["status"]["state"] == "TASK_STATE_WORKING"
    release(v1)
    assert finished(v1, task["id"])["status"]["state"] == "TASK_STATE_COMPLETED"


def test_STR_09_readers_of_two_bindings_see_the_same_events(rpc: Rpc, rest: Binding) -> None:
    task = held(rpc, 4)
    with speaker(rpc).subscribe(task["id"]) as one, rest.subscribe(task["id"]) as other:
        release(rpc)
        assert [(frame.id, frame.result) for frame in one] == [(frame.id, frame.result) for frame in other]


@pytest.mark.parametrize(("milliseconds", "each"), [(0, True), (60_000, False)])
def test_STR_08_written_text_is_gathered_as_set(
    speak1: Callable[..., Binding], serve: Serve, milliseconds: int, each: bool
) -> None:
    spoken = speak1(serve("trunkline.demo:agent", "--set", f"coalesce_milliseconds={milliseconds}").base)
    with spoken.stream("count 60 0") as frames:
        seen = frames.all()
    texts = [text_of(update_of(one)["artifact"]) for one in seen if kind_of(one) == "artifactUpdate"]
    first, *middle, whole = texts
    assert whole == "".join(f"{number} " for number in range(1, 61))
    assert whole.startswith("".join(texts[:-1]))
    # The first piece never waits; the others gather until there are 24 characters.
    assert first == "1 "
    assert all(len(text) >= 24 for text in middle) is not each
    assert len(middle) == 59 if each else len(middle) < 10
