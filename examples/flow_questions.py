"""A host has an agent do what a workflow delegates, and answers what the agent asks meanwhile.

trunkline serve flow_questions:coder --port 8000
trunkline flow serve --port 8787
python flow_questions.py http://127.0.0.1:8787 http://127.0.0.1:8000
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

from trunkline import Agent, Client, Turn
from trunkline.flow.client import FlowClient
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
WAY = ["__start__", "begin", "implement", "done"]
CODER = {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}}
DEFINITION: dict[str, Any] = {
    "document": {"schema": SCHEMA, "name": "interactive", "version": "1.0.0"},
    "state_schema": {"type": "object"},
    "nodes": [
        {"id": "begin", "type": "start"},
        {"id": "implement", "type": "agent_delegate", "config": CODER},
        {"id": "done", "type": "end"},
    ],
    "edges": [{"source": source, "target": target} for source, target in itertools.pairwise(WAY)],
}
MEDIATED = {"activity_execution_mode": "host_mediated"}
coder = Agent("coder", description="Writes patches, and asks how")


@coder.skill
async def implement(turn: Turn) -> str:
    """Write a patch in the style that is wanted."""
    style = await turn.ask("Which API style should the patch use?")
    return f"// {turn.text} ({style})"


async def main(engine: str, agent: str) -> None:
    """Start the run, do its delegation by A2A with the answer to the question, and submit the outcome."""
    http_client = SocketHttpClient(Egress(loopback=True))
    flows, given = FlowClient(engine, http_client), {"task": "implement feature X"}
    told = await flows.call("start", {"definition": DEFINITION, "input": given, **MEDIATED})
    print(told["status"], told["agent_id"], told["delegate_input"])
    async with Client(agent) as client:
        # No call of the engine is open meanwhile: this may take days.
        result = await client.send(told["delegate_input"]["task"])
        while result.question:
            print(result.question)
            result = await client.send("REST", task_id=result.task_id)
    outcome = {"ok": True, "result": {"patch": result.text}, "external_task_id": result.task_id}
    outcome["delegate_correlation_id"] = told["delegate_correlation_id"]
    run = {"execution_id": told["execution_id"], "definition": DEFINITION, "input": given}
    told = await flows.call("submit_activity", {**run, "node_id": told["node_id"], "outcome": outcome})
    print(told["status"], told["result"])
    await http_client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
