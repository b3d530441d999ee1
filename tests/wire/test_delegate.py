from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.samples import plain
from trunkline import errors as e
from trunkline.client.message import compose
from trunkline.wire import types as t
from trunkline.wire.delegate import read_record, read_submission, record, request_of, submission_of

S = t.TaskState


def asked(*parts: t.Part, metadata: Any = None, **more: Any) -> t.SendRequest:
    return t.SendRequest(t.Message("m-1", role=t.Role.USER, parts=parts, metadata=metadata, **more))


@pytest.mark.parametrize(
    ("parts", "given"),
    [
        ((t.Part(text="do it"),), {"task": "do it"}),
        ((t.Part(text="do"), t.Part(text="it")), {"task": "do\nit"}),
        ((t.Part(data={"a": 1}),), {"a": 1}),
        ((t.Part(data={"a": 1}), t.Part(text="x")), {"a": 1, "task": "x"}),
        ((t.Part(data={"task": "mine"}), t.Part(text="x")), {"task": "mine"}),
        ((t.Part(data=[1]),), {"data": [1]}),
        ((t.Part(data=None),), {"data": None}),
        ((), {}),
    ],
)
def test_a_send_is_a_submission(parts: tuple[t.Part, ...], given: Any) -> None:
    body = submission_of(asked(*parts), "coder")
    assert plain(body) == {"agent_id": "coder", "correlation_id": "m-1", "input": given}
    assert request_of(read_submission(body), "s").message.message_id == "m-1"


def test_the_skill_is_whom_it_is_for() -> None:
    part = t.Part(text="x")
    assert plain(submission_of(asked(part, metadata={"skill": "s"}), "coder"))["agent_id"] == "s"
    assert plain(submission_of(asked(part, metadata={"skill": 7}), "coder"))["agent_id"] == "coder"
    ours = compose("x", {"skill": "s"})
    assert (
        plain(submission_of(ours, "coder"))["agent_id"] == plain(submission_of(ours, ""))["agent_id"] == "s"
    )
    hint = asked(part, metadata={"skillHint": "chat"})
    assert plain(submission_of(hint, "coder"))["agent_id"] == "coder"
    assert plain(submission_of(hint, ""))["agent_id"] == "chat"
    with pytest.raises(e.UnsupportedOperation, match="name the skill"):
        submission_of(asked(part), "")


def test_what_has_no_place_in_a_submission() -> None:
    for request in (
        asked(task_id="t"),
        asked(context_id="c"),
        asked(t.Part(url="https://x")),
        asked(t.Part(raw="")),
    ):
        with pytest.raises(e.UnsupportedOperation, match="task API"):
            submission_of(request, "coder")
    with pytest.raises(e.PushNotSupported):
        submission_of(t.SendRequest(asked().message, push=t.PushConfig("https://x")), "coder")


@pytest.mark.parametrize(
    ("found", "state", "parts", "said"),
    [
        ({"status": "submitted"}, S.SUBMITTED, (), ""),
        ({"status": "working", "output": None}, S.WORKING, (), ""),
        ({"status": "input-required"}, S.INPUT_REQUIRED, (), ""),
        ({"status": "input-required", "output": {"prompt": "which?"}}, S.INPUT_REQUIRED, (), "which?"),
        ({"status": "input-required", "output": {"prompt": ["a"]}}, S.INPUT_REQUIRED, (), '["a"]'),
        (
            {"status": "input-required", "output": {"prompt": "which?", "of": 2}},
            S.INPUT_REQUIRED,
            (t.Part(data={"of": 2}),),
            "which?",
        ),
        ({"status": "input-required", "output": "which?"}, S.INPUT_REQUIRED, (t.Part(text="which?"),), ""),
        ({"status": "failed", "error": "no"}, S.FAILED, (), "no"),
        ({"status": "failed", "error": {"code": 1}}, S.FAILED, (), '{"code":1}'),
        (
            {"status": "completed", "output": {"text": "x", "patch": "p", "delegate_status": "completed"}},
            S.COMPLETED,
            (t.Part(text="x"), t.Part(data={"patch": "p"})),
            "",
        ),
        ({"status": "completed", "output": {"text": 7}}, S.COMPLETED, (t.Part(data={"text": 7}),), ""),
        ({"status": "completed", "output": {"delegate_status": "completed"}}, S.COMPLETED, (), ""),
        ({"status": "completed", "output": "x"}, S.COMPLETED, (t.Part(text="x"),), ""),
        ({"status": "completed", "output": [1]}, S.COMPLETED, (t.Part(data=[1]),), ""),
    ],
)
def test_records_are_tasks(found: Any, state: S, parts: tuple[t.Part, ...], said: str) -> None:
    task = read_record(json.dumps({"id": "t", **found}).encode())
    assert (task.id, task.status.state) == ("t", state)
    assert tuple(part for artifact in task.artifacts for part in artifact.parts) == parts
    message = task.status.message
    assert "".join(part.text or "" for part in message.parts) == said if message else said == ""


def test_a_record_of_ours_is_read() -> None:
    task = t.Task("t", "c", t.TaskStatus(S.COMPLETED), (t.Artifact("a", parts=(t.Part(text="x"),)),))
    read = read_record(record(task))
    assert (read.id, read.status.state, read.artifacts[0].parts) == ("t", S.COMPLETED, (t.Part(text="x"),))
    assert read_record(b'{"id":7,"status":"working"}').id == "7"
    question = t.Message("q", parts=(t.Part(text="which?"),))
    asks = read_record(record(t.Task("t", "c", t.TaskStatus(S.AUTH_REQUIRED, question))))
    assert asks.status.state is S.INPUT_REQUIRED
    assert asks.status.message is not None
    assert asks.status.message.parts == question.parts
    assert plain(record(t.Task("t", "c", t.TaskStatus(S.INPUT_REQUIRED)))) == {
        "id": "t",
        "status": "input-required",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"id":"t"}',
        b'{"id":"t","status":"asleep"}',
        b'{"id":"","status":"working"}',
        b"[" * 200,
    ],
)
def test_what_is_no_record(body: bytes) -> None:
    with pytest.raises(e.Unreadable):
        read_record(body)
