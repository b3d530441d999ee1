"""Runs in the hands of their executor: branches side by side, children, pauses, retries, cancels."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.documents import DELEGATE, flow_document, fork, tool
from tests.flow.workbench import CALLER, Counting, seed
from trunkline.errors import FlowRefused, UnsupportedOperation
from trunkline.flow.activities.base import Outcome
from trunkline.flow.engine import run
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.engine.walk import Fork, Lane
from trunkline.flow.forms import ActivitySubmission
from trunkline.flow.local import LocalFlows, RunHandle
from trunkline.flow.results import RunResult
from trunkline.log.events import Chunk, FlowRow, FlowRows, Parked, Status
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.node import HostedAgent, Limits
from trunkline.store.records import Where
from trunkline.wire.types import TERMINAL, Artifact, Message, Part, Role, SendRequest, TaskState

QUICK = Limits(cancel_s=0.5, drain_s=0.2)
INTERRUPT: dict[str, Any] = {
    "id": "review",
    "type": "interrupt",
    "config": {"prompt": "Good?", "resume_schema": {"type": "object", "required": ["ok"]}},
}
SIGNAL: dict[str, Any] = {"id": "hold", "type": "wait", "config": {"kind": "signal", "signal": "go"}}
NEST: dict[str, Any] = {
    "id": "nest",
    "type": "subworkflow",
    "config": {"workflow_ref": "urn:child", "input_mapping": {}},
}


def _set(node_id: str) -> dict[str, Any]:
    return {"id": node_id, "type": "set_state", "config": {"assignments": {"x": {"literal": 1}}}}


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Coder:
    """An agent that does as its order says: it answers, fails, asks, or never ends."""

    works_elsewhere = False

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.free = asyncio.Event()
        self.listed = True

    def agent(self, tenant: str, agent_id: str) -> str | None:
        return "coder" if agent_id == "coder" and self.listed else None

    def admit(self, request: SendRequest) -> str:
        del request
        return "code"

    def named(self, name: str) -> str:
        return name

    def on_crash(self, skill: str) -> OnCrash:
        del skill
        return OnCrash.RESUME

    async def close(self) -> None:
        return None

    async def run(self, work: Work) -> Verdict:
        order = work.state.message.text
        self.begun.append(order)
        text = order
        if order.startswith("hold"):
            await self.free.wait()
        if order == "fail" or (order == "once" and self.begun.count("once") == 1):
            said = Message(work.ids.new(), role=Role.AGENT, parts=(Part(text="cannot"),))
            return Status(TaskState.FAILED, said)
        if order == "ask":
            question = Message(f"{work.state.task_id}:q", role=Role.AGENT, parts=(Part(text="Which?"),))
            answer = await work.ask(Status(TaskState.INPUT_REQUIRED, question))
            text = str(answer.parts[0].data)
        work.put(Chunk(Artifact("out", parts=(Part(data={"patch": text}),)), last=True))
        return Status(TaskState.COMPLETED)


def flows_with(coder: Coder, store: str = "memory:", **executors: Any) -> LocalFlows:
    return LocalFlows(store, carried=[HostedAgent("coder", coder)], agents=coder, limits=QUICK, **executors)


async def test_a_delegate_is_a_child_task() -> None:
    coder = Coder()
    async with flows_with(coder) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "add"}, execution_id="e")
        result = await handle.wait()
        assert (result.status, result.result) == ("completed", {"task": "add", "patch": "add"})
        page = await flows.store.heads.list("default", Where(agents=("coder",)), size=9)
        child = page.heads[0]
        done = next(row for row in await flows.port.rows(CALLER, "e") if row.name == "ActivityCompleted")
        assert done.payload["externalTaskId"] == child.task_id and child.parent
        assert done.payload["delegateCorrelationId"] == "e:delegate:implement"


async def test_a_quick_child_costs_its_parent_no_append_and_no_search_for_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows of a run wait a moment for a child that was opened; all of them go with its end then."""
    monkeypatch.setattr(run, "LINGER_MS", 60_000)
    async with flows_with(Coder()) as flows:
        log: Any = flows.store.log
        append, runs = log.append, list[str]()
        await (await flows.start(flow_document(DELEGATE), {"task": "add"})).wait()

        def counted(tenant: str, task_id: str, *rest: Any, **more: Any) -> Any:
            runs.append(task_id)
            return append(tenant, task_id, *rest, **more)

        log.append = counted
        gc.collect()
        gc.disable()
        try:
            result = await (await flows.start(flow_document(DELEGATE), {"task": "add"})).wait()
            await asyncio.sleep(0)
            left = gc.collect()
        finally:
            gc.enable()
        assert result.status == "completed" and left < 10
        # Opened, told of its child's end, ended; and the child: opened, ended.
        assert Counter(Counter(runs).values()) == {3: 1, 2: 1}


