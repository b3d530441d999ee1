"""What functions may give back, and what becomes of those that give back anything else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from tests.agent.drive import begin, drive, parts, pieces, said, send, state, stream, text, until
from trunkline import Agent, Artifact, Message, Part, Turn, TurnOver
from trunkline.agent.testing import TestClient


@dataclass
class Point:
    x: int
    y: int


class Pair(msgspec.Struct):
    left: str
    right: str


class Model(pydantic.BaseModel):
    n: int
    deep: dict[str, list[int]] = {}


def returning(value: object) -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def give(text: str) -> object:
        return value

    return agent


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("text", {"text": "text"}),
        ("", {"text": ""}),
        (b"\x00\x01", {"raw": "AAE=", "mediaType": "application/octet-stream"}),
        ({"a": [1, None]}, {"data": {"a": [1, None]}}),
        ([1, 2], {"data": [1, 2]}),
        ((1, 2), {"data": [1, 2]}),
        (7, {"data": 7}),
        (1.5, {"data": 1.5}),
        (False, {"data": False}),
        (Point(1, 2), {"data": {"x": 1, "y": 2}}),
        (Pair("l", "r"), {"data": {"left": "l", "right": "r"}}),
        (Model(n=1, deep={"a": [1]}), {"data": {"n": 1, "deep": {"a": [1]}}}),
        (
            Part(url="https://example.com/a.png", media_type="image/png"),
            {"url": "https://example.com/a.png", "mediaType": "image/png"},
        ),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_value_becomes_a_part(value: object, part: dict[str, Any]) -> None:
    task = send(returning(value), "go")
    assert state(task) == "completed"
    assert parts(task) == [part]
    assert len(task["artifacts"]) == 1


def test_nothing_is_a_result_too() -> None:
    task = send(returning(None), "go")
    assert state(task) == "completed"
    assert "artifacts" not in task


def test_an_artifact_goes_out_as_it_is() -> None:
    task = send(returning(Artifact("mine", name="Mine", parts=(Part(text="a"), Part(text="b")))), "go")
    assert task["artifacts"] == [
        {"artifactId": "mine", "name": "Mine", "parts": [{"text": "a"}, {"text": "b"}]}
    ]


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "garbage",
    [
        object(), object, {"a": object()}, {(1, 2): "tuple key"}, print, "\ud800", {"a": "\ud800"}, CIRCLE, DEEP,
        Part(data=object()), Artifact("a", metadata={"x": object()}), ...,
    ],
    ids=["object", "class", "object inside", "tuple key", "function", "surrogate", "surrogate inside", "circle", "deep", "part", "artifact", "ellipsis"],
)  # fmt: skip
@pytest.mark.parametrize("written", [False, True], ids=["alone", "after text"])
def test_garbage_fails_with_a_reason(garbage: object, written: bool) -> None:
    agent = Agent("under test")

    @agent.skill
    async def give(turn: Turn) -> object:
        turn.usage(input_tokens=1)
        if written:
            await turn.write("text before")
        return garbage

    task = send(agent, "go")
    assert state(task) == "failed"
    assert "Reason id" in said(task)
    costs = [part["data"]["success"] for part in parts(task) if "cost-v1" in part.get("mediaType", "")]
    assert True not in costs, "a failed run has not succeeded"
    assert len(costs) <= 1


@pytest.mark.parametrize(
    "say",
    [
        lambda turn: turn.write("\ud800"),
        lambda turn: turn.status("\ud800"),
        lambda turn: turn.status("ok", {"x": object()}),
        lambda turn: turn.artifact(text="ok", metadata={"x": object()}),
        lambda turn: turn.ask("\ud800"),
    ],
    ids=["write", "status", "status metadata", "artifact metadata", "ask"],
)
def test_words_that_are_not_json_fail_the_task(say: Callable[[Turn], Any]) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        await say(turn)
        await asyncio.Event().wait()

    task = send(agent, "go")
    assert state(task) == "failed"
    assert "Reason id" in said(task)


def raising(error: BaseException) -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def fails(text: str) -> str:
        raise error

    @agent.skill(id="sync")
    def fails_too(text: str) -> str:
        raise error

    return agent


ERRORS = [
    ValueError("secret-detail"),
    KeyError("secret-detail"),
    StopIteration("secret-detail"),
    StopAsyncIteration("secret-detail"),
    TimeoutError("secret-detail"),
    SystemExit("secret-detail"),
    asyncio.CancelledError("secret-detail"),
    ExceptionGroup("secret-detail", [ValueError("secret-detail")]),
    RecursionError("secret-detail"),
    TurnOver("secret-detail"),
]


@pytest.mark.parametrize("skill", ["fails", "sync"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_fails_with_a_reason_id_and_no_text(error: BaseException, skill: str) -> None:
    task = send(raising(error), "go", metadata={"skill": skill})
    assert state(task) == "failed"
    assert "Reason id" in said(task)
    assert "secret-detail" not in str(task["status"])
    assert type(error).__name__ not in said(task)


def test_an_exception_shows_its_text_in_dev() -> None:
    task = send(raising(ValueError("what went wrong")), "go", {"dev": True})
    assert "ValueError: what went wrong" in said(task)
    assert "Reason id" in said(task)


def test_the_reason_id_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    task = send(raising(ValueError("for the operator")), "go")
    reason = said(task).rsplit(" ", 1)[-1].rstrip(".")
    (record,) = [one for one in caplog.records if reason in one.getMessage()]
    assert task["id"] in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "for the operator"


def test_a_verdict_inside_a_task_group_counts() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        async def part() -> None:
            turn.reject("one part says no")

        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    task = send(agent, "go")
    assert (state(task), said(task)) == ("rejected", "one part says no")


def test_a_broad_except_does_not_eat_a_verdict() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        try:
            turn.fail("for good")
        except Exception:  # noqa: BLE001 - what an author might write
            return "swallowed"

    task = send(agent, "go")
    assert (state(task), said(task)) == ("failed", "for good")


def test_a_message_is_a_direct_answer() -> None:
    agent = Agent("under test")

    @agent.skill
    async def reply(turn: Turn) -> Message:
        return turn.message("directly")

    answer = send(agent, "go")
    assert (answer["role"], answer["parts"]) == ("ROLE_AGENT", [{"text": "directly"}])
    frames = stream(agent, "go")
    assert [list(frame) for frame in frames] == [["message"]]
    assert frames[0]["message"]["parts"] == [{"text": "directly"}]


@pytest.mark.parametrize("before", ["write", "artifact", "named artifact", "status", "ask"])
def test_a_message_after_other_output_closes_the_task(before: str) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> Message:
        if before == "write":
            await turn.write("first, ")
            await turn.write("held")
        elif before == "status":
            await turn.status("on it")
        elif before == "ask":
            await turn.ask("Well?")
        else:
            await turn.artifact(text="first, held", artifact_id="mine" if before == "named artifact" else "")
        turn.usage(output_tokens=5)
        return turn.message("closing word")

    async def talk(client: TestClient) -> Any:
        task = await client.send("go")
        return await client.send("well", taskId=task["id"]) if before == "ask" else task

    task = drive(agent, talk)
    assert state(task) == "completed"
    assert said(task) == "closing word"
    assert text(task) == ("first, held" if before not in ("status", "ask") else "")
    holders = [task, *task.get("artifacts", [])]
    assert ["https://proto-labs.ai/a2a/ext/cost-v1" in one.get("metadata", {}) for one in holders].count(
        True
    ) == 1


def test_a_direct_answer_carries_its_cost() -> None:
    agent = Agent("under test")

    @agent.skill
    async def reply(turn: Turn) -> Message:
        turn.usage(input_tokens=5, output_tokens=7)
        return turn.message("directly")

    answer = send(agent, "go")
    cost = answer["metadata"]["https://proto-labs.ai/a2a/ext/cost-v1"]
    assert cost["usage"] == {"input_tokens": 5, "output_tokens": 7}
    assert cost["success"] is True


def test_a_result_beside_the_written_text_is_an_artifact_of_its_own() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> object:
        await turn.write("text")
        return Artifact("table", parts=(Part(data={"rows": 1}),)) if turn.text == "artifact" else {"rows": 1}

    for word, artifact_id in (("data", "artifact-1"), ("artifact", "table")):
        task = send(agent, word)
        assert [artifact["artifactId"] for artifact in task["artifacts"]] == ["answer", artifact_id]
        assert parts(task) == [{"text": "text"}, {"data": {"rows": 1}}]


def test_returning_what_was_written_does_not_repeat_it() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        await turn.write("once, ")
        await turn.write("and only once")
        return turn.written

    assert "".join(pieces(stream(agent, "go"))) == "once, and only once"
    assert parts(send(agent, "go")) == [{"text": "once, and only once"}]


@pytest.mark.parametrize(
    ("returned", "left", "told"),
    [
        ("final", "final", ["partial", "final"]),
        ("partial and whole", "partial and whole", ["partial", " and whole"]),
        ("", "partial", ["partial"]),
    ],
)
def test_a_text_that_is_returned_is_the_result_whatever_was_written(
    returned: str, left: str, told: list[str]
) -> None:
    agent = Agent("under test", stream_close="last")

    @agent.skill
    async def work(turn: Turn) -> str:
        await turn.write("partial")
        turn.confidence(0.5)
        return returned

    task = send(agent, "go")
    assert [artifact["artifactId"] for artifact in task["artifacts"]] == ["answer"]
    assert "".join(part.get("text", "") for part in parts(task)) == left
    updates = [frame["artifactUpdate"] for frame in stream(agent, "go") if "artifactUpdate" in frame]
    texts = ["".join(part.get("text", "") for part in one["artifact"]["parts"]) for one in updates]
    assert [text for text in texts if text] == told
    # Whoever follows the stream begins anew where the text is another one.
    assert [one.get("append", False) for one in updates[1:]] == [left != "final"] * (len(updates) - 1)


def test_an_exit_in_a_skill_does_not_end_the_server() -> None:
    agent = Agent("under test")

    @agent.skill
    async def leave(text: str) -> str:
        if text == "exit":
            sys.exit(3)
        return "still here"

    async def talk(client: TestClient) -> Any:
        task = await until(client, (await begin(client, "exit"))["id"], "failed")
        return task, await client.send("stay")

    failed, stayed = drive(agent, talk)
    assert "Reason id" in said(failed)
    assert text(stayed) == "still here"


@pytest.mark.parametrize(
    "built",
    [
        Part(text=5),  # type: ignore[arg-type]
        Part(),
        Part(text="a", url="https://example.com"),
        Artifact("a", parts=(Part(text=5),)),  # type: ignore[arg-type]
        Artifact("a"),
        Artifact(5, parts=(Part(text="x"),)),  # type: ignore[arg-type]
        Message("m", parts=()),
    ],
)
def test_what_could_not_be_read_back_fails_the_task_and_leaves_it_readable(built: Any) -> None:
    assert state(send(returning(built), "go")) == "failed"


@pytest.mark.parametrize(
    "words",
    [
        {"text": 5},
        {"text": "a", "name": 5},
        {"text": "a", "artifact_id": 5},
        {"file": 5},
        {"data": 1, "filename": 5},
    ],
)
def test_an_artifact_of_the_wrong_types_fails_the_task_and_leaves_it_readable(words: dict[str, Any]) -> None:
    agent = Agent("under test")

    @agent.skill
    async def emit(turn: Turn) -> None:
        await turn.artifact(**words)

    assert state(send(agent, "go")) == "failed"


def test_what_an_author_does_to_its_data_does_not_change_the_task() -> None:
    agent = Agent("under test")

    @agent.skill
    async def change(turn: Turn) -> str:
        turn.data[0]["a"].append(2)  # type: ignore[index]
        turn.metadata["deep"]["a"] = 2
        return "done"

    said_parts = [{"text": "x"}, {"data": {"a": [1]}}]
    task = send(agent, said_parts, metadata={"deep": {"a": 1}})
    message = task["history"][0]
    assert (message["parts"][1]["data"], message["metadata"]) == ({"a": [1]}, {"deep": {"a": 1}})


WAYS_OUT = [GeneratorExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration]
# On the loop an interrupt is the signal that ends the process.
ON_LOOP = [
    (form, error) for form in ("async", "generator") for error in WAYS_OUT if error is not KeyboardInterrupt
]
IN_THREAD = [(form, error) for form in ("sync", "sync generator", "step") for error in WAYS_OUT]


@pytest.mark.parametrize(("form", "error"), [*ON_LOOP, *IN_THREAD])
def test_whatever_a_skill_raises_ends_its_task(form: str, error: type[BaseException]) -> None:
    agent = Agent("under test")

    @agent.skill(id="async")
    async def on_loop(text: str) -> str:
        raise error

    @agent.skill(id="generator")
    async def pieces_of(text: str) -> AsyncIterator[str]:
        yield "one"
        raise error

    @agent.skill(id="sync")
    def in_thread(text: str) -> str:
        raise error

    @agent.skill(id="sync generator")
    def pieces_in_thread(text: str) -> Iterator[str]:
        yield "one"
        raise error

    @agent.skill(id="step")
    async def steps(turn: Turn) -> str:
        def do() -> None:
            raise error

        await turn.step("one", do)
        return "never"

    async def talk(client: TestClient) -> Any:
        task = await client.send("go", metadata={"skill": form})
        return await client.get(task["id"])

    task = drive(agent, talk)
    assert state(task) == "failed" and "Reason id" in said(task)
