"""The parity vectors on every surface and store: the operations alone, the tools of MCP, and REST by its client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from mcp import Client

from tests.flow import vectors
from tests.flow.conftest import KEY
from tests.flow.surfaces import PARKING, control, served
from tests.harness import ServerProcess
from trunkline.auth.references import KeyReference, Secrets
from trunkline.errors import FlowRefused
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.flow.local import LocalFlows
from trunkline.flow.mcp_server import FlowTools
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

Call = Callable[[str, dict[str, Any]], Awaitable[tuple[str, dict[str, Any]]]]
SURFACES = ["library", "mcp", "rest"]


@asynccontextmanager
async def surface(name: str, flows: LocalFlows) -> AsyncGenerator[Call]:
    """Calls by a surface; each has a tenant of its own, so that all may have the same execution ids."""

    async def plain(operation: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        found = await control(flows, name).call(operation, given)
        return (found.get("code") or "ENGINE_FAILURE") if found.get("status") == "failed" else "", found

    if name == "library":
        yield plain
    elif name == "mcp":
        async with Client(FlowTools(control(flows, name)).server()) as client:

            async def tool(operation: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
                found = await client.call_tool(f"workflow_{operation}", given)
                told = found.structured_content or {}
                return told["error"]["code"] if found.is_error else "", told

            yield tool
    else:
        async with served(flows, name) as client:

            async def rest(operation: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
                if operation != "start":
                    return "", await client.call(operation, given)
                # As a host does it that has no definition in its hands: by one that is registered.
                definition = given.pop("definition")
                try:
                    await client.register(definition)
                except FlowRefused as known:
                    assert known.code == "DUPLICATE_WORKFLOW_ID"
                name = definition["document"]["name"].lower()
                return "", await client.start(name, given)

            yield rest


@pytest.mark.parametrize("vector", vectors.vectors("parity"))
async def test_parity_vectors(
    vector: dict[str, Any], flow_store: str, request: pytest.FixtureRequest
) -> None:
    """Each surface does as the vector says, and all say the same at each step."""
    executors: Any = {}
    if "stubActivityOutputs" in vector:
        executors["activities"] = StubActivities(vector["stubActivityOutputs"])
    http_client = SocketHttpClient(Egress(loopback=True))
    if vector.get("useProductionA2ADelegate"):
        coder: ServerProcess = request.getfixturevalue("coder")
        config = TasksConfig(f"{coder.base}/delegate", KeyReference(env="KEY"), poll_ms=10, timeout_ms=30_000)
        tasks = HttpTasks(config.url, http_client)
        executors["delegates"] = TasksDelegate(config, tasks, Secrets({"KEY": KEY}))
    told: list[list[dict[str, Any]]] = []
    async with LocalFlows(flow_store, limits=PARKING, **executors) as flows:
        flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        for name in SURFACES:
            async with surface(name, flows) as call:
                told.append([await _step(call, vector, step) for step in vector["steps"]])
    await http_client.close()
    assert told[0] == told[1] == told[2]


async def _step(call: Call, vector: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    try:
        code, told = await call(step["op"], _arguments(vector, step))
    except FlowRefused as refused:
        code, told = refused.code, {}
    assert bool(code) == bool(step.get("expectError")), (step, code, told)
    if "expectErrorCode" in step:
        assert code == step["expectErrorCode"]
    if step["op"] == "list":
        runs: list[str] = [run["execution_id"] for run in told["executions"]]
        told = {**told, "execution_count": len(runs), "execution_ids": sorted(runs)}
        told.pop("executions")
    for member, value in step.get("expect", {}).items():
        assert told.get(member) == value, (step, told)
    return {"code": code} if code else told


def _arguments(vector: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    inputs: list[dict[str, Any]] = [one["input"] for one in vector["steps"] if "input" in one]
    given: dict[str, Any] = {"execution_id": vector["executionId"]}
    match step["op"]:
        case "start":
            given["execution_id"] = step.get("executionId", vector["executionId"])
            given["input"] = step.get("input", inputs[0] if inputs else {})
        case "list":
            given = {}
        case "submit_activity" | "signal":
            given["input"] = inputs[0] if inputs else {}
        case _:
            pass
    if step["op"] in ("start", "resume", "submit_activity", "signal"):
        given["definition"] = vectors.document(vector["definition"])
    names = {
        "resumePayload": "resume_payload", "nodeId": "node_id", "outcome": "outcome",
        "expectedParallelSpan": "parallel_span", "signalName": "signal_name", "payload": "payload",
        "reason": "reason", "listPhase": "phase", "listLimit": "limit", "listCursor": "cursor",
        "activityExecutionMode": "activity_execution_mode",
    }  # fmt: skip
    for camel, snake in names.items():
        if camel in step:
            value = step[camel]
            given[snake] = _snake(value) if camel in ("outcome", "expectedParallelSpan") else value
    return msgspec.json.decode(msgspec.json.encode(given))


def _snake(members: dict[str, Any]) -> dict[str, Any]:
    words = {"delegateCorrelationId": "delegate_correlation_id", "externalTaskId": "external_task_id"}
    words |= {"parallelNodeId": "parallel_node_id", "joinTargetId": "join_target_id"}
    words |= {"branchName": "branch_name", "branchEntryNodeId": "branch_entry_node_id"}
    return {words.get(name, name): value for name, value in members.items()}