async def test_a_child_that_takes_its_time_finds_the_rows_of_its_parent_recorded() -> None:
    coder = Coder()
    async with flows_with(coder) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "hold"}, execution_id="e")
        names = [row.name async for row in _until(handle, "ActivityRequested")]
        assert names[-1] == "ActivityRequested"
        coder.free.set()
        assert (await handle.wait()).status == "completed"


async def _until(handle: RunHandle, name: str) -> AsyncIterator[ShownRow]:
    async for row in handle.events():
        yield row
        if row.name == name:
            return


async def test_the_failure_of_a_child_is_that_of_the_run_unless_it_is_tried_again() -> None:
    coder = Coder()
    async with flows_with(coder) as flows:
        failed = await (await flows.start(flow_document(DELEGATE), {"task": "fail"})).wait()
        assert (failed.status, failed.code, failed.error) == ("failed", "A2A_TASK_FAILED", "cannot")
        retried = flow_document({**DELEGATE, "retry": {"max_attempts": 2}})
        handle = await flows.start(retried, {"task": "once"})
        assert (await handle.wait()).status == "completed"
        names = [row.name for row in await flows.port.rows(CALLER, handle.execution_id)]
        assert names.count("ActivityRequested") == 2 and names.count("ActivityFailed") == 1


async def test_a_child_that_takes_too_long_is_cancelled() -> None:
    coder = Coder()
    async with flows_with(coder) as flows:
        handle = await flows.start(flow_document({**DELEGATE, "timeout": "50ms"}), {"task": "hold"})
        result = await handle.wait()
        assert (result.status, result.code) == ("failed", "TIMEOUT")
        await _all_ended(flows, "coder")


async def _all_ended(flows: LocalFlows, agent: str) -> None:
    while True:
        page = await flows.store.heads.list("default", Where(agents=(agent,)), size=50)
        if page.heads and all(head.state in TERMINAL for head in page.heads):
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/runs.db"])
async def test_what_a_child_asks_is_asked_of_the_caller(store: str, tmp_path: Path) -> None:
    coder = Coder()
    async with flows_with(coder, store.format(tmp_path)) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "ask"})
        asked = await handle.wait()
        assert (asked.status, asked.node_id) == ("interrupted", "implement")
        assert (await handle.status()).phase == "interrupted"
        # Whoever has begun goes on, though its tenant has it no longer.
        coder.listed = False
        result = await handle.resume({"take": "this"})
        assert result.status == "completed" and result.final_state == {
            "task": "ask",
            "patch": "{'take': 'this'}",
        }


async def test_question_that_a_child_asks_again_after_another_one_is_asked_again() -> None:
    class Alternating(Coder):
        """Asks about a, then about b without an answer, then about a again, as a resumed skill may."""

        async def run(self, work: Work) -> Verdict:
            for name in ("a", "b", "a"):
                self.begun.append(name)
                said = Message(f"{work.state.task_id}:{name}", role=Role.AGENT, parts=(Part(text=name),))
                count = len(work.state.answers)
                work.put(Status(TaskState.INPUT_REQUIRED, said))
                if self.begun == ["a"]:
                    await self.free.wait()
                else:
                    await work.until(lambda count=count: len(work.state.answers) > count)
            return Status(TaskState.COMPLETED)

    def asked(result: RunResult) -> str:
        return "" if result.question is None else result.question.text

    coder = Alternating()
    async with flows_with(coder) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "alternate"})
        assert asked(await handle.wait()) == "a"
        coder.free.set()
        while asked(await handle.wait()) != "b":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        result = await handle.resume({"text": "to b"})
        assert (result.status, asked(result)) == ("interrupted", "a")
        assert (await handle.resume({"text": "to a"})).status == "completed"


