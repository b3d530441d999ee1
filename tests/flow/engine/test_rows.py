"""The rows of the example workflows, one by one, as the reference has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow import vectors
from tests.flow.surfaces import PARKING
from tests.flow.workbench import CALLER
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.local import LocalFlows

SCHEDULED = "C ScheduleNode, E NodeScheduled"
DONE = "C CompleteNode, E StateUpdated"
# What each type of node writes, on the main way.
WRITTEN = {
    "start": f"{SCHEDULED}, {DONE}",
    "activity": f"{SCHEDULED}, E ActivityRequested, E ActivityCompleted, {DONE}",
    "delegate": f"{SCHEDULED}, E ActivityRequested, E ActivityCompleted, {DONE}, E CheckpointWritten",
    "state": f"{SCHEDULED}, {DONE}, E CheckpointWritten",
    "timer": f"{SCHEDULED}, C StartTimer, E TimerStarted, E TimerFired, {DONE}, E CheckpointWritten",
    "signal": f"{SCHEDULED}, C StartSignalWait, E SignalWaitStarted, C DeliverSignal, E SignalReceived, {DONE}, "
    "E CheckpointWritten",
    "interrupt": f"{SCHEDULED}, C RaiseInterrupt, E InterruptRaised, E CheckpointWritten, C ResumeInterrupt, "
    f"E InterruptResumed, {DONE}, E CheckpointWritten",
    "fork": f"{SCHEDULED}, C StartParallel, E ParallelForked",
    "cancel": "C CancelParallelBranch, E ParallelBranchCancelled",
    "join": f"C JoinParallel, E ParallelJoined, {DONE}, E CheckpointWritten",
    "nested": f"{SCHEDULED}, C StartSubworkflow, E SubworkflowStarted, E SubworkflowCompleted, C CompleteSubworkflow, "
    f"{DONE}, E CheckpointWritten",
    # Within a branch, and on the way that follows an answer, each node ends with a checkpoint.
    "checked": f"{SCHEDULED}, E ActivityRequested, E ActivityCompleted, {DONE}, E CheckpointWritten",
    "end": f"{SCHEDULED}, C CompleteNode",
}
# Each example with its input, and the way through it: what is written for which node.
EXAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "fixtures.valid/minimal-linear": ({}, "start:start activity:lookup_customer end:end"),
    "conformance-agent-delegate-linear": ({"task": "t"}, "start:start delegate:implement end:end"),
    "conformance-signal-wait": ({}, "start:start signal:await_approval end:end"),
    "r2-parallel-join-any": (
        {"topic": "t"},
        "start:start activity:plan fork:research checked:web_collect cancel:research join:research timer:rest end:end",
    ),
    "r2-research-parallel": (
        {"topic": "t"},
        "start:start activity:plan fork:research checked:web_collect checked:internal_collect join:research "
        "state:tag timer:rest end:end",
    ),
    "lighthouse-customer-routing": (
        {"ticket_text": "t"},
        "start:begin activity:classify state:route interrupt:human_review checked:open_ticket end:finish",
    ),
    "conformance-subworkflow-parent": ({"repo": "r"}, "start:start nested:verify state:mark_done end:end"),
}


@pytest.mark.parametrize("name", EXAMPLES)
async def test_the_rows_of_an_example(name: str) -> None:
    given, way = EXAMPLES[name]
    definition = vectors.example(name)
    outputs = {"classify": {"intent": "unsure", "confidence": 0.2}, "run_tests": {"tests_passed": True}}
    async with LocalFlows(limits=PARKING, activities=StubActivities(outputs)) as flows:
        flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        run = await flows.start(definition, given, execution_id="e")
        while (result := await run.wait()).status != "completed":
            if result.status == "awaiting_signal":
                await run.signal(result.signal_name, {"approved_by": "x"})
            else:
                assert result.status == "interrupted", result
                await run.resume({"intent": "billing"})
        rows = await flows.port.rows(CALLER, "e")
    assert [f"{row.kind[0].upper()} {row.name} {row.payload.get('nodeId', '')}" for row in rows] == _expected(
        way
    )
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.payload["executionId"] == "e" for row in rows)


def _expected(way: str) -> list[str]:
    rows = ["E ExecutionStarted "]
    for step in way.split():
        written, _, node = step.partition(":")
        rows += [f"{row} {node}" for row in WRITTEN[written].split(", ")]
    return [*rows, "E ExecutionCompleted "]
