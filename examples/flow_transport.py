"""A vendor's agents behind an API of another shape: a transport of one's own stands in the place of HTTP.

python flow_transport.py
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow import run
from trunkline.flow.delegates.tasks import TaskRecord, TasksConfig, TasksDelegate

SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
WAY = ["__start__", "begin", "implement", "done"]
CODER = {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}}
DEFINITION: dict[str, Any] = {
    "document": {"schema": SCHEMA, "name": "vendor", "version": "1.0.0"},
    "state_schema": {"type": "object"},
    "nodes": [
        {"id": "begin", "type": "start"},
        {"id": "implement", "type": "agent_delegate", "config": CODER},
        {"id": "done", "type": "end"},
    ],
    "edges": [{"source": source, "target": target} for source, target in itertools.pairwise(WAY)],
}


class Vendor:
    """Speaks to the vendor: here one that is inside this program and needs two looks."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Any]] = {}
        self._looks = 0

    async def submit_task(
        self, *, api_key: str, agent_id: str, correlation_id: str, input: dict[str, Any]
    ) -> TaskRecord:
        """Hand over the work; the same correlation id is the same job."""
        assert api_key == "vendor-key"
        self._jobs[correlation_id] = input
        print("submitted to", agent_id)
        return TaskRecord(correlation_id, "submitted")

    async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
        """Say how far it is."""
        del api_key
        self._looks += 1
        if self._looks < 2:
            return TaskRecord(task_id, "working")
        return TaskRecord(task_id, "completed", {"patch": f"// {self._jobs[task_id]['task']}"})


async def main() -> None:
    """Run the workflow."""
    config = TasksConfig("https://vendor.example", KeyReference(env="VENDOR_KEY"), poll_ms=10)
    delegates = TasksDelegate(config, Vendor(), Secrets({"VENDOR_KEY": "vendor-key"}))
    result = await run(DEFINITION, {"task": "implement feature X"}, delegates=delegates)
    print(result.status, result.result)


if __name__ == "__main__":
    asyncio.run(main())