async def test_delegated_task_that_was_opened_is_followed_though_the_budget_is_spent_since(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*about: object) -> SendRequest:
        raise UnsupportedOperation(f"{about[0]} may cost nothing", reason="CHAIN_COST")

    store = f"sqlite:///{tmp_path}/runs.db"
    async with flows_with(Coder(), store) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "ask"}, execution_id="e")
        assert (await handle.wait()).status == "interrupted"
    monkeypatch.setattr(run, "agent_request", refuse)
    async with flows_with(Coder(), store) as flows:
        result = await flows.handle("e").resume({"take": "this"})
        assert (result.status, result.error) == ("completed", "")


async def test_external_task_that_was_submitted_is_polled_though_an_agent_has_its_name_since() -> None:
    coder, doer = Coder(), Counting({"implement": {"patch": "p"}})
    async with flows_with(coder, delegates=doer) as flows:
        document = flow_document(DELEGATE)
        correlation = {"delegateCorrelationId": "e:delegate:implement"}
        submitted = {"nodeId": "implement", "attempt": 1, "externalTaskId": "t1", "_visit": 1, **correlation}
        rows = [
            FlowRow("ExecutionStarted", {}),
            FlowRow("ScheduleNode", {"nodeId": "start"}),
            FlowRow("CompleteNode", {"nodeId": "start", "output": {}}),
            FlowRow("ScheduleNode", {"nodeId": "implement"}),
            FlowRow("ActivityRequested", {"nodeId": "implement"}),
            FlowRow("DelegateSubmitted", submitted),
        ]
        await seed(flows, document, {"task": "code"}, rows, execution_id="e")
        assert (await flows.handle("e").wait()).status == "completed"
        assert (doer.calls, coder.begun) == ({"implement": 1}, [])


async def test_branches_with_delegates_and_activities_run_side_by_side() -> None:
    coder, doer = Coder(), Counting({"slow": {"notes": "s"}}, hold=["slow"])
    document = flow_document(
        fork("both", "all", "slow", "a", "b"),
        tool("slow"),
        {**DELEGATE, "id": "a", "config": {**DELEGATE["config"], "input_mapping": {"task": "hold a"}}},
        {**DELEGATE, "id": "b", "config": {**DELEGATE["config"], "input_mapping": {"task": "hold b"}}},
        tool("last"),
        edges=[
            ("start", "both"),
            ("both", "last"),
            ("slow", "last"),
            ("a", "last"),
            ("b", "last"),
            ("last", "end"),
        ],
    )
    async with flows_with(coder, activities=doer) as flows:
        handle = await flows.start(document, {})
        # All three have begun and none has ended.
        await until(lambda: doer.calls.get("slow") == 1 and sorted(coder.begun) == ["hold a", "hold b"])
        coder.free.set()
        doer.held["slow"].set()
        assert (await handle.wait()).status == "completed"
        rows = [
            (row.name, row.payload.get("nodeId"))
            for row in await flows.port.rows(CALLER, handle.execution_id)
        ]
        asked = [rows.index(("ActivityRequested", node)) for node in ("slow", "a", "b")]
        assert asked == sorted(asked) and max(asked) < min(
            rows.index(("ActivityCompleted", node)) for node in ("slow", "a", "b")
        )


async def test_the_first_branch_that_is_there_wins_and_the_others_are_cancelled() -> None:
    coder, doer = Coder(), Counting({"fast": {"by": "fast"}})
    document = flow_document(
        fork("race", "any", "slow", "fast"),
        {**DELEGATE, "id": "slow", "config": {**DELEGATE["config"], "input_mapping": {"task": "hold"}}},
        tool("fast"),
        tool("last"),
        edges=[("start", "race"), ("race", "last"), ("slow", "last"), ("fast", "last"), ("last", "end")],
    )
    async with flows_with(coder, activities=doer) as flows:
        handle = await flows.start(document, {})
        result = await handle.wait()
        assert (result.status, result.result) == ("completed", {"by": "fast"})
        await _all_ended(flows, "coder")
        rows = await flows.port.rows(CALLER, handle.execution_id)
        assert [row.payload["branchName"] for row in rows if row.name == "CancelParallelBranch"] == ["slow"]


