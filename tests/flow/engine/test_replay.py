"""Rows against a walk that comes by them again: the vectors, and cuts behind every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.flow import vectors
from tests.flow.workbench import CALLER, seed
from trunkline.errors import FlowRefused
from trunkline.flow.activities.base import Outcome
from trunkline.flow.activities.composite import RejectingActivities, StubActivities
from trunkline.flow.activities.steps import StepExecutor, StepRegistry
from trunkline.flow.delegates.mock import MockDelegate, RejectingDelegate
from trunkline.flow.engine.rows import is_command
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import Submission
from trunkline.flow.results import RunResult
from trunkline.log.events import FlowRow

STORES = ["memory:", "sqlite:///{}/runs.db"]


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


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("vector", vectors.vectors("replay"))
async def test_replay_vectors(vector: dict[str, Any], store: str, tmp_path: Path) -> None:
    document, given = vectors.document(vector["definition"]), vector.get("input", {})
    execution, mode = f"{vector['id']}::exec", vector.get("activityExecutionMode", "in_process")
    prefix = [FlowRow(row["name"], row.get("payload", {})) for row in vector.get("historyPrefix", [])]
    delegates = RejectingDelegate() if vector.get("assertNoDelegateExecutorInvocation") else MockDelegate()
    async with LocalFlows(
        store.format(tmp_path), activities=_activities(vector), delegates=delegates
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
            result = await flows.port.resume(CALLER, execution, vector["resumePayload"], definition=tampered)
        _compare(vector, result, await flows.port.rows(CALLER, execution), len(prefix))


async def _submit(
    flows: LocalFlows, vector: dict[str, Any], submission: dict[str, Any], before: RunResult, *, mode: Any
) -> RunResult:
    document = {**vectors.document(vector["definition"]), **submission.get("definitionTamper", {})}
    told = submission["outcome"]
    outcome = Submission(
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
