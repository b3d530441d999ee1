"""Workflows in one process: runs that delegate to an agent, each with its child task, against plain tasks."""

from __future__ import annotations

import asyncio
import tempfile
from time import perf_counter, process_time
from typing import Any

from bench.generator import run
from bench.scenario import Sample, Scale
from bench.servers import Contender
from trunkline.cli.serve import collect_garbage_rarely
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.log.events import Chunk, Status
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.node import HostedAgent
from trunkline.wire.types import Artifact, Message, Part, Role, SendRequest, TaskState

# How many runs, or sends, are under way at a time.
TOGETHER = 64
DONE = Status(TaskState.COMPLETED)
ANSWER = Chunk(Artifact("out", parts=(Part(data={"patch": "done"}),)), last=True)
DOCUMENT: dict[str, Any] = {
    "document": {
        "schema": "https://agent-workflow.dev/schemas/workflow-definition.json",
        "name": "delegate",
        "version": "1.0.0",
    },
    "state_schema": {"type": "object", "properties": {"task": {"type": "string"}}},
    "nodes": [
        {"id": "start", "type": "start"},
        {
            "id": "implement",
            "type": "agent_delegate",
            "config": {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}},
        },
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"source": "__start__", "target": "start"},
        {"source": "start", "target": "implement"},
        {"source": "implement", "target": "end"},
    ],
}


class Coder:
    """An agent that is done at once."""

    works_elsewhere = False

    def agent(self, tenant: str, agent_id: str) -> str | None:
        """All delegations are its tasks."""
        del tenant
        return agent_id

    def admit(self, request: SendRequest) -> str:
        """Every message is taken."""
        del request
        return "code"

    def named(self, name: str) -> str:
        """Every name is its own."""
        return name

    def on_crash(self, skill: str) -> OnCrash:
        """Nothing is lost by a crash."""
        del skill
        return OnCrash.RESUME

    async def close(self) -> None:
        """It holds nothing."""

    async def run(self, work: Work) -> Verdict:
        """Answer."""
        work.put(ANSWER)
        return DONE


def flow(contender: Contender, scale: Scale) -> Sample:
    """Runs, or for the spine sends to the same agent, per second."""
    kind, _, store = contender.name.partition("-")
    with tempfile.TemporaryDirectory() as scratch:
        url = "memory:" if store == "memory" else f"sqlite:///{scratch}/tasks.db"
        return run(_measure(url, scale, sends=kind == "spine"))


async def _measure(url: str, scale: Scale, *, sends: bool) -> Sample:
    coder = Coder()
    # As in a process that serves, for runs and sends alike.
    collect_garbage_rarely()
    async with LocalFlows(url, carried=[HostedAgent("coder", coder)], agents=coder) as flows:
        once = _send if sends else _run
        begin = perf_counter() + scale.warm
        end, count, cpu = begin + scale.seconds, 0, 0.0

        async def work() -> None:
            nonlocal count, cpu
            while (now := perf_counter()) < end:
                await once(flows)
                if now >= begin:
                    count += 1
                else:
                    cpu = process_time()

        await asyncio.gather(*(work() for _ in range(TOGETHER)))
        return Sample(count / scale.seconds, cpu_us=(process_time() - cpu) / max(1, count) * 1e6)


async def _run(flows: LocalFlows) -> None:
    result = await flows.port.start(FlowCaller(), DOCUMENT, {"task": "add a test"})
    if result.status != "completed":
        raise AssertionError(f"a run ended as {result.status}: {result.error}")


async def _send(flows: LocalFlows) -> None:
    runner = flows.runner
    message = Message(runner.ids.new(), role=Role.USER, parts=(Part(text="add a test"),))
    feed, acknowledged = runner.submit("default", "anonymous", SendRequest(message), agent="coder")
    await acknowledged
    await runner.tasks.rest(feed, 60.0)
    feed.state.task()