async def test_a_question_is_that_of_the_branch_whose_child_asks() -> None:
    coder = Coder()
    mapped = {"agent_id": "coder", "protocol": "a2a"}
    nodes = [
        {**DELEGATE, "id": name, "config": {**mapped, "input_mapping": {"task": {"literal": name}}}}
        for name in ("ask", "hold")
    ]
    document = flow_document(
        fork("first", "any", "ask", "hold"),
        *nodes,
        edges=[("start", "first"), ("first", "end"), ("ask", "end"), ("hold", "end")],
    )
    async with flows_with(coder) as flows:
        handle = await flows.start(document, {})
        assert (await handle.wait()).node_id == "ask"
        assert (await handle.status()).current_node_id == "ask"
        coder.free.set()
        # The branch that asks has lost: nobody is to answer any more.
        while (await handle.wait()).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await _all_ended(flows, "coder")


async def test_a_branch_that_fails_costs_only_what_needs_it() -> None:
    bad = Outcome(ok=False, error="broken", code="BAD")
    doer = Counting({"one": bad, "two": {"by": "two"}, "three": bad})
    ends = [
        ("start", "fork"),
        ("fork", "last"),
        ("one", "last"),
        ("two", "last"),
        ("three", "last"),
        ("last", "end"),
    ]

    def document(join: str, n: int | None = None) -> dict[str, Any]:
        nodes = (tool("one"), tool("two"), tool("three"), tool("last"))
        return flow_document(fork("fork", join, "one", "two", "three", n=n), *nodes, edges=ends)

    async with LocalFlows(activities=doer) as flows:
        won = await flows.start(document("any"), {})
        assert (await won.wait()).result == {"by": "two"}
        names = [row.name for row in await flows.port.rows(CALLER, won.execution_id)]
        # A branch that loses is no failure of the run (D17).
        assert "ExecutionFailed" not in names and names.count("ParallelBranchFailed") == 1
        lost = await (await flows.start(document("n_of_m", 2), {})).wait()
        assert lost.status == "failed" and "1 of the 2 branches" in lost.error
        every = await flows.start(document("all"), {})
        result = await every.wait()
        assert (result.status, result.error, result.code) == ("failed", "broken", "BAD")
        rows = await flows.port.rows(CALLER, every.execution_id)
        assert [row.name for row in rows[-2:]] == ["FailNode", "ExecutionFailed"]
        # The failure is recorded, and nothing can revive the run (D4, D16).
        assert (await every.status()).phase == "failed"
        with pytest.raises(FlowRefused, match="does not wait"):
            await every.submit("one", ActivitySubmission(ok=True))


@pytest.mark.parametrize("mode", ["in_process", "host_mediated"])
async def test_pauses_of_nested_runs_are_those_of_their_parents(mode: Any) -> None:
    """Whoever drives the parent drives the child, in either mode (D5)."""
    async with LocalFlows() as flows:
        flows.engine.workflows.add("urn:child", flow_document(INTERRUPT, SIGNAL, tool("work")))
        handle = await flows.start(flow_document(NEST), {}, execution_id="parent", mode=mode)
        result = await handle.wait()
        assert (result.status, result.node_id) == ("interrupted", "review")
        with pytest.raises(FlowRefused, match="resume_schema"):
            await handle.resume({})
        result = await handle.resume({"ok": True}, mode)
        assert (result.status, result.signal_name) == ("awaiting_signal", "go")
        result = await flows.port.signal(CALLER, "parent", "go", {"by": "b"}, mode=mode)
        if mode == "host_mediated":
            assert (result.status, result.node_id) == ("awaiting_activity", "work")
            result = await handle.submit("work", ActivitySubmission(ok=True, result={"out": 1}))
        wanted = {"ok": True, "by": "b", **({"out": 1} if mode == "host_mediated" else {})}
        assert (result.status, result.result) == ("completed", wanted)
        child = await flows.port.status(CALLER, "parent:sub:nest")
        assert (child.phase, child.parent_execution_id) == ("completed", "parent")


