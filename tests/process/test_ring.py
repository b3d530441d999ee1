"""Row 34: agents that call each other in a ring come to an end by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import Agent, ServerProcess, text_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Three of them, each with a store of its own."""
    places = [tmp_path_factory.mktemp("ring") for _ in range(3)]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    flags = ("--log-level", "warning", "--set", "task_budget=64")
    servers = [ServerProcess(place, "tests.process.ring:agent", *flags, store="memory:") for place in places]
    with ExitStack() as stack:
        for server, following in zip(servers, [*servers[1:], servers[0]], strict=True):
            server._env |= {"PYTHONPATH": path, "NEXT": following.base}
            stack.enter_context(server)
        agents = [Agent(server.base) for server in servers]
        yield agents
        for agent in agents:
            agent.close()


def _count(ring: list[Agent]) -> list[int]:
    return [agent.result("ListTasks", {"pageSize": 1})["totalSize"] for agent in ring]


@pytest.mark.parametrize(("text", "end"), [("line", "ended CHAIN_HOPS"), ("stubborn", "refused CHAIN_HOPS")])
def test_a_ring_stops_at_depth_eight(ring: list[Agent], text: str, end: str) -> None:
    before = _count(ring)
    assert text_of(ring[0].send(text)) == "task " * 8 + end
    assert [after - count for after, count in zip(_count(ring), before, strict=True)] == [3, 3, 2]


def test_a_tree_makes_no_more_tasks_than_its_budget(ring: list[Agent]) -> None:
    before = sum(_count(ring))
    said = text_of(ring[1].send("tree"))
    made = sum(_count(ring)) - before
    assert made == said.count("task ")
    assert 32 <= made <= 64, said


def test_a_branch_cannot_ask_for_more(ring: list[Agent]) -> None:
    before = sum(_count(ring))
    ring[2].send("tree", metadata={"trunkline.chain": {"root": "elsewhere", "hops": 5, "budget": 10**9}})
    assert sum(_count(ring)) - before <= 64
