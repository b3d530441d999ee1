"""The executor of the first seed: a skill somewhere else, with a flat result and never an exception."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.agents import (
    COMPLETED,
    HOME,
    Error,
    Frames,
    Http,
    Lost,
    Stand,
    card,
    chunk,
    hello,
    message,
    status,
    stored,
    task,
)
from tests.loops import leap
from trunkline.client.executor import A2AExecutor, SkillResult, StreamUpdate
from trunkline.errors import Misuse
from trunkline.wire.types import TaskState

STREAM, SEND = "SendStreamingMessage", "SendMessage"


def run(
    stand: Stand,
    *,
    client: dict[str, Any] | None = None,
    executor: dict[str, Any] | None = None,
    **asked: Any,
) -> SkillResult:
    async def main() -> SkillResult:
        async with stand.client(**(client or {})) as inner:
            async with A2AExecutor("quinn", HOME, client=inner, **(executor or {})) as outer:
                return await outer.execute(**{"content": "hi", **asked})

    return leap(main())


def test_text_and_what_belongs_to_it() -> None:
    done = task(COMPLETED, "reviewed")
    cost = {"usage": {"input_tokens": 5}, "costUsd": 0.25}
    done["task"]["artifacts"][0]["metadata"] = {
        "https://proto-labs.ai/a2a/ext/cost-v1": cost,
        "https://proto-labs.ai/a2a/ext/confidence-v1": {"confidence": 0.5, "explanation": "a guess"},
    }
    found = run(Stand([Frames([done])]), skill="pr_review")
    assert (found.text, found.is_error, found.task_id, found.context_id) == ("reviewed", False, "t1", "c1")
    assert (found.state, found.usage, found.cost_usd) == (TaskState.COMPLETED, {"input_tokens": 5}, 0.25)
    assert (found.confidence, found.confidence_explanation) == (0.5, "a guess")
    assert found.result is not None
    assert found.duration_ms >= 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (task(COMPLETED, "artifact", said="status"), "artifact"),
        (task(COMPLETED, said="status"), "status"),
        (message("direct"), "direct"),
        (task(COMPLETED), "pr_review ended as completed without a text."),
    ],
)
def test_the_cascade_of_the_first_seed(answer: Any, text: str) -> None:
    stand = Stand([Frames([answer])])
    assert run(stand, skill="pr_review").text == text


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED"])
def test_d_07_an_end_without_success_is_an_error(state: str) -> None:
    found = run(Stand([task(f"TASK_STATE_{state}", said="no")]))
    assert (found.is_error, found.text, found.state) == (True, "no", TaskState[state])


def test_d_02_a_question_is_a_pause() -> None:
    found = run(Stand([task("TASK_STATE_INPUT_REQUIRED", said="which?")]))
    assert (found.is_error, found.state, found.text) == (False, TaskState.INPUT_REQUIRED, "which?")


@pytest.mark.parametrize(
    "trouble", [Lost(), Http(500, {}, b"oops"), Error(-32602, "bad"), Http(401), Http(404)]
)
def test_what_fails_out_there_is_a_result(trouble: Any) -> None:
    found = run(Stand(lambda _: trouble), skill="s", client={"retries": 0})
    assert found.is_error
    assert found.text.startswith("s failed: ")
    assert found.state is None


def test_a_timeout_is_a_result() -> None:
    found = run(
        Stand(lambda _: Frames(hello()[:2], stall=True)),
        executor={"timeout": 20},
        client={"idle_s": 3, "retries": 0},
    )
    assert found.text.startswith("quinn timed out: ")
    assert "t1" in found.text


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(Misuse, match="timeout_s"):
        run(Stand([]), executor={"timeout": -1})


def test_d_16_only_three_things_are_told_beside_the_text() -> None:
    stand = Stand([Frames(hello())])
    payload = {
        "skill": "x",
        "replyTopic": "r",
        "correlationId": "co",
        "meta": {"inner": 1},
        "prompt": "say hello",
    }
    run(
        stand,
        content="",
        skill="sitrep",
        payload=payload,
        correlation_id="co",
        parent_id="pa",
        context_id="c7",
        task_id="t7",
    )
    params, headers = stand.asked[0].params, stand.asked[0].headers
    assert params["metadata"] == {"skillHint": "sitrep", "correlationId": "co", "parentId": "pa"}
    said = params["message"]
    assert (said["contextId"], said["taskId"], said["parts"]) == ("c7", "t7", [{"text": "say hello"}])
    assert "metadata" not in said
    assert (headers["x-correlation-id"], headers["x-parent-id"]) == ("co", "pa")


def test_a_payload_without_words_is_told_in_lines() -> None:
    stand = Stand([Frames(hello())])
    run(
        stand,
        content="",
        skill="sitrep",
        payload={"skill": "x", "replyTopic": "r", "board": "main", "limits": {"a": [1]}},
    )
    assert stand.asked[0].params["message"]["parts"] == [
        {"text": 'Run the skill sitrep.\nboard: main\nlimits: {"a":[1]}'}
    ]
    assert "metadata" in stand.asked[0].params


def test_d_13_updates_come_while_the_agent_works() -> None:
    told: list[StreamUpdate] = []
    frames = [
        (1, task("TASK_STATE_SUBMITTED")), (2, status(said="thinking")), (3, chunk("he", append=False)),
        (4, chunk("llo", last=True)), (5, chunk("whole", append=False, last=True, artifact_id="b")), (6, status(COMPLETED)),
    ]  # fmt: skip
    found = run(Stand([Frames(frames)]), executor={"on_stream_update": told.append})
    assert found.text == "hello\nwhole"
    assert [(one["type"], one["text"], one["state"]) for one in told] == [
        ("status", "thinking", "working"),
        ("artifact", "he", "working"),
        ("artifact_chunk", "llo", "working"),
        ("artifact_complete", "hello", "working"),
        ("artifact", "whole", "working"),
        ("artifact_complete", "whole", "working"),
        ("status", "", "completed"),
    ]


def test_a_whole_answer_is_told_too() -> None:
    told: list[StreamUpdate] = []
    run(Stand([task(COMPLETED, "at once")]), executor={"on_stream_update": told.append})
    assert told == [{"type": "artifact", "text": "at once", "state": "completed"}]


def test_a_listener_may_wait_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def listen(update: StreamUpdate) -> None:
        told.append(update["type"])
        raise RuntimeError("the bus is down")

    found = run(Stand([Frames(hello())]), executor={"on_stream_update": listen})
    assert (found.text, len(told)) == ("hello world", 5)
    assert "client.listener.failed" in caplog.text


def test_streaming_is_as_the_card_says_unless_it_is_said() -> None:
    plain = card(capabilities={"streaming": False})
    for own_card, streaming, method in (
        (card(), None, STREAM),
        (plain, None, SEND),
        (card(), False, SEND),
        (plain, True, SEND),
    ):
        stand = Stand(
            lambda asked: Frames(hello()) if asked.method == STREAM else task(COMPLETED, "hello world"),
            own_card,
        )
        assert run(stand, executor={"streaming": streaming}).text == "hello world"
        assert stand.methods == [method]


def test_d_14_a_stream_that_brings_nothing_is_not_sent_again() -> None:
    stand = Stand(lambda asked: Frames([]) if asked.method == STREAM else task(COMPLETED, "twice"))
    found = run(stand)
    assert found.is_error
    assert "may be doing the work" in found.text
    assert stand.methods == [STREAM]


def test_it_falls_back_from_stream_to_send_without_a_second_run() -> None:
    stand = Stand([Error(-32004, "no streams"), Error(-32001), task(COMPLETED, "sent")])
    assert run(stand).text == "sent"
    sends = [asked for asked in stand.asked if asked.method != "GetTask"]
    assert len({asked.message_id for asked in sends}) == 1


def test_a_stream_that_dies_is_followed_and_the_work_runs_once() -> None:
    stand = Stand([Frames(hello()[:3], cut=True), Frames(hello()[3:]), stored(COMPLETED, "hello world")])
    assert run(stand).text == "hello world"
    assert stand.methods.count(STREAM) == 1


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINN_KEY", "key-of-quinn")
    stand = Stand([Frames(hello())])
    assert run(stand, client={"api_key_env": "QUINN_KEY"}).text == "hello world"
    assert stand.asked[0].headers["x-api-key"] == "key-of-quinn"


def test_it_makes_a_client_of_its_own_and_closes_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> SkillResult:
        async with A2AExecutor(
            "quinn", "http://127.0.0.1:9", api_key_env="NO_SUCH_KEY", timeout=5
        ) as executor:
            return await executor.execute(content="hi")

    import asyncio

    found = asyncio.run(main())
    assert found.is_error
    assert "client.credentials_unset" in caplog.text


def test_a_0_3_agent_reads_the_work_in_both_metadata() -> None:
    stand = Stand(lambda asked: task(COMPLETED)["task"])
    named = {"skillHint": "sitrep", "correlationId": "co", "parentId": "pa"}
    run(
        stand,
        client={"version": "0.3"},
        executor={"streaming": False},
        skill="sitrep",
        correlation_id="co",
        parent_id="pa",
    )
    (asked,) = [one for one in stand.asked if one.method == "message/send"]
    assert asked.params["metadata"] == asked.params["message"]["metadata"] == named
