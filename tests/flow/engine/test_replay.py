"""Rows against a walk that comes by them again: the vectors, and cuts behind every row."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from tests.flow import vectors
from tests.flow.documents import DELEGATE, flow_document, fork, tool
from tests.flow.surfaces import PARKING, SURFACES, Call, snake, surface
from tests.flow.workbench import CALLER, Counting, RejectingActivities, RejectingDelegate, seed
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.activities.steps import StepExecutor, StepRegistry
from trunkline.flow.delegates.mock import MockDelegate
from trunkline.flow.engine.rows import is_command
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.forms import ActivitySubmission
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.flow.results import RunResult
from trunkline.log.events import FlowRow, FlowRows


def _activities(vector: dict[str, Any]) -> Any:
    if vector.get("assertNoActivityExecutorInvocation"):
        return RejectingActivities()
    if (counted := vector.get("retryCountingExecutor")) is not None:
        failing = Outcome(ok=False, error="not yet", code=counted.get("errorCode", "TRANSIENT"))
        count = counted.get("failCount", 2)
        return _Retried(failing, count, counted.get("successOutput", {}))
    if (handlers := vector.get("stepHandlers")) is not None:
        registry = StepRegistry()
        for name, output in handlers.items():
            registry.fixed(name, output)
        return StepExecutor(registry)
    return StubActivities()


class _Retried:
    """Fails so many times in each run, then gives an output."""

    def __init__(self, failing: Outcome, count: int, output: dict[str, Any]) -> None:
        self._failing, self._count, self._output = failing, count, output
        self._calls = Counter[str]()

    async def execute(self, activity: Activity) -> Outcome:
        self._calls[activity.execution_id] += 1
        failing = self._calls[activity.execution_id] <= self._count
        return self._failing if failing else Outcome(ok=True, output=self._output)


@pytest.mark.parametrize("vector", vectors.vectors("replay"))
async def test_replay_vectors(vector: dict[str, Any], flow_store: str) -> None:
    """On each surface: where a vector begins with rows, the log of the run does, and the start goes on with it."""
    delegates = RejectingDelegate() if vector.get("assertNoDelegateExecutorInvocation") else MockDelegate()
    async with LocalFlows(
        flow_store, limits=PARKING, activities=_activities(vector), delegates=delegates
    ) as flows:
        if not vector.get("assertNoSubworkflowInvocation"):
            flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        for name in SURFACES:
            async with surface(name, flows) as call:
                await _replay(flows, vector, name, call)


async def _replay(flows: LocalFlows, vector: dict[str, Any], tenant: str, call: Call) -> None:
    document, given = vectors.document(vector["definition"]), vector.get("input", {})
    mode = {"activity_execution_mode": vector.get("activityExecutionMode", "in_process")}
    # The executors of all surfaces are the same: they know the runs apart by their ids.
    run: dict[str, Any] = {"execution_id": f"{vector['id']}::{tenant}", "definition": document}
    execution = run["execution_id"]
    prefix = [FlowRow(row["name"], row.get("payload", {})) for row in vector.get("historyPrefix", [])]
    if prefix:
        await seed(
            flows, document, given, prefix, execution_id=execution, mode=mode["activity_execution_mode"],
            tenant=tenant,
        )  # fmt: skip
    existing = {"allow_existing_execution_id": bool(prefix)}
    status = _status(await call("start", {**run, "input": given, **mode, **existing}))
    for submission in vector.get("activitySubmissions", []):
        told: dict[str, Any] = {"node_id": submission["nodeId"], "outcome": snake(submission["outcome"])}
        if "expectedParallelSpan" in submission:
            told["parallel_span"] = snake(submission["expectedParallelSpan"])
        changed = {"definition": {**document, **submission.get("definitionTamper", {})}}
        answer = await call("submit_activity", {**run, **changed, **told, "input": given, **mode})
        if (failure := submission.get("expectFailure")) is not None:
            assert answer[0] == failure["code"], answer
        else:
            status = _status(answer)
    if "resumePayload" in vector:
        changed = {"definition": {**document, **vector.get("resumeDefinitionTamper", {})}}
        status = _status(await call("resume", {**run, **changed, "resume_payload": vector["resumePayload"]}))
    _compare(vector, status, await flows.port.rows(FlowCaller(tenant), execution), len(prefix))


def _status(answer: tuple[str, dict[str, Any]]) -> str:
    code, told = answer
    return "failed" if code else told["status"]


def _compare(vector: dict[str, Any], status: str, rows: list[ShownRow], prefix: int) -> None:
    expect = vector["expect"]
    assert status == expect["status"], rows[-1]
    if "tailCommands" in expect:
        tail = [row for row in rows[prefix:] if is_command(row.name)]
        assert [
            {"name": row.name, "nodeId": row.payload.get("nodeId")}
            if "nodeId" in wanted
            else {"name": row.name}
            for row, wanted in zip(tail, expect["tailCommands"], strict=True)
        ] == expect["tailCommands"]
    for name, count in expect.get("eventCardinality", {}).items():
        found = [row.payload.get("nodeId") for row in rows if row.name == name]
        if isinstance(count, dict):
            each = cast("dict[str, int]", count)
            assert {node: found.count(node) for node in each} == each
        else:
            assert len(found) == count
    if (mismatch := expect.get("mismatch")) is not None:
        failed = [row for row in rows if row.name == "ExecutionFailed"][-1].payload
        assert mismatch["messageIncludes"].lower() in failed["error"].lower()
        for side in ("expected", "actual"):
            told = failed["context"][side]
            assert {name: told[name] for name in mismatch[side]} == mismatch[side]


LOOP = flow_document(
    tool("count"),
    {
        "id": "again",
        "type": "switch",
        "config": {"cases": [{"when": ".n < 3", "target": "count"}], "default": "note"},
    },
    {"id": "note", "type": "set_state", "config": {"assignments": {"seen": {"jq": ".n"}}}},
    edges=[("start", "count"), ("count", "again"), ("note", "end")],
    properties={"seen": {"type": "array", "reducer": "append"}},
)
BRANCHES = flow_document(
    fork("both", "all", "left", "right"),
    tool("left"),
    {**DELEGATE, "id": "right"},
    tool("inner"),
    fork("nested", "n_of_m", "one", "two", n=1),
    {"id": "one", "type": "wait", "config": {"kind": "duration", "duration_ms": 0}},
    tool("two"),
    tool("last", retry={"max_attempts": 3}),
    edges=[
        ("start", "both"), ("left", "nested"), ("nested", "last"), ("one", "last"), ("two", "last"),
        ("right", "inner"), ("inner", "last"), ("both", "last"), ("last", "end"),
    ],
    properties={"notes": {"type": "array", "reducer": "append"}},
)  # fmt: skip
ASKING = flow_document(
    tool("draft"),
    {
        "id": "review",
        "type": "interrupt",
        "config": {"prompt": "Good?", "resume_schema": {"type": "object", "required": ["ok"]}},
    },
    {"id": "hold", "type": "wait", "config": {"kind": "signal", "signal": "go"}},
    {
        "id": "nest",
        "type": "subworkflow",
        "config": {"workflow_ref": "urn:child", "input_mapping": {"n": {"literal": 7}}},
    },
    checkpointing={"strategy": "every_n_nodes", "n": 2},
)
OUTPUTS: dict[str, Any] = {
    "count": [{"n": 1}, {"n": 2}, {"n": 3}],
    "left": {"notes": "l"},
    "right": {"notes": ["r"]},
    "inner": {"notes": "i"},
    "draft": {"text": "d"},
    "last": {"done": True},
    "classify": {"intent": "unsure", "confidence": 0.2},
    "web_collect": {"findings": ["w"]},
    "internal_collect": {"findings": ["i"]},
    "run_tests": {"tests_passed": True},
    "implement": {"patch": "p"},
}
PAYLOADS = {"human_review": {"intent": "billing"}, "review": {"ok": True, "approve": True}}
CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "loop": (lambda: LOOP, {"n": 0}, "in_process"),
    "branches": (lambda: BRANCHES, {"task": "t"}, "in_process"),
    "branches by the host": (lambda: BRANCHES, {"task": "t"}, "host_mediated"),
    "asking": (lambda: ASKING, {}, "in_process"),
    "lighthouse": (
        lambda: vectors.example("lighthouse-customer-routing"),
        {"ticket_text": "t"},
        "in_process",
    ),
    "research": (lambda: vectors.example("r2-research-parallel"), {"topic": "t"}, "in_process"),
    "agents": (lambda: vectors.example("r3-multi-agent-coding"), {"task": "t", "repo": "r"}, "in_process"),
    "host": (lambda: vectors.example("conformance-host-activity-parallel"), {}, "host_mediated"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_goes_on_behind_every_row(case: str) -> None:
    """Cut behind any row, a run ends as it would have; what is recorded is not done again."""
    made, given, mode = CASES[case]
    document = made()
    doer = _PerRun(OUTPUTS)
    async with LocalFlows(activities=doer, delegates=doer) as flows:
        flows.engine.workflows.add("urn:child", flow_document(tool("inside")))
        if (child := vectors.child_workflow()) is not None:
            flows.engine.workflows.add(vectors.UNIT_TESTS, child)
        await flows.start(document, given, execution_id="whole", mode=mode)
        whole = await _to_the_end(flows, "whole")
        assert whole.status == "completed", whole
        rows = await _stored(flows, "whole")
        told = _places(await flows.port.rows(CALLER, "whole"))
        for cut in range(len(rows) + 1):
            run = f"cut-{cut}"
            await seed(flows, document, given, rows[:cut], execution_id=run, mode=mode)
            result = await _to_the_end(flows, run)
            assert (result.status, result.final_state, result.result) == (
                whole.status, whole.final_state, whole.result,
            ), (cut, rows[cut - 1], result)  # fmt: skip
            assert _places(await flows.port.rows(CALLER, run)) == told, (cut, rows[cut - 1])
            for node in {row.payload.get("nodeId") for row in rows}:
                known = [row for row in rows[:cut] if row.payload.get("nodeId") == node]
                done = sum(row.name in ("ActivityCompleted", "ActivityFailed") for row in known)
                calls, all_calls = [doer.of_run.get((one, str(node)), 0) for one in (run, "whole")]
                # What a host did was never asked of the doer.
                assert calls == (all_calls - done if mode == "in_process" else 0), (cut, node)


class _PerRun(Counting):
    """Counts the calls of each run by themselves; in a run that was cut, those before the cut are missing."""

    async def execute(self, activity: Activity) -> Outcome:
        outcome = await super().execute(activity)
        if activity.node.id == "count":
            return Outcome(ok=True, output={"n": activity.state["n"] + 1})
        if activity.node.id == "last" and activity.attempt < 2:
            return Outcome(ok=False, error="not yet", code="TRANSIENT")
        return outcome


async def _to_the_end(flows: LocalFlows, run: str) -> RunResult:
    handle = flows.handle(run)
    while True:
        result = await handle.wait()
        match result.status:
            case "interrupted":
                await handle.resume(PAYLOADS[str(result.node_id)])
            case "awaiting_signal":
                await handle.signal(result.signal_name, {"by": "somebody"})
            case "awaiting_activity":
                node = str(result.node_id)
                fails = node == "last" and not (await _stored(flows, run))[-1].payload.get("attempt", 0) > 1
                outcome = ActivitySubmission(
                    ok=not fails,
                    result=OUTPUTS.get(node, {}),
                    error="not yet" if fails else "",
                    code="TRANSIENT" if fails else "",
                    delegate_correlation_id=result.delegate_correlation_id,
                )
                await handle.submit(node, outcome, result.parallel_span)
            case _:
                return result


async def _stored(flows: LocalFlows, run: str) -> list[FlowRow]:
    records = await flows.store.log.read("default", run_task_id(run))
    return [row for one in records if isinstance(one.event, FlowRows) for row in one.event.rows]


def _places(rows: list[ShownRow]) -> list[tuple[str, Any]]:
    return [(row.name, row.payload.get("nodeId")) for row in rows]
