"""Vectors on every surface: the operations alone, the tools of MCP, and REST by its client; parity on each store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import convert

from tests.flow import vectors
from tests.flow.conftest import KEY
from tests.flow.surfaces import PARKING, SURFACES, Call, snake, surface
from tests.harness import ServerProcess
from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.flow.local import LocalFlows
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient


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
    code, told = await call(step["op"], _arguments(vector, step))
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
    for camel, name in names.items():
        if camel in step:
            value = step[camel]
            given[name] = snake(value) if camel in ("outcome", "expectedParallelSpan") else value
    return msgspec.json.decode(msgspec.json.encode(given))


# Nothing is done by it, so that definitions whose work nobody here can do may be started too.
BEGUN: dict[str, Any] = {"input": {}, "activity_execution_mode": "host_mediated"}


@pytest.mark.parametrize("name", SURFACES)
async def test_schema_vectors_on_surfaces(name: str) -> None:
    """A definition is refused where it is started, with the diagnostics that the vector names."""
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        for vector in vectors.of_kind("schema"):
            given = {**BEGUN, "definition": vectors.document(vector["definition"])}
            code, told = await call("start", given)
            expected = vector["expect"]
            assert (code != "VALIDATION_ERROR") is expected["ok"], (vector["id"], told)
            if not expected["ok"]:
                found = told["error"]["details"]["errors"]
                vectors.check_diagnostics(vector, [convert(one, Diagnostic) for one in found])


@pytest.mark.parametrize("name", SURFACES)
async def test_signing_vectors_on_surfaces(name: str) -> None:
    """A definition whose signature is not as it must be is not started, and one with a right one is (D15)."""
    for vector in vectors.of_kind("signing"):
        document, policy = vectors.signed(vector)
        async with LocalFlows(limits=PARKING) as flows, surface(name, flows, policy) as call:
            code, told = await call("start", {**BEGUN, "definition": document})
            assert code == ("" if vector["expect"]["ok"] else "VALIDATION_ERROR"), (vector["id"], told)
