"""AG-44 to AG-55: streams, over real HTTP, in both versions."""

from __future__ import annotations

import re
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.agent.subject import FIRST, SECOND
from tests.conformance.agent.talk import (
    TERMINAL,
    Talk,
    assembled,
    bodies,
    deltas,
    kinds,
    member_names,
    opened,
    said,
    states,
    text_in,
)
from tests.harness import Agent, Frame, message, params, plain_state, text_of

NOBODY = "0198f0c0-0000-7000-8000-000000000000"
KINDS = {"task", "status-update", "artifact-update", "message"}
WHOLE = FIRST + SECOND


@pytest.fixture
def key() -> str:
    """A gate of this test alone."""
    return str(uuid.uuid4())


def streamed(talk: Talk, text: str, **more: Any) -> list[Frame]:
    with talk.stream(text, **more) as frames:
        return frames.all()


def half_way(talk: Talk, key: str) -> str:
    """A task that has written its first half and waits at its gate."""
    task_id = talk.send(f"halves {key}", wait=False)["id"]
    with talk.resubscribe(task_id) as frames:
        seen: list[Frame] = []
        for frame in frames:
            seen.append(frame)
            if assembled(seen) == FIRST:
                return task_id
    raise AssertionError(seen)


@pytest.mark.parametrize("text", ["echo hi", "count 3 1", "sleep 0.01", "fail", "ask", "chunks 2"])
def test_AG_44_first_frame_is_the_task(talk: Talk, text: str) -> None:
    kind, task = opened(streamed(talk, text)[0])
    assert kind == "task"
    assert task["id"]
    assert task["contextId"]
    assert plain_state(task) in ("submitted", "working")


@pytest.mark.parametrize(
    "text", ["count 30 1", "usage", "file", "data", "ask Well?", "reject", "message hello"]
)
def test_AG_45_every_frame_is_typed_camel_case_and_enveloped(talk: Talk, text: str) -> None:
    for request_id in ("a request", 42):
        with talk.agent.stream(
            talk.methods["stream"], params(text, talk.version), version=talk.version, request_id=request_id
        ) as frames:
            found = frames.all()
        assert found
        assert {(frame.data["jsonrpc"], frame.data["id"]) for frame in found} == {("2.0", request_id)}
        assert set(kinds(found)) <= KINDS
        names = {name for frame in found for name in member_names(frame.data)}
        assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name)] == []
        if talk.version == "1.0":
            assert "kind" not in names
        else:
            parts = [part for body in bodies(found, "artifact-update") for part in body["artifact"]["parts"]]
            assert all(part["kind"] in ("text", "file", "data") for part in parts)


@pytest.mark.parametrize("text", ["count 100 1", "chunks 20"])
def test_AG_46_deltas_only(talk: Talk, text: str) -> None:
    found = streamed(talk, text)
    final = text_of(talk.get(bodies(found, "task")[0]["id"]))
    pieces = deltas(found)
    assert len(pieces) > 2
    assert "".join(pieces) == final
    assert assembled(found) == final
    # A piece that repeated what was sent before it would begin with the beginning.
    assert not any(piece.startswith(pieces[0]) for piece in pieces[1:])


def test_AG_47_two_closing_events(talk: Talk) -> None:
    with talk.stream("usage") as frames:
        found = []
        for frame in frames:
            found.append(frame)
        ended_at = time.monotonic()
    assert ended_at - found[-1].at < 1.0
    (kind, update), (last_kind, last) = opened(found[-2]), opened(found[-1])
    assert (kind, last_kind) == ("artifact-update", "status-update")
    assert update["lastChunk"] is True
    assert plain_state(last) == "completed"
    whole = talk.get(bodies(found, "task")[0]["id"])["artifacts"]
    assert len(whole) == 1
    assert not update.get("append")
    assert update["artifact"] == whole[0]
    if talk.version == "0.3":
        assert last["final"] is True
    assert text_in(whole[0]) == "used some tokens"
    assert [part for part in update["artifact"]["parts"] if "data" in part] == [
        part for part in whole[0]["parts"] if "data" in part
    ]


