"""Counters: what is counted, the shape of a histogram, and that every change of a task is counted and logged."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest

from tests.harness import Agent as Caller
from tests.harness import ServerProcess
from trunkline import Agent
from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.telemetry.counters import Counters, Histogram

LINE = re.compile(
    r"task\.state task=\S+ context='\S+' tenant='default' state=(\S+) seq=(\d+) node=\S+ trace=(\S*) correlation=''$"
)


def test_a_histogram_counts_up_to_each_bound() -> None:
    seen = Histogram((1, 2.5, 4))
    for value in (0, 1, 1.5, 2.5, 4.01, 100):
        seen.add(value)
    assert seen.cumulative() == [("1", 2), ("2.5", 4), ("4", 4), ("+Inf", 6)]
    assert seen.total == 109.01


def test_a_group_is_counted_by_what_became_of_its_appends() -> None:
    counters = Counters(())
    counters.group([1, Conflict(3), 7, StoreError("full"), Duplicate("t", 1, b"")], 0.002)
    assert counters.appends == {"written": 2, "conflict": 1, "duplicate": 1, "failed": 1}
    assert counters.commit_seconds.total == 0.002
    assert counters.commit_appends.total == 5


def test_refusals_are_requests_that_were_not_answered() -> None:
    counters = Counters(())
    for operation, outcome in (
        ("GetTask", "OK"),
        ("GetTask", "NO"),
        ("SendMessage", "NO"),
        ("GetTask", "OK"),
    ):
        counters.request(operation, outcome)
    assert counters.requests == {("GetTask", "OK"): 2, ("GetTask", "NO"): 1, ("SendMessage", "NO"): 1}
    assert counters.refusals() == {"NO": 2}


async def _send(agent: Agent) -> None:
    async with agent.test_client() as client:
        await client.send("hello")


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_mounted_agent_logs_its_tasks_through_logging(caplog: pytest.LogCaptureFixture, level: int) -> None:
    agent = Agent("mounted", store="memory:")

    @agent.skill()
    async def echo(text: str) -> str:
        """Say it back."""
        return text

    with caplog.at_level(level, "trunkline.task"):
        asyncio.run(_send(agent))
    found = [LINE.match(record.getMessage()) for record in caplog.records if record.name == "trunkline.task"]
    states = [match[1] for match in found if match]
    assert len(states) == len(found)
    assert states == (["submitted", "working", "completed"] if level == logging.INFO else [])


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_served_agent_logs_each_change_with_its_ids(tmp_path: Path, form: str) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--log-format", form) as server:
        caller = Caller(server.base, headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
        task = caller.send("echo planted", contextId="my context")
        caller.close()
        assert server.stop() == 0
    lines = [line for line in server.text().splitlines() if "task.state" in line]
    assert "planted" not in server.text()
    if form == "json":
        found = [json.loads(line) for line in lines]
        assert [line["state"] for line in found] == ["submitted", "working", "completed"]
        for line in found:
            assert (line["task"], line["context"], line["tenant"]) == (task["id"], "my context", "default")
            assert (line["trace"], line["level"], line["logger"]) == (trace_id, "info", "trunkline.task")
        assert [line["seq"] for line in found] == [1, 2, 4] and found[0]["node"] == found[1]["node"] != ""
        assert found[0]["time"] <= found[1]["time"]
    else:
        start = f"task.state agent=trunkline-demo task={task['id'][-8:]} state="
        shown = [line.partition(start)[2].split() for line in lines]
        assert [state for state, _ in shown] == ["submitted", "working", "completed"]
        assert all(re.fullmatch(r"duration=\d+ms", duration) for _, duration in shown)
