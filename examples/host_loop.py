"""A host drives a workflow itself: it does the activities, hands agents their work and answers for a person.

trunkline flow serve --port 8787
python host_loop.py http://127.0.0.1:8787
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

from trunkline.flow.client import FlowClient
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

MEDIATED = {"activity_execution_mode": "host_mediated"}
SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
CODER = {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}}
ANSWER = {"type": "object", "required": ["merge"]}
WAY = ["__start__", "begin", "implement", "approve", "done"]
DEFINITION: dict[str, Any] = {
    "document": {"schema": SCHEMA, "name": "patch", "version": "1.0.0"},
    "state_schema": {"type": "object"},
    "nodes": [
        {"id": "begin", "type": "start"},
        {"id": "implement", "type": "agent_delegate", "config": CODER},
        {"id": "approve", "type": "interrupt", "config": {"prompt": "Merge it?", "resume_schema": ANSWER}},
        {"id": "done", "type": "end"},
    ],
    "edges": [{"source": source, "target": target} for source, target in itertools.pairwise(WAY)],
}


async def work(told: dict[str, Any]) -> dict[str, Any]:
    """What the host's own agent gives; here it may take its time and ask back, as nobody waits in a call."""
    return {
        "ok": True,
        "result": {"patch": f"// {told['delegate_input']['task']}"},
        "external_task_id": "t-1",
    }


async def main(url: str) -> None:
    """Start a run, and do whatever it waits for until it has ended."""
    http_client = SocketHttpClient(Egress(loopback=True))
    flows, given = FlowClient(url, http_client), {"task": "implement feature X"}
    told = await flows.call("start", {"definition": DEFINITION, "input": given, **MEDIATED})
    run = {"execution_id": told["execution_id"], "definition": DEFINITION, **MEDIATED}
    while told["status"] != "completed":
        print(told["status"], "at", told["node_id"])
        if told["status"] == "awaiting_activity":
            outcome = {**await work(told), "delegate_correlation_id": told["delegate_correlation_id"]}
            activity = {"node_id": told["node_id"], "activity_id": told["activity_id"]}
            submitted = {**run, "input": given, **activity, "outcome": outcome}
            told = await flows.call("submit_activity", submitted)
        else:
            told = await flows.call("resume", {**run, "resume_payload": {"merge": True}})
    print(told["status"], told["result"])
    await http_client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
