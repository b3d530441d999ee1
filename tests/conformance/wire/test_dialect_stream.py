"""Streams in version 0.3: how text closes, what is final, what a late reader gets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.wire.bindings import Alias03, Binding, Proto03, Rpc03, refused
from tests.conformance.wire.tasks import done_in_03, held, release, state_in_03
from tests.harness import Frame


def _bodies(frames: list[Frame]) -> list[Any]:
    """Frames of any 0.3 dialect as (kind, body)."""
    seen: list[Any] = []
    for frame in frames:
        body = frame.result
        if "kind" not in body:
            ((name, body),) = body.items()
            body = {**body, "kind": re.sub("U", "-u", name)}
        seen.append(body)
    return seen


def test_written_text_closes_with_the_whole(v03: Binding) -> None:
    with v03.stream("count 30 0") as frames:
        task, working, *deltas, whole, last = _bodies(frames.all())
    assert [task["kind"], working["kind"], whole["kind"], last["kind"]] == [
        "task",
        "status-update",
        "artifact-update",
        "status-update",
    ]
    text = "".join(f"{number} " for number in range(1, 31))
    assert whole["artifact"]["parts"][0]["text"] == text
    assert (bool(whole.get("append")), whole["lastChunk"]) == (False, True)
    assert (working["final"], last["final"], last["status"]["state"]) == (
        False,
        True,
        state_in_03(v03, "completed"),
    )
    written = "".join(one["artifact"]["parts"][0]["text"] for one in deltas)
    assert deltas and text.startswith(written)


def test_emitted_artifacts_are_sent_once_as_they_are(v03: Binding) -> None:
    with v03.stream("chunks 4") as frames:
        chunks = [one for one in _bodies(frames.all()) if one["kind"] == "artifact-update"]
    assert [one["artifact"]["parts"][0]["text"].split()[0] for one in chunks] == [
        f"chunk-{place:06d}" for place in range(4)
    ]
    assert [bool(one.get("append")) for one in chunks] == [False, True, True, True]
    assert [bool(one.get("lastChunk")) for one in chunks] == [False, False, False, True]


@pytest.mark.parametrize(
    ("word", "state"), [("ask", "input-required"), ("auth", "auth-required"), ("fail", "failed")]
)
def test_the_last_status_is_final(v03: Binding, word: str, state: str) -> None:
    with v03.stream(word) as frames:
        updates = [one for one in _bodies(frames.all()) if one["kind"] == "status-update"]
    assert [one["final"] for one in updates] == [False] * (len(updates) - 1) + [True]
    assert updates[-1]["status"]["state"] == state_in_03(v03, state)


def test_subscribe_to_a_finished_task_replays_the_end(v03: Binding) -> None:
    task = done_in_03(v03, "chunks 3")
    with v03.subscribe(task["id"]) as frames:
        seen = frames.all()
    snapshot, whole, last = _bodies(seen)
    assert snapshot["id"] == task["id"] and snapshot["status"]["state"] == state_in_03(v03, "completed")
    assert whole["lastChunk"] and len(whole["artifact"]["parts"]) == 3
    assert last["final"] and last["status"]["state"] == state_in_03(v03, "completed")
    # Made for this reader: nobody can resume after them.
    assert [frame.id for frame in seen[1:]] == [None, None] and seen[0].id is not None


def test_subscribe_to_a_running_task(v03: Binding) -> None:
    task = held(v03)
    with v03.subscribe(task["id"]) as frames:
        each = iter(frames)
        (snapshot,) = _bodies([next(each)])
        release(v03)
        rest = _bodies(list(each))
    assert snapshot["id"] == task["id"]
    assert [one["kind"] for one in rest] == ["artifact-update"] * 3 + ["status-update"]


def test_resume_has_no_snapshot(v03: Binding) -> None:
    with v03.stream("chunks 5") as frames:
        seen = frames.all()
    task_id = _bodies(seen[:1])[0]["id"]
    for place in (0, 3, len(seen) - 1):
        with v03.subscribe(task_id, last=str(seen[place].id)) as frames:
            assert [(one.id, one.result) for one in frames] == [
                (one.id, one.result) for one in seen[place + 1 :]
            ]
    with v03.subscribe(task_id, last="0") as frames:
        assert [one.id for one in frames] == [one.id for one in seen]
    for bad in (str((seen[-1].id or 0) + 1), "-1", "x", str(2**63)):
        answer = refused(v03.subscribe(task_id, last=bad))
        assert (answer.reason, answer.fields) == ("INVALID_PARAMS", ["Last-Event-ID"])


def test_old_stream_names_are_the_same(rpc03: Rpc03) -> None:
    def kinds(method: str, params: Any) -> list[str]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with rpc03.opened("POST", rpc03.url, body, {}) as frames:
            return [one["kind"] for one in _bodies(frames.all())]

    first, second = ({"message": rpc03.message("count 3 0")} for _ in range(2))
    assert kinds("message/sendStream", first) == kinds("message/stream", second)
    task_id = rpc03.send("echo")["id"]
    assert kinds("tasks/subscribe", {"id": task_id}) == kinds("tasks/resubscribe", {"id": task_id})


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_subscribe_by_both_verbs(proto03: Proto03, alias03: Alias03, verb: str) -> None:
    for spoken in (proto03, alias03):
        task = done_in_03(spoken, "echo")
        with spoken.subscribe(task["id"], verb=verb) as frames:
            assert len(frames.all()) == 3
