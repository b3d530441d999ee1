from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from tests.wire.samples import ANSWER, DONE, HELLO, ODD, ODD_TASK, TASK, members, plain
from trunkline.wire import v1
from trunkline.wire.types import (
    ArtifactUpdate,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)

FLAT = {"messageId": "m2", "role": "ROLE_AGENT", "parts": [{"text": "x", "p": 1}], "extra": 2}


def test_task() -> None:
    assert plain(v1.task(TASK)) == {
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
                "parts": [{"text": "hello"}],
            }
        ],
    }


def test_HIS_01_LST_04_empty_members_are_left_out() -> None:
    body = plain(v1.task(Task("t", "c", DONE)))
    assert set(body) == {"id", "contextId", "status"}


def test_unknown_members_are_flattened_and_override_nothing() -> None:
    assert plain(v1.message(ODD)) == FLAT
    assert plain(v1.task(ODD_TASK)) == {
        "id": "t2",
        "contextId": "c2",
        "status": {"state": "TASK_STATE_CANCELED", "message": FLAT},
        "artifacts": [{"artifactId": "a2", "parts": [{"data": [1], "q": 3}]}],
        "history": [FLAT],
    }


def test_a_member_of_metadata_named_extra_stays_there() -> None:
    task = Task("t", "c", DONE, metadata={"extra": {"a": 1}})
    assert plain(v1.task(task))["metadata"] == {"extra": {"a": 1}}
    bare = Message("m", metadata={"extra": 1})
    assert plain(v1.message(bare)) == {"messageId": "m", "metadata": {"extra": 1}}


def test_SND_01_answers() -> None:
    assert plain(v1.task_frame(v1.task(TASK))) == {"task": plain(v1.task(TASK))}
    assert plain(v1.message_frame(HELLO)) == {"message": plain(v1.message(HELLO))}


def test_frames() -> None:
    assert plain(v1.task_frame(b"{}")) == {"task": {}}
    assert plain(v1.message_frame(ODD)) == {"message": FLAT}
    update = plain(v1.status_frame(StatusUpdate("t1", "c1", DONE), final=True))
    assert update == {
        "statusUpdate": {"taskId": "t1", "contextId": "c1", "status": plain(v1.task(TASK))["status"]}
    }
    odd = StatusUpdate("t1", "c1", TaskStatus(TaskState.WORKING, ODD))
    assert plain(v1.status_frame(odd, final=False))["statusUpdate"]["status"]["message"] == FLAT
    chunk = plain(v1.artifact_frame(ArtifactUpdate("t1", "c1", ANSWER, append=True, last_chunk=True)))
    assert chunk["artifactUpdate"]["append"] is True
    assert chunk["artifactUpdate"]["lastChunk"] is True
    odd_chunk = plain(v1.artifact_frame(ArtifactUpdate("t2", "c2", ODD_TASK.artifacts[0])))
    assert odd_chunk["artifactUpdate"]["artifact"]["parts"] == [{"data": [1], "q": 3}]


def test_LST_01_LST_02_all_four_members_of_a_page() -> None:
    assert plain(v1.page(TaskPage((), "", 50, 0))) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }
    odd = plain(v1.page(TaskPage((TASK, ODD_TASK), "n", 2, 9)))
    assert odd["tasks"] == [plain(v1.task(TASK)), plain(v1.task(ODD_TASK))]
    assert odd["nextPageToken"] == "n"


def test_DAT_06_values_of_data_parts() -> None:
    for value in (None, 1, 10**30, 1.5, "x", [], {}, {"kind": "x"}):
        assert plain(v1.message(Message("m", parts=(Part(data=value),))))["parts"] == [{"data": value}]


@given(samples.tasks(), st.booleans())
def test_DAT_01_DAT_07_no_kind_no_final_no_snake_case(task: Task, final: bool) -> None:
    update = StatusUpdate(task.id, task.context_id, task.status)
    chunks = [v1.artifact_frame(ArtifactUpdate(task.id, "c", artifact)) for artifact in task.artifacts]
    for body in (v1.task(task), v1.status_frame(update, final=final), *chunks):
        names = members(plain(body))
        assert not names & {"kind", "final", "type", "file", "content"}
        assert not [name for name in names if "_" in name]
