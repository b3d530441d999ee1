"""AG-57 to AG-62: what a run says about itself, and what `completed` means. Over real HTTP, both versions."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.agent.talk import Talk, bodies, reports_in, said
from tests.harness import message, params, plain_state, text_of


def test_AG_57_cost_of_tokens_used(talk: Talk) -> None:
    task = talk.send("usage")
    (cost,) = reports_in(talk, task, "cost-v1")
    assert cost["usage"] == {"input_tokens": 120, "output_tokens": 40}
    assert all(type(count) is int for count in cost["usage"].values())
    assert type(cost["durationMs"]) is int
    assert cost["durationMs"] > 0
    assert cost["costUsd"] == 0.0021
    assert cost["success"] is True
    assert text_of(task) == "used some tokens"


def test_AG_57_no_cost_without_tokens(talk: Talk) -> None:
    for text in ("echo free", "count 2 1", "fail", "data"):
        task = talk.send(text)
        assert reports_in(talk, task, "cost-v1") == []


def test_AG_57_failed_runs_carry_success_false(talk: Talk) -> None:
    task = talk.send("usage fail")
    assert plain_state(task) == "failed"
    (cost,) = reports_in(talk, task, "cost-v1")
    assert cost["success"] is False
    assert cost["usage"] == {"input_tokens": 120, "output_tokens": 40}
    assert cost["durationMs"] > 0


@pytest.mark.parametrize(
    ("given", "kept"), [("1.7", 1.0), ("-3", 0.0), ("0.25", 0.25), ("0", 0.0), ("1", 1.0)]
)
def test_AG_58_confidence_is_clamped(talk: Talk, given: str, kept: float) -> None:
    task = talk.send(f"confidence {given}")
    (confidence,) = reports_in(talk, task, "confidence-v1")
    assert confidence == {"confidence": kept, "explanation": "as the caller wished", "success": True}


def test_AG_58_no_confidence_when_none_is_given(talk: Talk) -> None:
    for text in ("echo", "usage", "effect"):
        assert reports_in(talk, talk.send(text), "confidence-v1") == []


def test_AG_59_deltas_match_the_declaration(talk: Talk) -> None:
    task = talk.send("effect")
    (delta,) = reports_in(talk, task, "worldstate-delta-v1")
    assert delta == {"deltas": [{"domain": "demo", "path": "counters.effects", "op": "inc", "value": 1}]}


def test_AG_59_no_delta_when_the_run_failed(talk: Talk) -> None:
    task = talk.send("effect fail")
    assert plain_state(task) == "failed"
    assert reports_in(talk, task, "worldstate-delta-v1") == []


def test_AG_60_success_contract(talk: Talk) -> None:
    task = talk.send("toolerror")
    assert plain_state(task) == "failed"
    assert "lookup" in said(task)
    assert task.get("artifacts", []) == [], "an error text is not a result"


def test_AG_61_a_generator_that_stops_without_a_verdict(subject: Talk) -> None:
    task = subject.send("go", metadata={"skill": "fading"})
    assert (plain_state(task), text_of(task)) == ("completed", "a beginning")


def test_AG_61_a_function_that_ends_without_a_word(subject: Talk) -> None:
    assert plain_state(subject.send("go", metadata={"skill": "nothing"})) == "completed"


def test_AG_61_a_function_that_awaits_what_somebody_cancelled(subject: Talk) -> None:
    task = subject.until(
        subject.send("go", wait=False, metadata={"skill": "lost"})["id"], "failed", "canceled"
    )
    assert plain_state(task) == "failed"
    assert said(task)


def _ids(talk: Talk, given: dict[str, Any], by: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for operation in by:
        if operation == "stream":
            with talk.open("stream", given) as frames:
                found.append(bodies(frames.all(), "task")[0]["id"])
        else:
            result = talk.result("send", given)
            found.append((result["task"] if talk.version == "1.0" else result)["id"])
    return found


def _done(subject: Talk, key: str) -> int:
    return int(text_of(subject.send(f"done {key}")))


@pytest.mark.parametrize(
    "by",
    [("send", "send"), ("send", "stream"), ("stream", "send"), ("stream", "stream", "send")],
    ids="+".join,
)
def test_AG_62_idempotent_submit(subject: Talk, by: tuple[str, ...]) -> None:
    key = str(uuid.uuid4())
    given = params(f"once {key}", subject.version)
    before = subject.count()
    found = _ids(subject, given, by)
    assert len(set(found)) == 1
    assert subject.count() == before + 1
    assert _done(subject, key) == 1


def test_AG_62_idempotent_submit_at_the_same_time(subject: Talk) -> None:
    key = str(uuid.uuid4())
    given = params(f"once {key}", subject.version)
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda place: _ids(subject, given, ("stream" if place % 2 else "send",)), range(16))
        )
    assert len({one for ids in found for one in ids}) == 1
    assert _done(subject, key) == 1


def test_AG_62_an_answer_sent_twice_counts_once(talk: Talk) -> None:
    task_id = talk.send("ask")["id"]
    given = {"message": message("the answer", talk.version, taskId=task_id)}
    first, second = (talk.result("send", given) for _ in range(2))
    assert first == second
    history = talk.get(task_id)["history"]
    assert [part["text"] for one in history for part in one["parts"]].count("the answer") == 1


def test_AG_62_the_same_id_for_another_message_is_refused(subject: Talk) -> None:
    key = str(uuid.uuid4())
    given = params(f"once {key}", subject.version)
    subject.result("send", given)
    given["message"]["parts"] = message("open another", subject.version)["parts"]
    for operation in ("send", "stream"):
        error = subject.error(operation, given)
        assert error["code"] == -32602
        assert "DUPLICATE_ID" in str(error["data"])


def test_AG_62_hand_written_ids_are_no_keys(subject: Talk) -> None:
    key = str(uuid.uuid4())
    given = params(f"once {key}", subject.version, messageId="msg-1")
    assert len(set(_ids(subject, given, ("send", "send")))) == 2
    assert _done(subject, key) == 2


def test_AG_62_an_idempotency_key_makes_them_one(subject: Talk) -> None:
    key = str(uuid.uuid4())
    given = params(f"once {key}", subject.version, messageId="msg-1")
    method = subject.methods["send"]
    answers = [
        subject.agent.result(method, given, version=subject.version, Idempotency_Key=key) for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert _done(subject, key) == 1