def test_AG_47_closing_of_a_written_answer(talk: Talk) -> None:
    found = streamed(talk, "count 20 1")
    update = opened(found[-2])[1]
    final = " ".join(str(number) for number in range(1, 21)) + " "
    assert update["lastChunk"] is True
    assert assembled(found) == final
    assert [body.get("lastChunk", False) for body in bodies(found, "artifact-update")].count(True) == 1
    assert (update.get("append", False), text_in(update["artifact"])) == (False, final)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("count 5 1", "completed"),
        ("fail", "failed"),
        ("reject", "rejected"),
        ("ask", "input-required"),
        ("auth", "auth-required"),
        ("sleep 30", "canceled"),
    ],
)
def test_AG_48_final_flag(talk: Talk, text: str, state: str) -> None:
    with talk.stream(text) as frames:
        found: list[Frame] = []
        for frame in frames:
            found.append(frame)
            if state == "canceled" and len(found) == 1:
                talk.result("cancel", {"id": opened(frame)[1]["id"]})
    updates = bodies(found, "status-update")
    assert plain_state(updates[-1]) == state
    assert kinds(found)[-1] == "status-update"
    if talk.version == "0.3":
        assert [update["final"] for update in updates] == [False] * (len(updates) - 1) + [True]
    else:
        assert all("final" not in update for update in updates), "1.0 has no such member"
        assert [one for one in states(found) if one in (*TERMINAL, state)] == [state]


def test_AG_49_keepalive(lively: Talk, key: str) -> None:
    with lively.stream(f"hang {key}") as frames:
        lines = frames.response.iter_lines()
        began = time.monotonic()
        comments: list[float] = []
        while len(comments) < 3:
            if next(lines).startswith(":"):
                comments.append(time.monotonic())
        # Three signs of life in the time that the default settings would give none.
        assert comments[-1] - began < 15
        lively.send(f"open {key}")
        assert any("completed" in line.lower() for line in lines)


@pytest.mark.parametrize("how", ["stream", "resubscribe"])
def test_AG_50_disconnect_does_not_kill_the_work(subject: Talk, key: str, how: str) -> None:
    with subject.stream(f"halves {key}") as frames:
        task_id = opened(next(iter(frames)))[1]["id"]
        if how == "resubscribe":
            with subject.resubscribe(task_id) as others:
                next(iter(others))
    assert plain_state(subject.get(task_id)) == "working"
    subject.send(f"open {key}")
    assert text_of(subject.until(task_id, *TERMINAL)) == WHOLE
    assert plain_state(subject.get(task_id)) == "completed"


def test_AG_51_resubscribe_mid_run(subject: Talk, key: str) -> None:
    task_id = half_way(subject, key)
    with subject.resubscribe(task_id) as frames:
        found: list[Frame] = []
        for frame in frames:
            if not found:
                subject.send(f"open {key}")
            found.append(frame)
    kind, snapshot = opened(found[0])
    assert (kind, text_of(snapshot)) == ("task", FIRST)
    suffixes = "".join(
        text_in(body["artifact"]) for body in bodies(found, "artifact-update") if body.get("append")
    )
    assert FIRST + suffixes == WHOLE
    assert assembled(found) == WHOLE == text_of(subject.get(task_id))
    assert states(found) == ["completed"]


@pytest.mark.parametrize("seen_at", [0, 1, 2, 3, 5])
def test_AG_51_resume_by_last_event_id(talk: Talk, seen_at: int) -> None:
    found = streamed(talk, "chunks 5")
    seen = found[seen_at]
    with talk.resubscribe(bodies(found, "task")[0]["id"], Last_Event_ID=str(seen.id)) as frames:
        rest = frames.all()
    assert [(frame.id, frame.result) for frame in rest] == [
        (frame.id, frame.result) for frame in found[seen_at + 1 :]
    ]


def test_AG_51_resume_while_it_runs(subject: Talk, key: str) -> None:
    with subject.stream(f"halves {key}") as frames:
        first = next(iter(frames))
    task_id = opened(first)[1]["id"]
    with subject.resubscribe(task_id, Last_Event_ID=str(first.id)) as frames:
        rest: list[Frame] = []
        for frame in frames:
            rest.append(frame)
            if assembled(rest) == FIRST:
                subject.send(f"open {key}")
    assert assembled(rest) == WHOLE
    assert "task" not in kinds(rest), "no snapshot for who says what it has"
    assert [frame.id for frame in rest] == sorted({frame.id for frame in rest})