async def test_a_nested_run_that_is_answered_itself_leaves_its_parent_no_open_question() -> None:
    async with LocalFlows() as flows:
        flows.engine.workflows.add("urn:child", flow_document(SIGNAL))
        handle = await flows.start(flow_document(NEST), {}, execution_id="parent")
        assert (await handle.wait()).status == "awaiting_signal"
        assert (await flows.handle("parent:sub:nest").signal("go")).status == "completed"
        while (await handle.status()).phase != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_run_under_the_id_of_a_nested_one_is_left_alone_and_fails_the_parent() -> None:
    async with LocalFlows(limits=QUICK) as flows:
        flows.engine.workflows.add("urn:child", flow_document(tool("t")))
        own = await flows.start(flow_document(SIGNAL), {}, execution_id="p:sub:nest")
        assert (await own.wait()).status == "awaiting_signal"
        result = await (await flows.start(flow_document(NEST), {}, execution_id="p")).wait()
        assert (result.status, result.code) == ("failed", "DUPLICATE_EXECUTION_ID")
        assert (await own.signal("go")).status == "completed"


async def test_runs_are_nested_four_deep_and_no_deeper() -> None:
    async with LocalFlows() as flows:
        flows.engine.workflows.add("urn:child", flow_document(NEST))
        result = await (await flows.start(flow_document(NEST), {})).wait()
        assert (result.status, result.code) == ("failed", "SUBWORKFLOW_TOO_DEEP")
        missing: dict[str, Any] = {**NEST, "config": {"workflow_ref": "urn:nobody", "input_mapping": {}}}
        result = await (await flows.start(flow_document(missing), {})).wait()
        assert (result.status, result.code) == ("failed", "WORKFLOW_NOT_FOUND")
        flows.engine.workflows.add("urn:other", flow_document(tool("work")))
        config: dict[str, Any] = {"workflow_ref": "urn:other", "input_mapping": {}, "version_pin": "0" * 64}
        result = await (await flows.start(flow_document({**NEST, "config": config}), {})).wait()
        assert result.status == "failed" and "version_pin" in result.error


