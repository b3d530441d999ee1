"""Rows against a walk that comes by them again: the vectors, and cuts behind every row."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.flow import vectors
from tests.flow.documents import DELEGATE, flow_document, fork, tool
from tests.flow.surfaces import PARKING
from tests.flow.workbench import CALLER, Counting, RejectingActivities, RejectingDelegate, seed
from trunkline.errors import FlowRefused
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.activities.steps import StepExecutor, StepRegistry
from trunkline.flow.delegates.mock import MockDelegate
from trunkline.flow.engine.rows import is_command
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import ActivitySubmission
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
    def __init__(self, failing: Outcome, count: int, output: dict[str, Any]) -> None:
        self._failing, self._left, self._output = failing, count, output

    async def execute(self, activity: Any) -> Outcome:
        del activity
        self._left -= 1
        return self._failing if self._left >= 0 else Outcome(ok=True, output=self._output)


@pytest.mark.parametrize("vector", vectors.vectors("replay"))
async def test_replay_vectors(vector: dict[str, Any], flow_store: str) -> None:
    document, given = vectors.document(vector["definition"]), vector.get("input", {})
    execution, mode = f"{vector['id']}::exec", vector.get("activityExecutionMode", "in_process")
    prefix = [FlowRow(row["name"], row.get("payload", {})) for row in vector.get("historyPrefix", [])]
    delegates = RejectingDelegate() if vector.get("assertNoDelegateExecutorInvocation") else MockDelegate()
    async with LocalFlows(
        flow_store, limits=PARKING, activities=_activities(vector), delegates=delegates
    ) as flows:
        if not vector.get("assertNoSubworkflowInvocation"):
            flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        if prefix:
            await seed(flows, document, given, prefix, execution_id=execution, mode=mode)
            result = await flows.handle(execution).wait()
        else:
            started = await flows.start(document, given, execution_id=execution, mode=mode)
            result = await started.wait()
        for submission in vector.get("activitySubmissions", []):
            result = await _submit(flows, vector, submission, result, mode=mode)
        if "resumePayload" in vector:
            tampered = {**document, **vector.get("resumeDefinitionTamper", {})}
            try:
                result = await flows.port.resume(
                    CALLER, execution, vector["resumePayload"], definition=tampered
                )
            except FlowRefused as refused:
                result = RunResult(execution_id=execution, status="failed", code=refused.code)
        _compare(vector, result, await flows.port.rows(CALLER, execution), len(prefix))


async def _submit(
    flows: LocalFlows, vector: dict[str, Any], submission: dict[str, Any], before: RunResult, *, mode: Any
) -> RunResult:
    document = {**vectors.document(vector["definition"]), **submission.get("definitionTamper", {})}
    told = submission["outcome"]
    outcome = ActivitySubmission(
        ok=told["ok"],
        result=told.get("result"),
        error=told.get("error", ""),
        code=told.get("code", ""),
        delegate_correlation_id=told.get("delegateCorrelationId", ""),
        external_task_id=told.get("externalTaskId", ""),
    )
    try:
        result = await flows.port.submit_activity(
            CALLER,
            before.execution_id,
            submission["nodeId"],
            outcome,
            definition=document,
            given=vector.get("input", {}),
            span=submission.get("expectedParallelSpan"),
            mode=mode,
        )
        code = result.code
    except FlowRefused as refused:
        result, code = before, refused.code
    if (expected := submission.get("expectFailure")) is not None:
        assert code == expected["code"]
        return before
    return result


def _compare(vector: dict[str, Any], result: RunResult, rows: list[ShownRow], prefix: int) -> None:
    expect = vector["expect"]
    assert result.status == expect["status"], result
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
