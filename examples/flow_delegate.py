"""A workflow in this program delegates to an agent: a task that is submitted and looked at until it ends.

CODER_KEY=a-long-random-key trunkline serve flow_delegate:coder --key a-long-random-key
CODER_KEY=a-long-random-key python flow_delegate.py http://127.0.0.1:8000/delegate
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

from trunkline import Agent
from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow import LocalFlows
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
WAY = ["__start__", "begin", "implement", "done"]
# The document names the agent and what it gets; where the agent is and its key are the operator's.
MAPPED = {"task": "${ .task }"}
DEFINITION: dict[str, Any] = {
    "document": {"schema": SCHEMA, "name": "delegate", "version": "1.0.0"},
    "state_schema": {"type": "object", "properties": {"task": {"type": "string"}}},
    "nodes": [
        {"id": "begin", "type": "start"},
        {
            "id": "implement",
            "type": "agent_delegate",
            "config": {"agent_id": "coder", "protocol": "a2a", "input_mapping": MAPPED},
        },
        {"id": "done", "type": "end"},
    ],
    "edges": [{"source": source, "target": target} for source, target in itertools.pairwise(WAY)],
}
coder = Agent("coder", description="Writes patches")


@coder.skill
async def implement(task: str) -> dict[str, str]:
    """Write a patch."""
    return {"patch": f"// {task}"}


async def main(url: str) -> None:
    """Run the workflow, and print what its history says of the delegation."""
    http_client = SocketHttpClient(Egress(loopback=True))
    config = TasksConfig(url, KeyReference(env="CODER_KEY"), poll_ms=50)
    delegates = TasksDelegate(config, HttpTasks(url, http_client), Secrets())
    async with LocalFlows(delegates=delegates) as flows:
        run = await flows.start(DEFINITION, {"task": "implement feature X"}, execution_id="run-1")
        async for row in run.events():
            if row.name == "ActivityCompleted":
                print(row.payload["delegateCorrelationId"], "is task", row.payload["externalTaskId"])
        result = await run.wait()
    print(result.status, result.result)
    await http_client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
