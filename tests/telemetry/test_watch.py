"""Every committed change of a task is counted and logged, wherever the agent is mounted."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from trunkline import Agent
from trunkline.app import build

LINE = re.compile(
    r"task\.state task=\S+ context='\S+' tenant='default' state=(\S+) seq=(\d+) node=\S+ trace=(\S*)$"
)


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
    assert states == (["submitted", "completed"] if level == logging.INFO else [])


def test_metrics_without_their_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from trunkline.errors import Misuse

    agent = Agent("bare", store="memory:")
    agent.skill()(_nothing)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "trunkline.telemetry.metrics", raising=False)
    with pytest.raises(Misuse, match=r"pip install 'trunkline\[metrics\]'"):
        build(agent, {"metrics": True})


async def _nothing(text: str) -> str:
    """Say it back."""
    return text
