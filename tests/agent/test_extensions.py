"""What a run says about itself, on success and on failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.drive import begin, drive, parts, said, send, state, stream, until
from trunkline import Agent, Misuse, SyncTurn, Turn
from trunkline.agent.extensions import Change, RunReport, Usage
from trunkline.agent.testing import TestClient

URI = "https://proto-labs.ai/a2a/ext/"


def report_parts(task: Any) -> dict[str, Any]:
    """The data parts that are reports, by the name of their extension."""
    found: dict[str, Any] = {}
    for artifact in task.get("artifacts", []):
        assert artifact["parts"], "no artifact is empty"
        for part in artifact["parts"]:
            kind = part.get("mediaType", "")
            if kind.startswith("application/vnd.protolabs."):
                assert part["metadata"] == {"mimeType": kind}
                name = kind.removeprefix("application/vnd.protolabs.").removesuffix("+json")
                assert name not in found
                found[name] = part["data"]
    return found


def reports(task: Any) -> dict[str, Any]:
    """The reports in metadata, by name: of an artifact that lists their URIs, or of the task."""
    found: dict[str, Any] = {}
    for holder in (task, *task.get("artifacts", [])):
        of_it = {uri: body for uri, body in holder.get("metadata", {}).items() if uri.startswith(URI)}
        assert holder is task or list(of_it) == holder.get("extensions", [])
        assert not found.keys() & of_it.keys()
        found |= {uri.removeprefix(URI): body for uri, body in of_it.items()}
    return found


def saying(how: str, ending: str) -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str | None:
        turn.usage(input_tokens=10, output_tokens=2)
        turn.usage(input_tokens=5, cache_read_input_tokens=7, cost_usd=0.25)
        turn.usage(cache_creation_input_tokens=9)
        turn.confidence(0.5, "half sure")
        turn.effect("board", "open", -1)
        turn.effect("board", "labels", "bug", op="push")
        if how == "written":
            await turn.write("some text")
        elif how == "artifact":
            await turn.artifact(text="some text")
        if ending == "raise":
            raise ValueError("no")
        if ending != "return":
            getattr(turn, ending)("the end")
        return "a result" if how == "result" else None

    return agent


@pytest.mark.parametrize("how", ["written", "artifact", "result", "silent"])
@pytest.mark.parametrize("ending", ["return", "finish", "fail", "reject", "raise"])
def test_shapes(how: str, ending: str) -> None:
    task = send(saying(how, ending), "go")
    success = ending in ("return", "finish")
    assert state(task) == {"return": "completed", "finish": "completed", "reject": "rejected"}.get(
        ending, "failed"
    )
    found = reports(task)
    assert report_parts(task) == {}
    cost = found.pop("cost-v1")
    assert cost.pop("durationMs") >= 1
    assert cost == {
        "usage": {
            "input_tokens": 15,
            "output_tokens": 2,
            "cache_creation_input_tokens": 9,
            "cache_read_input_tokens": 7,
        },
        "costUsd": 0.25,
        "success": success,
    }
    assert found.pop("confidence-v1") == {"confidence": 0.5, "explanation": "half sure", "success": success}
    effects = found.pop("worldstate-delta-v1", None)
    assert found == {}
    if success:
        assert effects == {
            "deltas": [
                {"domain": "board", "path": "open", "op": "inc", "value": -1},
                {"domain": "board", "path": "labels", "op": "push", "value": "bug"},
            ]
        }
    else:
        assert effects is None


def test_nothing_said_is_nothing_reported() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        turn.usage()
        await turn.write("text")
        return turn.written

    task = send(agent, "go")
    assert reports(task) == {}
    assert parts(task) == [{"text": "text"}]
    assert "metadata" not in task["artifacts"][0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1.7, 1.0), (-3, 0.0), (0, 0.0), (1, 1.0), (float("inf"), 1.0), (float("nan"), 0.0), (True, 1.0)],
)
def test_confidence_is_clamped(given: float, kept: float) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        turn.confidence(given)

    assert reports(send(agent, "go")) == {"confidence-v1": {"confidence": kept, "success": True}}


@pytest.mark.parametrize("name", ["cache_read_input_tokens", "cache_creation_input_tokens", "cost_usd"])
def test_whatever_was_used_is_a_cost(name: str) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        turn.usage(**{name: 3})

    assert reports(send(agent, "go")).keys() == {"cost-v1"}


@pytest.mark.parametrize(
    ("domain", "path", "value", "op", "complaint"),
    [
        ("board", "open", "one", "inc", "adds a number"),
        ("board", "open", True, "inc", "adds a number"),
        ("board", "open", 1, "add", "is none of set, inc, push"),
        ("", "open", 1, "inc", "domain and path are text"),
        ("board", 7, 1, "inc", "path is text, not int"),
    ],
)
def test_an_effect_that_nobody_would_understand(
    domain: Any, path: Any, value: object, op: str, complaint: str
) -> None:
    report = RunReport()
    with pytest.raises(Misuse, match=complaint):
        report.add_change(Change(domain, path, value, op))
    assert report.changes == []


def asked(agent: Agent, text: str, header: str | None, name: str = "A2A-Extensions") -> Any:
    """What an agent answers to who names these extensions, separated by commas and without their prefix."""

    async def talk(client: TestClient) -> Any:
        if header is not None:
            client.headers[name] = ", ".join(URI + one for one in header.split(",") if one)
        return await client.send(text)

    return drive(agent, talk)


ALL = {"cost-v1", "confidence-v1", "worldstate-delta-v1"}


@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, ALL),
        ("", ALL),
        ("cost-v1", {"cost-v1"}),
        ("worldstate-delta-v1,confidence-v1", {"worldstate-delta-v1", "confidence-v1"}),
        ("cost-v2,confidence-v1", {"confidence-v1"}),
        ("cost-v9,cost,COST-v1,blast-v1", set()),
    ],
)
def test_only_what_the_caller_names(name: str, header: str | None, found: set[str]) -> None:
    task = asked(saying("written", "return"), "go", header, name)
    assert reports(task).keys() == found
    assert report_parts(task) == (reports(task) if header else {}), "parts for who named them"


@pytest.mark.parametrize("how", ["written", "artifact", "result", "silent"])
@pytest.mark.parametrize("ending", ["return", "fail", "raise"])
@pytest.mark.parametrize("named", [True, False])
def test_a_stream_brings_what_the_task_has(how: str, ending: str, named: bool) -> None:
    """Every artifact of it has parts; what no artifact holds comes with the last status."""

    async def talk(client: TestClient) -> Any:
        if named:
            client.headers["A2A-Extensions"] = ", ".join(URI + one for one in ALL)
        frames = [frame async for frame in client.stream("go")]
        return frames, await client.get(frames[0]["task"]["id"])

    frames, task = drive(saying(how, ending), talk)
    updates = [frame["artifactUpdate"]["artifact"] for frame in frames if "artifactUpdate" in frame]
    assert all(artifact["parts"] for artifact in updates)
    last = frames[-1]["statusUpdate"]
    seen = reports(
        {"metadata": last.get("metadata", {}), "artifacts": [u for u in updates if "metadata" in u]}
    )
    assert seen == reports(task)
    assert report_parts({"artifacts": updates}) == report_parts(task) == (seen if named else {})


def test_what_the_caller_does_not_name_is_not_in_a_direct_answer_either() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> object:
        turn.usage(input_tokens=1)
        turn.confidence(1)
        return turn.message("directly")

    answer = asked(agent, "go", "confidence-v1")
    assert answer["extensions"] == [URI + "confidence-v1"]
    assert answer["metadata"].keys() == {URI + "confidence-v1"}
    assert "metadata" not in asked(agent, "go", "blast-v1")


def test_a_number_of_another_kind_fails_nobody() -> None:
    class Dollars(float):
        """As numerical libraries have them."""

    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> object:
        turn.usage(cost_usd=Dollars(0.5))
        turn.confidence(1)
        return turn.message("directly")

    assert asked(agent, "go", "confidence-v1")["metadata"].keys() == {URI + "confidence-v1"}
    assert asked(agent, "go", "cost-v1")["metadata"][URI + "cost-v1"]["costUsd"] == 0.5


def test_cached_tokens_that_are_none_are_left_out() -> None:
    report = RunReport()
    report.add_usage(Usage(1, cache_read_input_tokens=0.0))  # pyright: ignore[reportArgumentType]
    cost = {"usage": {"input_tokens": 1, "output_tokens": 0}, "durationMs": 2, "success": True}
    assert report.sorted_out(success=True, duration_ms=2) == ({URI + "cost-v1": cost}, {})


def test_the_caller_who_opened_the_task_decides_also_after_a_restart(tmp_path: Path) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        turn.usage(input_tokens=1)
        turn.confidence(1)
        return await turn.ask("Which?")

    store = {"store": f"sqlite:///{tmp_path}/tasks.db"}

    async def ask(client: TestClient) -> Any:
        client.headers["A2A-Extensions"] = URI + "confidence-v1"
        return await client.send("go")

    async def answer(client: TestClient) -> Any:
        client.headers["A2A-Extensions"] = URI + "cost-v1"
        return await client.send("this", taskId=waiting["id"])

    waiting = drive(agent, ask, **store)
    assert state(waiting) == "input-required"
    done = drive(agent, answer, **store)
    assert state(done) == "completed"
    assert reports(done).keys() == {"confidence-v1"}


async def _forever(turn: Turn) -> None:
    await asyncio.Event().wait()


async def _awaits_what_was_cancelled(turn: Turn) -> None:
    waiting = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    waiting.cancel()
    await waiting


async def _exits(turn: Turn) -> None:
    raise SystemExit(3)


async def _fails_in_a_group(turn: Turn) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        raise ValueError("no")


def using(then: Callable[[Turn], Any]) -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        turn.usage(input_tokens=3)
        turn.confidence(0.9)
        turn.effect("board", "open")
        await turn.write("begun")
        await then(turn)

    return agent


def check_lost(task: Any) -> None:
    found = reports(task)
    assert found.keys() == {"cost-v1", "confidence-v1"}, "what did not happen has no effect"
    assert found["cost-v1"]["usage"] == {"input_tokens": 3, "output_tokens": 0}
    assert found["cost-v1"]["success"] is found["confidence-v1"]["success"] is False
    assert parts(task)[0] == {"text": "begun"}


@pytest.mark.parametrize("then", [_awaits_what_was_cancelled, _exits, _fails_in_a_group])
def test_however_a_run_fails_its_cost_is_told(then: Callable[[Turn], Any]) -> None:
    task = send(using(then), "go")
    assert state(task) == "failed"
    check_lost(task)


def test_a_canceled_run_tells_its_cost() -> None:
    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await until(client, task["id"], "working")
        return await client.cancel(task["id"])

    task = drive(using(_forever), talk)
    assert state(task) == "canceled"
    check_lost(task)


def test_a_canceled_thread_tells_its_cost() -> None:
    agent, written = Agent("under test"), threading.Event()

    @agent.skill
    def work(turn: SyncTurn) -> None:
        turn.usage(input_tokens=3)
        turn.confidence(0.9)
        turn.write("begun")
        written.set()
        turn.step("wait", asyncio.sleep, 60)

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        assert await asyncio.to_thread(written.wait, 10)
        return await client.cancel(task["id"])

    task = drive(agent, talk)
    assert state(task) == "canceled"
    check_lost(task)


def test_a_run_that_is_stopped_for_its_silence_tells_its_cost() -> None:
    task = send(using(_forever), "go", {"stall_limit": 0.2})
    assert (state(task), "silent" in said(task)) == ("failed", True)
    check_lost(task)


def test_a_run_that_the_end_of_the_server_stops_tells_its_cost(tmp_path: Path) -> None:
    store = {"store": f"sqlite:///{tmp_path}/tasks.db"}

    async def ask(client: TestClient) -> Any:
        task = await begin(client, "go")
        return await until(client, task["id"], "working")

    async def look(client: TestClient) -> Any:
        return await client.get(left["id"])

    left = drive(using(_forever), ask, **store)
    task = drive(using(_forever), look, **store)
    assert (state(task), "stopped" in said(task)) == ("failed", True)
    check_lost(task)


def test_a_canceled_run_that_has_used_nothing_stays_as_it_is() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        await turn.write("begun")
        await asyncio.Event().wait()

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await until(client, task["id"], "working")
        return await client.cancel(task["id"])

    task = drive(agent, talk)
    assert [artifact.keys() for artifact in task["artifacts"]] == [{"artifactId", "parts"}]
    assert parts(task) == [{"text": "begun"}]


def test_readers_of_a_stream_get_it_with_the_last_piece() -> None:
    frames = stream(saying("written", "return"), "go")
    last = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame][-1]
    assert last["lastChunk"] is True
    assert {uri.removeprefix(URI) for uri in last["artifact"]["extensions"]} == ALL
