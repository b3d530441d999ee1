from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.wire import samples
from tests.wire.samples import ANSWER, DONE, ODD, ODD_TASK, TASK, members, plain
from trunkline.wire.types import ArtifactUpdate, Message, Part, StatusUpdate, Task, TaskPage
from trunkline.wire.v03 import V03_PROTO as v03proto

FLAT = {"messageId": "m2", "role": "ROLE_AGENT", "content": [{"text": "x", "p": 1}], "extra": 2}


def test_task() -> None:
    assert plain(v03proto.task(TASK)) == {
        "id": "t1",
        "contextId": "c1",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-31T12:00:00.000Z"},
        "artifacts": [{"artifactId": "a1", "name": "answer", "parts": [{"text": "done"}]}],
        "history": [
            {
                "messageId": "m1",
                "contextId": "c1",
                "taskId": "t1",
                "role": "ROLE_USER",
                "content": [{"text": "hello"}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part(raw="aGk=", filename="n"), {"file": {"fileWithBytes": "aGk=", "name": "n"}}),
        (Part(url="u", media_type="a/b"), {"file": {"fileWithUri": "u", "mimeType": "a/b"}}),
        (Part(data={"a": 1}), {"data": {"data": {"a": 1}}}),
        (Part(data=1, media_type="a/b"), {"data": {"data": {"value": 1}}, "metadata": {"mimeType": "a/b"}}),
    ],
)
def test_parts(part: Part, expected: dict[str, Any]) -> None:
    assert plain(v03proto.message(Message("m", parts=(part,))))["content"] == [expected]


def test_cancelled_has_two_l_and_unknown_members_are_flattened() -> None:
    body = plain(v03proto.task(ODD_TASK))
    assert body["status"] == {"state": "TASK_STATE_CANCELLED", "message": FLAT}
    assert body["history"] == [FLAT]
    assert plain(v03proto.message(ODD)) == FLAT


def test_answers_and_frames_are_wrapped() -> None:
    assert plain(v03proto.task_frame(b"{}")) == {"task": {}}
    assert plain(v03proto.message_frame(ODD)) == {"message": FLAT}
    update = plain(v03proto.status_frame(StatusUpdate("t1", "c1", DONE), final=False))
    assert update["statusUpdate"]["final"] is False
    chunk = plain(v03proto.artifact_frame(ArtifactUpdate("t1", "c1", ANSWER, append=True)))
    assert chunk["artifactUpdate"]["append"] is True
    assert chunk["artifactUpdate"]["artifact"] == plain(v03proto.task(TASK))["artifacts"][0]


def test_page() -> None:
    body = plain(v03proto.page(TaskPage((TASK,), "n", 1, 2)))
    assert body == {
        "tasks": [plain(v03proto.task(TASK))],
        "nextPageToken": "n",
        "pageSize": 1,
        "totalSize": 2,
    }


@given(samples.tasks())
def test_no_kind(task: Task) -> None:
    assert "kind" not in members(plain(v03proto.task(task)))
