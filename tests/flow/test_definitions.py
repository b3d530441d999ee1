"""Where the definition of a run is kept: in its own log, so that it goes with the run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.flow.documents import flow_document, tool
from tests.flow.workbench import CALLER, seed
from trunkline.clock import now_ms
from trunkline.errors import FlowRefused
from trunkline.flow.assembly import AGENT
from trunkline.flow.definition.document import WORKFLOW_ID_KIND, WORKFLOW_KIND
from trunkline.flow.definitions import PLACE, STEP
from trunkline.flow.engine import executor, rows
from trunkline.flow.engine.run_messages import RunOrder, run_task_id
from trunkline.flow.listing import RunListQuery
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import ActivitySubmission
from trunkline.log.events import FlowRow, Stepped, Submitted
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.records import START

LATER = 1 << 50
CHILD = "urn:test:child"


def _named(name: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    document = flow_document(*nodes)
    return {**document, "document": {**document["document"], "name": name}}


async def test_ever_new_definitions_leave_nothing_behind_when_their_runs_are_forgotten(
    flow_store: str,
) -> None:
    async with LocalFlows(flow_store) as flows:
        config: dict[str, Any] = {"workflow_ref": CHILD, "input_mapping": {}}
        nested = {"id": "inner", "type": "subworkflow", "config": config}
        for place in range(4):
            flows.engine.workflows.add(CHILD, _named(f"child{place}", tool("work")))
            run = await flows.start(_named(f"flow{place}", nested), {})
            assert (await run.wait()).status == "completed"
        refs, _ = await flows.store.maintenance.tasks(START)
        for ref in refs:
            records = await flows.store.log.read(ref.tenant, ref.task_id, 0, 10)
            steps = [one.event for one in records if isinstance(one.event, Stepped)]
            assert [(step.place, step.name) for step in steps] == [(PLACE, STEP)]
        assert len(refs) == 8
        assert await flows.store.maintenance.prune(LATER, [AGENT]) == 8
        assert await flows.store.docs.list("default", WORKFLOW_KIND) == []


async def test_a_run_is_read_and_goes_on_by_its_own_log(flow_store: str) -> None:
    async with LocalFlows(flow_store) as flows:
        await (await flows.start(_named("done", tool("work")), {}, execution_id="done")).wait()
        await flows.start(_named("open", tool("work")), {"n": 1}, execution_id="open", mode="host_mediated")
        assert (await flows.handle("open").wait()).node_id == "work"
        told = [row.payload for row in await flows.port.rows(CALLER, "done")]
        await flows.store.maintenance.compact(LATER)
    if flow_store == "memory:":
        return
    async with LocalFlows(flow_store) as flows:
        assert [row.payload for row in await flows.port.rows(CALLER, "done")] == told
        ended = await flows.handle("open").submit("work", ActivitySubmission(ok=True, result={"m": 2}))
        assert ended.status == "completed"
        page = await flows.port.list(CALLER, RunListQuery())
        assert {run.definition_name for run in page.executions} == {"open", "done"}


async def test_a_run_of_an_older_version_is_walked_by_the_document_of_its_hash(flow_store: str) -> None:
    async with LocalFlows(flow_store) as flows:
        document = _named("old", tool("work"))
        await seed(flows, document, {}, [], execution_id="e", mode="host_mediated", by_hash=True)
        assert (await flows.handle("e").wait()).node_id == "work"
        ended = await flows.handle("e").submit("work", ActivitySubmission(ok=True, result={}))
        assert ended.status == "completed"
        await flows.store.maintenance.compact(LATER)
    if flow_store != "memory:":
        async with LocalFlows(flow_store) as flows:
            assert (await flows.port.status(CALLER, "e")).phase == "completed"
            page = await flows.port.list(CALLER, RunListQuery())
            assert [run.definition_name for run in page.executions] == ["old"]


async def test_a_run_that_was_opened_here_and_never_begun_is_begun_by_its_log() -> None:
    async with LocalFlows() as flows:
        loaded = flows.engine.definitions.read(_named("late", tool("work")))
        task_id = run_task_id("e")
        message = RunOrder("e", loaded.definition.hash).message("m", {})
        first = Submitted(message, task_id, "anonymous", flows.runner.node, "workflow", agent=AGENT)
        opening, at = [first, loaded.step], now_ms()
        head = head_after(State(task_id), opening, at)
        await flows.store.log.append("default", task_id, 0, opening, at=at, head=head)
        # Read as a whole, so that nothing of its log is at hand.
        feed = await flows.runner.tasks.load("default", task_id)
        assert feed is not None
        assert feed.base == 2
        for _ in range(2):
            await flows.runner._takeover.own_round()  # pyright: ignore[reportPrivateUsage] - as in time
        assert (await flows.handle("e").wait()).status == "completed"


async def test_a_run_that_a_newer_version_has_begun_is_left_to_processes_that_can_read_it(
    flow_store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    document = _named("late", tool("work"))
    unknown: dict[str, Any] = {
        **document,
        "nodes": [*document["nodes"], {"id": "deal", "type": "negotiate", "config": {}}],
    }
    later = FlowRow(
        "ExecutionStarted", {"workflowName": "late", "inputKeys": [], "_version": rows.VERSION + 1}
    )
    async with LocalFlows(flow_store) as flows:
        await seed(flows, document, {}, [], execution_id="node", step=Stepped(PLACE, STEP, unknown))
        await seed(flows, document, {}, [later], execution_id="rows")
        await seed(flows, document, {}, [], execution_id="plain")
        assert (await flows.handle("plain").wait()).status == "completed"
        while caplog.text.count("task.illegible") < 2:  # noqa: ASYNC110 - told by the log alone
            await asyncio.sleep(0.02)
        for run in ("node", "rows"):
            feed = await flows.runner.tasks.load("default", run_task_id(run))
            assert feed is not None and not feed.state.over and feed.state.node != flows.runner.node
        with pytest.raises(FlowRefused, match="a newer one may have started") as refused:
            await flows.port.status(CALLER, "node")
        assert refused.value.code == "VALIDATION_ERROR"
    if flow_store != "memory:":
        monkeypatch.setattr(executor, "VERSION", rows.VERSION + 1)
        async with LocalFlows(flow_store) as flows:
            assert (await flows.handle("rows").wait()).status == "completed"


async def test_damaged_definition_is_refused_until_it_is_registered_again(flow_store: str) -> None:
    async with LocalFlows(flow_store) as flows:
        definitions, docs = flows.engine.definitions, flows.store.docs
        loaded = definitions.read(_named("kept", tool("work")))
        hash = loaded.definition.hash
        await definitions.register("acme", "kept", loaded)
        # Whole JSON of another definition, under the hash of this one.
        other = msgspec.json.encode(_named("other", tool("work")))
        for rev, body in ((1, b"{"), (2, other)):
            await docs.put("acme", WORKFLOW_KIND, hash, body, rev)
            with pytest.raises(
                FlowRefused, match=f"document '{hash}' of kind workflow is damaged"
            ) as refused:
                await definitions.registered("acme", "kept")
            assert refused.value.code == "INTERNAL_ERROR"
        await definitions.keep("acme", loaded)
        assert (await definitions.registered("acme", "kept")).definition.name == "kept"
        await docs.put("acme", WORKFLOW_ID_KIND, "kept", b"\xff", 1)
        with pytest.raises(FlowRefused, match="document 'kept' of kind workflow.id is damaged"):
            await definitions.registered("acme", "kept")
