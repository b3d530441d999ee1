"""A task that needs authorization while it runs."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.wire.bindings import Binding
from tests.conformance.wire.conftest import Serve
from tests.conformance.wire.tasks import state_of, stored


def test_ITA_01_the_task_exists_and_says_what_it_needs(v1: Binding) -> None:
    task = v1.send("auth a calendar")
    assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    assert task["status"]["message"]["parts"] == [{"text": "a calendar"}]
    assert task["status"]["message"]["role"] == "ROLE_AGENT"
    assert v1.get(task["id"]).result == task


def test_ITA_02_a_subscription_stays_open_until_the_end(v1: Binding) -> None:
    task = v1.send("auth")
    with v1.subscribe(task["id"]) as frames:
        each = iter(frames)
        assert state_of(next(each)) == "TASK_STATE_AUTH_REQUIRED"
        v1.send("granted", taskId=task["id"], wait=False)
        rest = list(each)
    assert state_of(rest[-1]) == "TASK_STATE_COMPLETED"


def test_ITA_03_messages_are_taken_meanwhile(v1: Binding) -> None:
    task = v1.send("auth")
    done = v1.send("granted", taskId=task["id"])
    assert (done["id"], list(stored(done).values())) == (task["id"], ["granted"])


def test_ITA_04_a_message_alone_authorizes_nothing(speak1: Callable[..., Binding], serve: Serve) -> None:
    spoken = speak1(serve("agents:locked").base)
    task = spoken.send("open")
    for word in ("please", "now", ""):
        again = spoken.send(word, taskId=task["id"])
        assert again["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert "artifacts" not in again
    assert stored(spoken.send("sesame", taskId=task["id"])) == {"answer": "open"}
