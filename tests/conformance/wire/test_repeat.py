"""The same message again is the same task: by UUID message id and by Idempotency-Key; never a second run."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.conformance.wire.bindings import Binding, Rpc
from tests.conformance.wire.conftest import Serve
from tests.conformance.wire.tasks import built, stored, text_of, update_of
from tests.harness import Frame

PARALLEL = 100


@pytest.fixture
def counted(speak: Callable[..., Binding], serve: Serve) -> Binding:
    return speak(serve("agents:counted").base)


def _task(answer: Any) -> Any:
    assert answer.error is None, answer.body
    return answer.result.get("task", answer.result)


def _ran(task: Any) -> str:
    return text_of(task["artifacts"][0])


def test_repeat_by_message_id(counted: Binding) -> None:
    message = counted.message(str(uuid.uuid4()))
    first, second = (_task(counted.send_message(message, wait=True)) for _ in range(2))
    assert (first["id"], _ran(first)) == (second["id"], "run 1")
    assert first == second


def test_repeat_by_key(counted: Binding) -> None:
    message = counted.message(str(uuid.uuid4()), messageId="by-hand")
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first, second = (_task(counted.send_message(message, key, wait=True)) for _ in range(2))
    assert first == second and _ran(second) == "run 1"
    third = _task(counted.send_message(message, wait=True))
    assert third["id"] != first["id"] and _ran(third) == "run 2"


def test_repeat_of_a_hand_written_id_is_another_task(counted: Binding) -> None:
    message = counted.message(str(uuid.uuid4()), messageId="msg-1")
    first, second = (_task(counted.send_message(message, wait=True)) for _ in range(2))
    assert first["id"] != second["id"] and _ran(second) == "run 2"


def test_another_message_under_the_same_key_is_a_conflict(counted: Binding) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    counted.send_message(counted.message("one", messageId="by-hand"), key, wait=True)
    answer = counted.send_message(counted.message("two", messageId="by-hand"), key, wait=True)
    assert answer.reason == "INVALID_PARAMS"
    assert answer.details[0]["metadata"] == {"conflict": "DUPLICATE_ID"}


@pytest.mark.parametrize("key", ["x" * 257, "tab\there"])
def test_a_key_that_is_no_key_is_refused(counted: Binding, key: str) -> None:
    answer = counted.send_message(counted.message("hi"), {"Idempotency-Key": key})
    assert (answer.reason, answer.fields) == ("INVALID_PARAMS", ["Idempotency-Key"])


def test_a_repeated_answer_is_given_once(serve: Serve, speak1: Callable[..., Binding]) -> None:
    spoken = speak1(serve("agents:counted").base)
    asked = spoken.send(f"ask {uuid.uuid4()}")
    answer = spoken.message("this", taskId=asked["id"])
    first = spoken.send_message(answer).task
    # Its reply was lost, so it is sent again; meanwhile the task has ended.
    second = spoken.send_message(answer).task
    assert first == second
    assert [one["parts"][0]["text"] for one in second["history"]][1:] == ["And then?", "this"]
    assert stored(second) == {"answer": "run 1"}


def test_a_repeated_stream_tells_the_same_end(serve: Serve, speak1: Callable[..., Binding]) -> None:
    spoken = speak1(serve("agents:counted").base)
    message = spoken.message(str(uuid.uuid4()))
    told: list[list[Frame]] = []
    for _ in range(2):
        with spoken.stream(message) as frames:
            told.append(frames.all())
    first, again = told
    assert update_of(first[0])["id"] == update_of(again[0])["id"]
    assert built(first) == built(again) == {"answer": "run 1"}
    assert first[-1].result == again[-1].result


@pytest.mark.parametrize("by", ["message id", "key"])
def test_many_at_once_are_one_task_and_one_run(serve: Serve, http: httpx2.Client, by: str) -> None:
    server = serve("agents:counted")
    spoken = Rpc(server.base, http)
    text = str(uuid.uuid4())
    message = spoken.message(text, contextId=text, **({} if by == "message id" else {"messageId": "by-hand"}))
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    if by == "key":
        headers["Idempotency-Key"] = text
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}

    async def all_at_once() -> list[Any]:
        async with httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=PARALLEL)) as client:
            posts = [
                client.post(server.url, content=json.dumps(body), headers=headers) for _ in range(PARALLEL)
            ]
            return [response.json()["result"]["task"] for response in await asyncio.gather(*posts)]

    tasks = asyncio.run(all_at_once())
    assert len(tasks) == PARALLEL and all(task == tasks[0] for task in tasks)
    assert _ran(tasks[0]) == "run 1"
    assert spoken.list(contextId=text).result["totalSize"] == 1
    assert _ran(spoken.send(text)) == "run 2"
