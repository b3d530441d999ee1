from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.webhook import Notification
from trunkline.webhook.notification import read_notification
from trunkline.wire import push, v1
from trunkline.wire import types as t

STAMP = "2026-04-15T20:00:00.000Z"
PARTS = [{"kind": "text", "text": "## Results"}, {"kind": "data", "data": {"usage": 1}}]
ARTIFACT = {"artifactId": "a1", "parts": PARTS, "append": False, "lastChunk": True}
STATUS = {"state": "completed", "timestamp": STAMP}
EVENT = {"taskId": "t1", "contextId": "c1"}
TASK = {"id": "t1", "contextId": "c1"}
ENUM = {"state": "TASK_STATE_COMPLETED", "timestamp": STAMP}
ENDED = t.Task(
    "t1",
    "c1",
    t.TaskStatus(t.TaskState.COMPLETED, timestamp=STAMP),
    (t.Artifact("a1", parts=(t.Part(text="## Results"), t.Part(data={"usage": 1}))),),
)
# Every body that a terminal webhook is known to have.
BODIES: dict[str, Any] = {
    "the seed's status-update": {"kind": "status-update", **EVENT, "status": STATUS, "final": True, "artifact": ARTIFACT},
    "with many artifacts": {"kind": "status-update", **EVENT, "status": STATUS, "final": True, "artifacts": [ARTIFACT]},
    "with one and many": {"kind": "status-update", **EVENT, "status": STATUS, "artifact": ARTIFACT, "artifacts": [ARTIFACT]},
    "0.3 task": {"kind": "task", **TASK, "status": STATUS, "artifacts": [ARTIFACT]},
    "bare task": {**TASK, "status": STATUS, "artifacts": [ARTIFACT]},
    "enum states": {**TASK, "status": ENUM, "artifacts": [ARTIFACT]},
    "1.0 task": {"task": {**TASK, "status": ENUM, "artifacts": [ARTIFACT]}},
    "1.0 statusUpdate": {"statusUpdate": {**EVENT, "status": ENUM, "artifact": ARTIFACT}},
    "snake case": {"task": {"id": "t1", "context_id": "c1", "status": ENUM, "artifacts": [{"artifact_id": "a1", "parts": PARTS}]}},
    "ours, 1.0": json.loads(push.notification_body(ENDED, "1.0", whole=False)),
    "ours, 0.3": json.loads(push.notification_body(ENDED, "0.3", whole=False)),
    "ours, 0.3, whole": json.loads(push.notification_body(ENDED, "0.3", whole=True)),
}  # fmt: skip


def read(body: Any, webhook_id: str = "") -> Notification:
    return read_notification(json.dumps(body).encode(), webhook_id)


@pytest.mark.parametrize("shape", BODIES)
def test_every_terminal_body_says_the_same(shape: str) -> None:
    heard = read(BODIES[shape], "evt-1")
    assert (heard.id, heard.task_id, heard.context_id) == ("evt-1", "t1", "c1")
    assert (heard.state, heard.final, heard.repeated) == (t.TaskState.COMPLETED, True, False)
    assert heard.text == "## Results"
    assert [part.data for part in heard.artifacts[0].parts[1:]] == [{"usage": 1}]
    assert len(heard.artifacts) == 1
    assert (heard.task is not None) is isinstance(heard.update, t.Task)


def test_a_question() -> None:
    said = {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "Which"}, {"text": "one?"}]}
    heard = read(
        {
            "kind": "status-update",
            **EVENT,
            "status": {"state": "input-required", "message": said},
            "final": True,
        }
    )
    assert (heard.state, heard.final, heard.text) == (t.TaskState.INPUT_REQUIRED, False, "Which\none?")
    assert heard.message is not None
    assert heard.task is None


def test_a_piece_of_an_artifact() -> None:
    heard = read({"artifactUpdate": {**EVENT, "artifact": ARTIFACT, "append": True}})
    assert (heard.task_id, heard.state, heard.final, heard.text) == ("t1", None, False, "## Results")
    assert isinstance(heard.update, t.ArtifactUpdate)
    assert heard.update.append
    assert heard.message is None


def test_a_bare_message() -> None:
    message = t.Message("m", "c1", "t1", t.Role.AGENT, (t.Part(text="hi"),))
    heard = read_notification(v1.message_frame(message), "")
    assert (heard.task_id, heard.context_id, heard.state, heard.text) == ("t1", "c1", None, "hi")
    assert heard.message == message


def test_nothing_said() -> None:
    assert read({**EVENT, "status": "working"}).text == ""


def test_an_id_of_its_own_is_made_only_of_a_body_with_a_time() -> None:
    timed = {**EVENT, "status": STATUS}
    assert read(timed).id == read(timed).id != ""
    assert read({**EVENT, "status": {**STATUS, "timestamp": "2026-04-15T20:00:01Z"}}).id != read(timed).id
    assert read({**EVENT, "status": {"state": "working"}}).id == ""
    assert read({**EVENT, "artifact": ARTIFACT}).id == ""
    assert read(timed, "evt-1").id == "evt-1"