@pytest.mark.parametrize("text", ["count 5 1", "chunks 3", "fail over", "usage"])
def test_AG_52_resubscribe_when_terminal(talk: Talk, text: str) -> None:
    task = talk.send(text)
    if talk.version == "1.0":
        assert talk.error("resubscribe", {"id": task["id"]})["code"] == -32004
        return
    with talk.resubscribe(task["id"]) as frames:
        found = frames.all()
    assert opened(found[0])[1] == task
    artifacts = bodies(found, "artifact-update")
    assert [body["artifact"] for body in artifacts] == task.get("artifacts", [])
    assert all((body["append"], body["lastChunk"]) == (False, True) for body in artifacts)
    last = opened(found[-1])[1]
    assert (last["status"], last["final"]) == (task["status"], True)
    assert states(found) == [plain_state(task)]


def test_AG_52_resubscribe_when_terminal_by_the_rest_alias(demo: Agent) -> None:
    task = demo.send("count 5 1", version="0.3")
    with demo.open("GET", f"/tasks/{task['id']}:subscribe") as frames:
        found = frames.all()
    assert kinds(found) == ["task", "artifact-update", "status-update"]
    assert found[0].data == task


def test_AG_52_resubscribe_to_an_unknown_task(talk: Talk) -> None:
    assert talk.error("resubscribe", {"id": NOBODY})["code"] == -32001


def test_AG_53_many_subscribers(subject: Talk, key: str) -> None:
    task_id = half_way(subject, key)
    attached = threading.Barrier(6)

    def follow() -> list[Frame]:
        reader = Agent(subject.agent.base)
        found: list[Frame] = []
        with Talk(reader, subject.version).resubscribe(task_id) as frames:
            for frame in frames:
                if not found:
                    attached.wait(60)
                found.append(frame)
        reader.close()
        return found

    with ThreadPoolExecutor(5) as pool:
        following = [pool.submit(follow) for _ in range(5)]
        attached.wait(60)
        subject.send(f"open {key}")
        everybody = [one.result(10) for one in following]
    for found in everybody:
        assert kinds(found)[-2:] == ["artifact-update", "status-update"]
        assert opened(found[-2])[1]["lastChunk"] is True
        assert states(found) == ["completed"]
        assert assembled(found) == WHOLE
        assert [(frame.id, frame.result) for frame in found] == [
            (frame.id, frame.result) for frame in everybody[0]
        ]


def test_AG_54_tool_status_is_persisted(subject: Talk, key: str) -> None:
    with subject.stream(f"tool {key} `lookup`") as frames:
        for frame in frames:
            if opened(frame)[0] == "status-update" and said(opened(frame)[1]):
                task_id = opened(frame)[1]["taskId"]
                break
    with subject.resubscribe(task_id) as frames:
        found: list[Frame] = []
        for frame in frames:
            if not found:
                assert said(opened(frame)[1]) == "calling the tool `lookup`"
                assert said(subject.get(task_id)) == "calling the tool `lookup`"
                subject.send(f"open {key}")
            found.append(frame)
    last = bodies(found, "status-update")[-1]
    assert plain_state(last) == "completed"
    assert "message" not in last["status"]
    assert "message" not in subject.get(task_id)["status"]


def test_AG_55_no_redundant_frames(talk: Talk) -> None:
    found = streamed(talk, "chunks 10")
    assert kinds(found) == ["task", "status-update", *["artifact-update"] * 10, "status-update"]
    assert states(found) == ["working", "completed"]
    assert deltas(found) == [f"chunk-{place:06d} lorem ipsum dolor sit amet" for place in range(10)]
    ids = [frame.id for frame in found]
    assert ids == sorted({one for one in ids if one is not None})


def test_AG_55_a_written_answer_has_no_redundant_frames_either(talk: Talk) -> None:
    found = streamed(talk, "count 40 1")
    assert states(found) == ["working", "completed"]
    assert len(bodies(found, "artifact-update")) < 40, "deltas are gathered"
    empty = [body for body in bodies(found, "artifact-update")[:-1] if not text_in(body["artifact"])]
    assert empty == []


def test_a_stream_of_a_message_is_one_frame(talk: Talk) -> None:
    found = streamed(talk, "message hello")
    assert kinds(found) == ["message"]
    assert text_in(opened(found[0])[1]) == "hello"


def test_AG_45_alias_frames_are_typed_too(demo: Agent) -> None:
    with demo.open("POST", "/message:stream", body={"message": message("count 3 1", "0.3")}) as frames:
        found = frames.all()
    assert all(frame.data["kind"] in KINDS for frame in found)
    assert bodies(found, "status-update")[-1]["final"] is True
