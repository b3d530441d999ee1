"""GetTask, history and CancelTask."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Binding
from tests.conformance.wire.tasks import TERMINAL, ended, held, speaker, state_of


def test_GET_01_get_gives_what_send_gave(v1: Binding) -> None:
    task = v1.send("chunks 3")
    assert v1.get(task["id"]).result == task


@pytest.mark.parametrize("task_id", [UNKNOWN, "no-such-task", "ü ü", "x" * 200, "%00", "a.b"])
def test_GET_02_an_unknown_task_is_not_found(v1: Binding, task_id: str) -> None:
    v1.expect(v1.get(task_id), "TASK_NOT_FOUND")


def test_GET_03_get_twice_is_the_same_to_the_byte(v1: Binding) -> None:
    task = v1.send("echo again")
    assert v1.get(task["id"]).body == v1.get(task["id"]).body


@pytest.fixture
def talk(v1: Binding) -> Any:
    """A task with three messages in its history."""
    asked = v1.send("ask")
    return v1.send("an answer", taskId=asked["id"])


def _texts(task: Any) -> list[str]:
    return [one["parts"][0]["text"] for one in task.get("history", [])]


def test_HIS_01_length_0_leaves_history_out(v1: Binding, talk: Any) -> None:
    assert "history" not in v1.get(talk["id"], historyLength=0).result


@pytest.mark.parametrize("length", [1, 2, 3, 4, 2**31 - 1])
def test_HIS_02_length_n_gives_the_newest_n(v1: Binding, talk: Any, length: int) -> None:
    whole = _texts(talk)
    assert len(whole) == 3
    assert _texts(v1.get(talk["id"], historyLength=length).result) == whole[-length:]


@pytest.mark.parametrize("length", [0, 1, 2])
def test_HIS_03_the_same_for_send(v1: Binding, length: int) -> None:
    asked = v1.send("ask")
    answer = v1.send_message(v1.message("an answer", taskId=asked["id"]), historyLength=length)
    assert _texts(answer.task) == ["ask", "What is your answer?", "an answer"][3 - length :]
    assert ("history" in answer.task) is (length > 0)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_HIS_04_the_same_for_list(v1: Binding, talk: Any, length: int) -> None:
    (task,) = v1.list(contextId=talk["contextId"], historyLength=length).result["tasks"]
    assert _texts(task) == _texts(talk)[3 - length :]
    assert ("history" in task) is (length > 0)


@pytest.mark.parametrize("length", [-1, 2**31, 2**64])
def test_HIS_05_a_length_out_of_range_is_refused(v1: Binding, talk: Any, length: int) -> None:
    for answer in (
        v1.get(talk["id"], historyLength=length),
        v1.list(historyLength=length),
        v1.send_message(v1.message("echo"), historyLength=length),
    ):
        v1.expect(answer, "INVALID_PARAMS")
        assert answer.fields[0].endswith("historyLength")


def test_HIS_06_history_is_in_order_with_the_callers_turns(v1: Binding, talk: Any) -> None:
    assert _texts(talk) == ["ask", "What is your answer?", "an answer"]
    assert [one["role"] for one in talk["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


def test_CAN_01_a_running_task_is_canceled_and_stays_so(v1: Binding) -> None:
    task = held(v1)
    canceled = v1.cancel(task["id"]).result
    assert (canceled["id"], canceled["status"]["state"]) == (task["id"], "TASK_STATE_CANCELED")
    assert v1.get(task["id"]).result == canceled


@pytest.mark.parametrize("state", TERMINAL)
def test_CAN_02_an_ended_task_is_not_cancelable(v1: Binding, state: str) -> None:
    task = ended(v1, state)
    v1.expect(v1.cancel(task["id"]), "TASK_NOT_CANCELABLE")
    assert v1.get(task["id"]).result == task


def test_CAN_03_an_unknown_task_is_not_found(v1: Binding) -> None:
    v1.expect(v1.cancel(UNKNOWN), "TASK_NOT_FOUND")


def test_CAN_04_the_second_cancel_is_refused_and_changes_nothing(v1: Binding) -> None:
    canceled = v1.cancel(held(v1)["id"]).result
    v1.expect(v1.cancel(canceled["id"]), "TASK_NOT_CANCELABLE")
    assert v1.get(canceled["id"]).result == canceled


@pytest.mark.parametrize("word", ["ask", "auth"])
def test_CAN_05_a_waiting_task_can_be_canceled(v1: Binding, word: str) -> None:
    task = v1.send(word)
    assert v1.cancel(task["id"]).result["status"]["state"] == "TASK_STATE_CANCELED"
    v1.expect(v1.send_message(v1.message("too late", taskId=task["id"])), "UNSUPPORTED_OPERATION")


def test_CAN_06_readers_see_the_cancel_and_the_close(v1: Binding) -> None:
    task = held(v1)
    with v1.subscribe(task["id"]) as frames:
        speaker(v1).cancel(task["id"])
        assert state_of(frames.all()[-1]) == "TASK_STATE_CANCELED"
