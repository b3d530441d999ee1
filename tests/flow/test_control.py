"""Vectors on every surface: the operations alone, the tools of MCP, and REST by its client; parity on each store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import convert

from tests.flow import vectors
from tests.flow.conftest import KEY
from tests.flow.surfaces import (
    ASK,
    DELEGATE,
    PARKING,
    SIGNAL,
    SURFACES,
    TOOL,
    Call,
    control,
    snake,
    surface,
    workflow,
)
from tests.harness import ServerProcess
from trunkline.auth.references import KeyReference, Secrets
from trunkline.errors import FlowRefused, InvalidParams
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.local import LocalFlows
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.types import Message, Part, Role


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
    # Before the surface is opened: a skip in its task group has no reason.
    of_schemas = vectors.of_kind("schema")
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        for vector in of_schemas:
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


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize(
    "changed",
    [
        {"definition": workflow(SIGNAL, name="Another one")},
        {"input": {"topic": "coffee"}},
        {"activity_execution_mode": "in_process"},
    ],
)
async def test_repeated_start_with_another_order_is_refused_as_a_duplicate(
    name: str, changed: dict[str, Any]
) -> None:
    order = {**BEGUN, "definition": workflow(TOOL), "input": {"topic": "tea"}, "execution_id": "e"}
    again = {**order, "allow_existing_execution_id": True}
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        first = await call("start", order)
        code, told = await call("start", {**again, **changed})
        assert (code, told["error"]["code"]) == ("DUPLICATE_EXECUTION_ID",) * 2
        assert told["error"]["details"]["different"] == list(changed)
        assert await call("start", again) == first


COUNTED: dict[str, Any] = {
    "state_schema": {
        "type": "object",
        "properties": {"out": {"type": "array", "reducer": "append", "maxItems": 1}},
    }
}
TWICE, ONCE = {"out": [1, 2]}, {"out": [1]}
LOOSE_ASK = {**ASK, "config": {**ASK["config"], "resume_schema": {"type": "object", "minProperties": 1}}}


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize(
    ("node", "operation", "payload", "code"),
    [
        (
            TOOL,
            "submit_activity",
            lambda result: {"node_id": "work", "outcome": {"ok": True, "result": result}},
            "SUBMIT_VALIDATION_ERROR",
        ),
        (LOOSE_ASK, "resume", lambda answer: {"resume_payload": answer}, "INVALID_RESUME_PAYLOAD"),
        (
            SIGNAL,
            "signal",
            lambda payload: {"signal_name": "approved", "payload": payload},
            "SIGNAL_VALIDATION_ERROR",
        ),
    ],
)
async def test_result_that_breaks_the_state_schema_is_refused_and_the_run_still_waits(
    name: str,
    node: dict[str, Any],
    operation: str,
    payload: Callable[[dict[str, Any]], dict[str, Any]],
    code: str,
) -> None:
    document = workflow(node, **COUNTED)
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        start = {"definition": document, "input": {}, "execution_id": "e"}
        _, waiting = await call("start", {**start, "activity_execution_mode": "host_mediated"})
        given = {"execution_id": "e", "definition": document, "input": {}}
        refused, told = await call(operation, {**given, **payload(TWICE)})
        assert refused == code
        assert "state_schema" in told["error"]["message"] and "/out" in told["error"]["message"]
        _, status = await call("status", {"execution_id": "e"})
        assert status["phase"] == waiting["status"]
        _, ended = await call(operation, {**given, **payload(ONCE)})
        assert (ended["status"], ended["final_state"]) == ("completed", ONCE)


async def test_result_for_a_nested_run_is_checked_against_the_state_of_that_run() -> None:
    nested = {"id": "nested", "type": "subworkflow", "config": {"workflow_ref": "child", "input_mapping": {}}}
    async with LocalFlows(limits=PARKING) as flows:
        flows.engine.workflows.add("child", workflow(TOOL, **COUNTED))
        call = control(flows).call
        start = {"definition": workflow(nested), "input": {}, "execution_id": "e"}
        await call("start", {**start, "activity_execution_mode": "host_mediated"})
        for execution_id in ("e", "e:sub:nested"):
            given = {"execution_id": execution_id, "node_id": "work"}
            with pytest.raises(FlowRefused, match="state_schema") as refused:
                await call("submit_activity", {**given, "outcome": {"ok": True, "result": TWICE}})
            assert refused.value.code == "SUBMIT_VALIDATION_ERROR"
        given = {"execution_id": "e", "node_id": "work", "outcome": {"ok": True, "result": ONCE}}
        assert (await call("submit_activity", given))["status"] == "completed"


async def test_answer_over_a2a_that_breaks_the_state_schema_is_refused() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        handle = await flows.start(workflow(LOOSE_ASK, **COUNTED), {}, execution_id="e")
        assert (await handle.wait()).status == "interrupted"
        feed = await flows.runner.tasks.load("default", run_task_id("e"))
        assert feed is not None
        with pytest.raises(InvalidParams, match="state_schema"):
            await flows.runner.say(feed, Message("m1", role=Role.USER, parts=(Part(data=TWICE),)))
        await flows.runner.say(feed, Message("m2", role=Role.USER, parts=(Part(data=ONCE),)))
        assert (await handle.wait()).final_state == ONCE


LOOP: dict[str, Any] = {
    "edges": [
        {"source": source, "target": target}
        for source, target in (("__start__", "start"), ("start", "implement"), ("implement", "enough"))
    ]
}
ENOUGH = {
    "id": "enough",
    "type": "switch",
    "config": {"cases": [{"when": ".n == 2", "target": "end"}], "default": "implement"},
}


@pytest.mark.parametrize("name", SURFACES)
async def test_late_duplicate_of_an_earlier_round_is_refused_on_every_surface(name: str) -> None:
    document = workflow(DELEGATE, ENOUGH, **LOOP)
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        start = {"definition": document, "input": {"task": "t"}, "execution_id": "e"}
        _, first = await call("start", {**start, "activity_execution_mode": "host_mediated"})
        given = {**start, "node_id": "implement"}

        def outcome(n: int) -> dict[str, Any]:
            told = {"ok": True, "result": {"n": n}, "delegate_correlation_id": "e:delegate:implement"}
            return {"outcome": told}

        _, second = await call("submit_activity", {**given, **outcome(1)})
        assert (second["status"], second["activity_id"] == first["activity_id"]) == (
            "awaiting_activity",
            False,
        )
        for late in ({}, {"activity_id": first["activity_id"]}):
            code, _ = await call("submit_activity", {**given, **outcome(1), **late})
            assert code == "ACTIVITY_SUBMIT_NOT_AWAITING"
        _, status = await call("status", {"execution_id": "e"})
        assert (status["phase"], status["activity_id"]) == ("awaiting_activity", second["activity_id"])
        right = {**given, **outcome(2), "activity_id": second["activity_id"]}
        assert (await call("submit_activity", right))[1]["final_state"] == {"task": "t", "n": 2}


@pytest.mark.parametrize("name", SURFACES)
async def test_delegated_result_that_breaks_the_state_schema_is_refused_and_stays_open(name: str) -> None:
    document = workflow(DELEGATE, **COUNTED)
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        start = {"definition": document, "input": {}, "execution_id": "e"}
        await call("start", {**start, "activity_execution_mode": "host_mediated"})
        told = {"ok": True, "delegate_correlation_id": "e:delegate:implement"}
        given = {**start, "node_id": "implement"}
        refused, _ = await call("submit_activity", {**given, "outcome": {**told, "result": TWICE}})
        assert refused == "SUBMIT_VALIDATION_ERROR"
        _, ended = await call("submit_activity", {**given, "outcome": {**told, "result": ONCE}})
        assert (ended["status"], ended["final_state"]) == ("completed", ONCE)
