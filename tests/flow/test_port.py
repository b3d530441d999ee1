"""The operations on runs: the vectors of every surface, on the port alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flow import vectors
from tests.flow.workbench import CALLER
from trunkline.errors import FlowRefused
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.listing import ListQuery
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import Submission
from trunkline.flow.results import RunPage

STORES = ["memory:", "sqlite:///{}/runs.db"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("vector", vectors.vectors("parity"))
async def test_parity_vectors(vector: dict[str, Any], store: str, tmp_path: Path) -> None:
    doers: Any = {}
    if "stubActivityOutputs" in vector:
        doers["activities"] = StubActivities(vector["stubActivityOutputs"])
    async with LocalFlows(store.format(tmp_path), **doers) as flows:
        flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        for step in vector["steps"]:
            await _step(flows, vector, step)


async def _step(flows: LocalFlows, vector: dict[str, Any], step: dict[str, Any]) -> None:
    code = ""
    told: dict[str, Any] = {}
    try:
        found = await _call(flows, vector, step)
        told = msgspec.to_builtins(found)
        if told.get("status") == "failed":
            code = told.get("code") or "ENGINE_FAILURE"
    except FlowRefused as refused:
        code = refused.code
    assert bool(code) == bool(step.get("expectError")), (step, code, told)
    if "expectErrorCode" in step:
        assert code == step["expectErrorCode"]
    if step["op"] == "list":
        runs = told["executions"]
        told = {
            **told,
            "execution_count": len(runs),
            "execution_ids": sorted(run["execution_id"] for run in runs),
        }
    for name, value in step.get("expect", {}).items():
        assert told.get(name) == value, (step, told)


async def _call(flows: LocalFlows, vector: dict[str, Any], step: dict[str, Any]) -> Any:
    port, execution = flows.port, vector["executionId"]
    document = vectors.document(vector["definition"])
    inputs: list[dict[str, Any]] = [one["input"] for one in vector["steps"] if "input" in one]
    given = inputs[0] if inputs else {}
    mode: Any = {"mode": step["activityExecutionMode"]} if "activityExecutionMode" in step else {}
    match step["op"]:
        case "start":
            execution = step.get("executionId", execution)
            return await port.start(
                CALLER, document, step.get("input", given), execution_id=execution, **mode
            )
        case "status":
            return await port.status(CALLER, execution)
        case "resume":
            return await port.resume(CALLER, execution, step["resumePayload"], definition=document, **mode)
        case "submit_activity":
            outcome = msgspec.convert(step["outcome"], Submission)
            return await port.submit_activity(
                CALLER,
                execution,
                step["nodeId"],
                outcome,
                definition=document,
                given=given,
                span=step.get("expectedParallelSpan"),
                **mode,
            )
        case "signal":
            return await port.signal(
                CALLER,
                execution,
                step["signalName"],
                step.get("payload", {}),
                definition=document,
                given=given,
                **mode,
            )
        case "cancel":
            return await port.cancel(CALLER, execution, step.get("reason", ""))
        case _:
            query = ListQuery(
                phase=step.get("listPhase", ""),
                limit=step.get("listLimit", 50),
                cursor=step.get("listCursor", ""),
            )
            page: RunPage = await port.list(CALLER, query)
            return page