@pytest.mark.parametrize("change", ["missing", "pinned"])
async def test_nested_run_that_was_begun_outlives_its_reference_and_a_restart(
    change: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with LocalFlows(store, limits=QUICK) as flows:
        flows.engine.workflows.add("urn:child", flow_document(SIGNAL))
        pin = flows.engine.definitions.read(flow_document(SIGNAL)).definition.hash
        config = {**NEST["config"], "version_pin": pin}
        handle = await flows.start(flow_document({**NEST, "config": config}), {}, execution_id="parent")
        assert (await handle.wait()).status == "awaiting_signal"
    async with LocalFlows(store, limits=QUICK) as flows:
        if change == "pinned":
            flows.engine.workflows.add("urn:child", flow_document(tool("other")))
        result = await flows.handle("parent").signal("go", {"by": "b"})
        assert (result.status, result.result) == ("completed", {"by": "b"})


async def test_a_loop_nests_a_run_of_its_own_each_time() -> None:
    again = {
        "id": "again",
        "type": "switch",
        "config": {"cases": [{"when": ".n < 2", "target": "count"}], "default": "end"},
    }
    count = {"id": "count", "type": "set_state", "config": {"assignments": {"n": {"jq": ".n + 1"}}}}
    document = flow_document(
        count, NEST, again, edges=[("start", "count"), ("count", "nest"), ("nest", "again")]
    )
    async with LocalFlows() as flows:
        flows.engine.workflows.add("urn:child", flow_document(tool("work")))
        handle = await flows.start(document, {"n": 0}, execution_id="e")
        assert (await handle.wait()).status == "completed"
        rows = await flows.port.rows(CALLER, "e")
        children = [row.payload["childExecutionId"] for row in rows if row.name == "StartSubworkflow"]
        assert children == ["e:sub:nest", "e:sub:nest:2"]


async def test_a_cancel_reaches_children_and_is_told_with_its_reason() -> None:
    coder = Coder()
    async with flows_with(coder) as flows:
        handle = await flows.start(flow_document(DELEGATE), {"task": "hold"}, execution_id="e")
        await until(lambda: bool(coder.begun))
        # The child may begin before its row is in the log of its parent.
        while (await flows.port.status(CALLER, "e")).current_node_id != "implement":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        result = await handle.cancel("  not needed ")
        assert (result.status, result.reason) == ("cancelled", "not needed")
        assert (await handle.cancel("another")).reason == "not needed"
        await _all_ended(flows, "coder")
        rows = (await flows.port.rows(CALLER, "e"))[-2:]
        assert [(row.name, row.payload) for row in rows] == [
            (name, {"executionId": "e", "nodeId": "implement", "reason": "not needed"})
            for name in ("CancelExecution", "ExecutionCancelled")
        ]


async def test_an_executor_that_raises_ends_the_run_and_one_that_is_late_has_failed() -> None:
    class Raising:
        async def execute(self, activity: Any) -> Outcome:
            if activity.node.id == "late":
                await asyncio.Event().wait()
            raise RuntimeError("broken on purpose")

    async with LocalFlows(activities=Raising()) as flows:
        handle = await flows.start(flow_document(tool("work", retry={"max_attempts": 3})), {})
        result = await handle.wait()
        assert result.status == "failed" and "broken on purpose" in result.error
        rows = await flows.port.rows(CALLER, handle.execution_id)
        failed = next(row for row in rows if row.name == "FailNode")
        assert failed.payload["reason"] == "orchestration_error" and "nodeId" not in failed.payload
        late = flow_document(tool("late", timeout="20ms", retry={"max_attempts": 2}))
        handle = await flows.start(late, {})
        assert (await handle.wait()).code == "TIMEOUT"
        names = [row.name for row in await flows.port.rows(CALLER, handle.execution_id)]
        assert names.count("ActivityFailed") == 2


async def test_waits_of_branches_pass_together_and_a_parked_run_wakes() -> None:
    waits = [
        {"id": name, "type": "wait", "config": {"kind": "duration", "duration": "300ms"}}
        for name in ("a", "b")
    ]
    document = flow_document(
        fork("both", "all", "a", "b"),
        *waits,
        tool("last"),
        edges=[("start", "both"), ("both", "last"), ("a", "last"), ("b", "last"), ("last", "end")],
    )
    async with LocalFlows(limits=Limits(park_after_s=0.02, cancel_s=0.5, drain_s=0.2)) as flows:
        handle = await flows.start(document, {})
        assert (await handle.wait()).status == "completed"
        rows = [row.name for row in await flows.port.rows(CALLER, handle.execution_id)]
        # The second began to wait before the first had waited, and nobody was kept for either.
        assert rows.index("TimerFired") > max(at for at, name in enumerate(rows) if name == "TimerStarted")
        records = await flows.store.log.read("default", run_task_id(handle.execution_id))
        assert any(isinstance(one.event, Parked) for one in records)


async def test_state_that_does_not_fit_its_schema_fails_the_run_behind_the_row_that_shows_it() -> None:
    doer = Counting({"work": {"n": "many"}})
    document = flow_document(tool("work"), properties={"n": {"type": "integer"}})
    async with LocalFlows(activities=doer) as flows:
        handle = await flows.start(document, {"n": 1})
        result = await handle.wait()
        assert result.status == "failed" and "/n" in result.error
        names = [row.name for row in await flows.port.rows(CALLER, handle.execution_id)]
        assert names[-3:] == ["StateUpdated", "FailNode", "ExecutionFailed"]
        wrong = await (await flows.start(document, {"n": "x"})).wait()
        assert wrong.status == "failed"


async def test_a_run_that_grows_beyond_a_task_fails_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.flow.engine.run.BYTES_LIMIT", (4 << 20) + 20_000)
    doer = Counting({"grow": {"text": "x" * 5000}})
    again = {"id": "again", "type": "switch", "config": {"cases": [{"when": "true", "target": "grow"}]}}
    document = flow_document(tool("grow"), again, edges=[("start", "grow"), ("grow", "again")])
    async with LocalFlows(activities=doer) as flows:
        handle = await flows.start(document, {})
        result = await handle.wait()
        assert (result.status, result.code) == ("failed", "RUN_TOO_LARGE")
        # Each result was stored once, and no state with its row.
        assert doer.calls["grow"] >= 3


CIRCLES: dict[str, dict[str, Any]] = {
    "literals": flow_document(_set("a"), _set("b"), edges=[("start", "a"), ("a", "b"), ("b", "a")]),
    "conditions": flow_document(
        _set("a"),
        {
            "id": "s",
            "type": "switch",
            "config": {"cases": [{"when": ".x == 2", "target": "end"}], "default": "a"},
        },
        edges=[("start", "a"), ("a", "s")],
    ),
    "forks": flow_document(
        fork("f", "all", "f", "a"), _set("a"), edges=[("start", "f"), ("f", "end"), ("a", "end")]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("maps", [True, False])
async def test_values_of_one_node_that_repeat_the_state_fail_the_run(maps: bool) -> None:
    programs = {f"k{n}": {"jq": ".s"} for n in range(40)}
    nested = {**NEST, "config": {"workflow_ref": "urn:child", "input_mapping": programs}}
    assigned = {"id": "set", "type": "set_state", "config": {"assignments": programs}}
    async with LocalFlows() as flows:
        flows.engine.workflows.add("urn:child", flow_document())
        handle = await flows.start(flow_document(nested if maps else assigned), {"s": "x" * 500_000})
        ended = await handle.wait()
    assert ended.status == "failed"
    assert "return at most 16 MiB together" in ended.error


@pytest.mark.slow
async def test_large_values_are_recorded_before_the_next_node() -> None:
    nodes = [
        {"id": f"n{n}", "type": "set_state", "config": {"assignments": {"x": {"jq": ".s"}}}} for n in range(6)
    ]
    events: list[int] = []
    async with LocalFlows() as flows:
        for text in ("x", "x" * 600_000):
            handle = await flows.start(flow_document(*nodes), {"s": text})
            await handle.wait()
            feed = await flows.port._tasks.load("default", run_task_id(handle.execution_id))
            assert feed is not None
            records = await flows.port._tasks.records(feed)
            events.append(sum(isinstance(one.event, FlowRows) for one in records))
    # One append for all nodes while their values are small.
    assert events[0] == 1 < events[1]


@pytest.mark.parametrize("name", CIRCLES)
async def test_a_way_round_in_a_circle_lets_others_go_on_and_ends_at_a_limit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.flow.engine.run.NODES_LIMIT", 2000)
    async with LocalFlows() as flows:
        handle = await flows.start(CIRCLES[name], {})
        other = await flows.start(flow_document(tool("t")), {})
        assert (await other.wait()).status == "completed"
        result = await handle.wait()
        assert (result.status, result.code) == ("failed", "RUN_TOO_LARGE")


async def test_a_run_ends_that_has_too_many_parallel_nodes_open_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trunkline.flow.engine.run.FORKS_LIMIT", 100)
    # One after the other they are not too many.
    forks = [fork(f"f{place}", "all", f"a{place}") for place in range(200)]
    ways = [(f"f{place}", f"f{place + 1}" if place < 199 else "end") for place in range(200)]
    joins = [(f"a{place}", target) for place, (_, target) in enumerate(ways)]
    sets = [_set(f"a{place}") for place in range(200)]
    row = flow_document(*forks, *sets, edges=[("start", "f0"), *ways, *joins])
    async with LocalFlows() as flows:
        result = await (await flows.start(CIRCLES["forks"], {})).wait()
        assert (result.code, "at most 100 parallel nodes" in str(result)) == ("RUN_TOO_LARGE", True)
        assert (await (await flows.start(row, {})).wait()).status == "completed"


@pytest.mark.parametrize(
    "document",
    [
        CIRCLES["forks"],
        flow_document(
            fork("f", "any", "a", "hold"), _set("a"), SIGNAL, _set("j"),
            edges=[("start", "f"), ("f", "j"), ("a", "j"), ("hold", "j"), ("j", "end")],
        ),
    ],
)  # fmt: skip
async def test_what_a_run_walked_with_is_free_when_it_ends(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.flow.engine.run.NODES_LIMIT", 2000)
    async with LocalFlows() as flows:
        gc.collect()
        # A server's collector comes by late; and then it holds up everybody, by seconds for some such runs.
        gc.disable()
        try:
            await (await flows.start(document, {})).wait()
            held = sum([isinstance(one, Lane | Fork) for one in gc.get_objects()])
        finally:
            gc.enable()
    assert held == 0


@pytest.mark.parametrize("moment", [{"duration_ms": 2**53}, {"duration": "999999999999999h"}])
async def test_a_wait_of_any_length_is_parked(moment: dict[str, Any]) -> None:
    wait = {"id": "w", "type": "wait", "config": {"kind": "duration", **moment}}
    async with LocalFlows(limits=Limits(park_after_s=0.02, cancel_s=0.5)) as flows:
        handle = await flows.start(flow_document(wait), {})
        while not any(  # noqa: ASYNC110
            isinstance(one.event, Parked)
            for one in await flows.store.log.read("default", run_task_id(handle.execution_id))
        ):
            await asyncio.sleep(0.005)
        assert (await handle.cancel()).status == "cancelled"
