"""SendMessage: what comes back and when, contexts, follow-ups, and what is refused."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from tests.conformance.wire.bindings import UNKNOWN, Binding
from tests.conformance.wire.tasks import TERMINAL, ended, finished, held, release, speaker, stored


def test_SND_01_a_send_gives_exactly_one_of_task_and_message(v1: Binding) -> None:
    assert list(v1.send_message(v1.message("echo hi")).result) == ["task"]
    assert list(v1.send_message(v1.message("message hi")).result) == ["message"]


def test_SND_02_a_send_waits_for_the_end_with_all_artifacts(v1: Binding) -> None:
    before = time.monotonic()
    task = v1.send("sleep 0.5")
    assert time.monotonic() - before >= 0.5
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert list(stored(task).values()) == ["slept 0.5 s"]


@pytest.mark.parametrize(("word", "state"), [("ask", "INPUT"), ("auth", "AUTH")])
def test_SND_03_SND_04_a_send_ends_when_the_caller_is_needed(v1: Binding, word: str, state: str) -> None:
    task = v1.send(word)
    assert task["status"]["state"] == f"TASK_STATE_{state}_REQUIRED"
    assert task["status"]["message"]["parts"][0]["text"]


def test_SND_05_return_immediately_gives_a_receipt(v1: Binding) -> None:
    # The task cannot end before `release`: an answer at all is an answer before the end.
    task = v1.send("hold 2", wait=False)
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    with speaker(v1).subscribe(task["id"]) as frames:
        for frame in frames:
            if b"WORKING" in str(frame.data).encode():
                release(v1)
    assert v1.get(task["id"]).result["status"]["state"] == "TASK_STATE_COMPLETED"


def test_SND_06_return_immediately_changes_nothing_for_a_direct_message(v1: Binding) -> None:
    answer = v1.send_message(v1.message("message short"), wait=False)
    assert list(answer.result) == ["message"]
    assert answer.result["message"]["parts"] == [{"text": "short"}]


def test_SND_07_return_immediately_changes_nothing_for_a_stream(v1: Binding) -> None:
    with v1.stream("chunks 3", wait=False) as frames:
        last = frames.all()[-1].result
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("state", TERMINAL)
def test_SND_08_a_message_to_an_ended_task_is_refused(v1: Binding, state: str) -> None:
    task = ended(v1, state)
    v1.expect(v1.send_message(v1.message("more", taskId=task["id"])), "UNSUPPORTED_OPERATION")
    assert v1.get(task["id"]).result == task


def test_SND_09_an_unknown_task_is_not_found(v1: Binding) -> None:
    v1.expect(v1.send_message(v1.message("more", taskId=UNKNOWN)), "TASK_NOT_FOUND")


@pytest.mark.parametrize(
    "part",
    [
        {"raw": "AAAA", "mediaType": "image/png"},
        {"url": "https://example.com/a.png", "mediaType": "image/png"},
        {"data": {"a": 1}, "mediaType": "application/vnd.other+json"},
    ],
)
def test_SND_10_a_media_type_that_no_skill_reads_is_refused(v1: Binding, part: Any) -> None:
    # Beside something that a skill reads it is handed to the skill as it came.
    answer = v1.send_message(v1.message(parts=[part], metadata={"skill": "demo"}))
    v1.expect(answer, "CONTENT_TYPE_NOT_SUPPORTED")
    assert answer.fields == ["message.parts[0]"]


def test_SND_11_two_sends_are_two_tasks(v1: Binding) -> None:
    assert v1.send("echo a")["id"] != v1.send("echo a")["id"]


def test_SND_12_a_context_is_made_and_named(v1: Binding) -> None:
    task = v1.send("echo hi")
    assert task["contextId"]
    assert task["history"][0]["contextId"] == task["contextId"]
    assert v1.send_message(v1.message("message hi")).result["message"]["contextId"]


@pytest.mark.parametrize("context", ["ctx-of-mine", "a b/ü:#?", "x" * 256])
def test_SND_13_the_callers_context_is_kept(v1: Binding, context: str) -> None:
    task = v1.send("echo hi", contextId=context)
    assert task["contextId"] == context
    reply = v1.send_message(v1.message("message hi", contextId=context))
    assert reply.result["message"]["contextId"] == context


@pytest.mark.parametrize("context", ["x" * 257, "line\nend", "nul\x00"])
def test_SND_13_a_context_that_cannot_be_kept_is_refused(v1: Binding, context: str) -> None:
    answer = v1.send_message(v1.message("echo hi", contextId=context))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message.contextId"]


def test_SND_14_the_task_alone_names_its_context(v1: Binding) -> None:
    asked = v1.send("ask")
    message = v1.message("the answer", taskId=asked["id"])
    with v1.stream(message) as frames:
        seen = [frame.result for frame in frames]
    assert {next(iter(one.values()))["contextId"] for one in seen} == {asked["contextId"]}
    task = v1.get(asked["id"]).result
    assert task["contextId"] == asked["contextId"]
    assert {one["contextId"] for one in task["history"]} == {asked["contextId"]}


def test_SND_15_other_context_is_refused(v1: Binding) -> None:
    asked = v1.send("ask")
    answer = v1.send_message(v1.message("no", taskId=asked["id"], contextId="another"))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message.contextId"]
    assert v1.get(asked["id"]).result == asked


def test_SND_16_an_answer_continues_the_task(v1: Binding) -> None:
    asked = v1.send("ask")
    task = v1.send("forty-two", taskId=asked["id"])
    assert (task["id"], task["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
    assert list(stored(task).values()) == ["forty-two"]


def test_SND_17_unknown_references_do_not_matter(v1: Binding) -> None:
    task = v1.send("echo hi", referenceTaskIds=[UNKNOWN, "no such task"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["history"][0]["referenceTaskIds"] == [UNKNOWN, "no such task"]


@pytest.mark.parametrize("modes", [["text/plain"], ["image/png"], []])
def test_SND_18_accepted_output_modes_are_no_error(v1: Binding, modes: list[str]) -> None:
    answer = v1.send_message(v1.message("echo hi"), acceptedOutputModes=modes)
    assert answer.task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_SND_19_results_are_artifacts(v1: Binding) -> None:
    task = v1.send("echo result")
    assert list(stored(task).values()) == ["echo result"]
    assert "message" not in task["status"]


def test_SND_20_the_same_uuid_is_the_same_task(v1: Binding) -> None:
    message = v1.message("echo once")
    first, second = v1.send_message(message).task, v1.send_message(message).task
    assert first == second


def test_SND_20_a_hand_written_id_is_two_tasks(v1: Binding) -> None:
    message = v1.message("echo twice", messageId="msg-1")
    assert v1.send_message(message).task["id"] != v1.send_message(message).task["id"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": None}, "message.messageId"),
        ({"messageId": ""}, "message.messageId"),
        ({"messageId": "x" * 257}, "message.messageId"),
        ({"messageId": "line\nend"}, "message.messageId"),
        ({"role": None}, "message.role"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
        ({"parts": None}, "message.parts"),
        ({"parts": []}, "message.parts"),
    ],
)
def test_SND_21_missing_members_are_named(v1: Binding, change: dict[str, Any], field: str) -> None:
    message = {**v1.message("echo hi"), **change}
    for body in (message, {name: value for name, value in message.items() if value is not None}):
        answer = v1.send_message(body)
        v1.expect(answer, "INVALID_PARAMS")
        assert answer.fields == [field]


def test_SND_21_a_missing_message_is_named(v1: Binding) -> None:
    answer = v1.post_message({})
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message"]


@pytest.mark.parametrize("part", [{}, {"mediaType": "text/plain"}, {"metadata": {"a": 1}}, {"text": None}])
def test_SND_22_a_part_without_content_is_refused(v1: Binding, part: Any) -> None:
    answer = v1.send_message(v1.message(parts=[{"text": "echo"}, part]))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message.parts[1]"]


@pytest.mark.parametrize(
    "part",
    [
        {"text": "a", "raw": "AAAA"},
        {"text": "a", "url": "https://example.com"},
        {"text": "a", "data": {"b": 1}},
        {"raw": "AAAA", "url": "https://example.com"},
    ],
)
def test_SND_23_a_part_with_two_contents_is_refused(v1: Binding, part: Any) -> None:
    answer = v1.send_message(v1.message(parts=[part]))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message.parts[0]"]


def test_SND_24_unknown_members_are_no_error_anywhere(v1: Binding) -> None:
    message = v1.message(parts=[{"text": "echo hi", "x1": 1}], x2={"deep": [1]})
    body = {**v1.body(message, wait=True, x3=True), "x4": None, "metadata": {"x5": 1}}
    assert v1.post_message(body).task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_SND_24_unknown_members_survive_the_round_trip(v1: Binding) -> None:
    part = {"text": "echo hi", "x-part": {"n": 12345678901234567890, "f": 1.5, "list": [None, True]}}
    message = v1.message(parts=[part], **{"x-message": ["kept", {"as": "it is"}]})
    task = v1.send_message(message).task
    said = v1.get(task["id"]).result["history"][0]
    assert said["parts"] == [part]
    assert said["x-message"] == message["x-message"]


def test_SND_16_a_message_to_a_working_task_is_kept(v1: Binding) -> None:
    task = held(v1)
    v1.send_message(v1.message("by the way", taskId=task["id"]), wait=False)
    release(v1)
    texts = [one["parts"][0]["text"] for one in finished(v1, task["id"])["history"]]
    assert texts == ["hold 3", "by the way"]


def test_SND_20_another_message_under_the_same_uuid_is_a_conflict(v1: Binding) -> None:
    same = str(uuid.uuid4())
    v1.send("echo one", messageId=same)
    answer = v1.send_message(v1.message("echo another", messageId=same))
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["message.messageId"]
    assert answer.details[0]["metadata"] == {"conflict": "DUPLICATE_ID"}
