"""Runs whose schemas cost too much: each fails alone, and a caller can cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flow.documents import flow_document, tool
from tests.flow.workbench import Counting, seed
from trunkline.errors import FlowInvalid, FlowRefused
from trunkline.flow.definition import checks
from trunkline.flow.engine import executor, run
from trunkline.flow.engine.replay import History
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.engine.view import RUN_TOO_LARGE
from trunkline.flow.jq.pool import WorkerBusy
from trunkline.flow.jq.schemas import SchemaChecker
from trunkline.flow.local import LocalFlows
from trunkline.log.events import FlowRows

# Workers are processes.
pytestmark = pytest.mark.slow
REFUSED = {"a": {"pattern": r"(?=\w{100})\w{200}N"}}
COSTLY: dict[str, Any] = {
    "a": {"items": {"anyOf": [*[{"maximum": n} for n in range(399)], {"type": "number"}]}}
}
NUMBERS = [1e9 + n for n in range(20_000)]
INTERRUPT: dict[str, Any] = {
    "id": "review",
    "type": "interrupt",
    "config": {"prompt": "Good?", "resume_schema": {"type": "object", "minProperties": 1}},
}


def circle(properties: dict[str, Any], program: str = "(.n // 0) + 1") -> dict[str, Any]:
    """A run that sets its state again and again."""
    count = {"id": "count", "type": "set_state", "config": {"assignments": {"n": {"jq": program}}}}
    again = {"id": "again", "type": "switch", "config": {"cases": [{"when": "true", "target": "count"}]}}
    return flow_document(count, again, edges=[("start", "count"), ("count", "again")], properties=properties)


async def test_no_pattern_is_compiled_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "Draft202012Validator", None)
    asked = {
        **INTERRUPT,
        "config": {"prompt": "?", "resume_schema": {"minProperties": 1, "propertyNames": {"pattern": "^b$"}}},
    }
    document = flow_document(
        asked, tool("work"), properties={"a": {"pattern": "^x+$"}, "b": {"pattern": "^y$"}}
    )
    async with LocalFlows(activities=Counting({"work": {"a": "z"}})) as flows:
        handle = await flows.start(document, {"a": "xx"})
        assert (await handle.wait()).status == "interrupted"
        for payload, fault in (({"c": "y"}, "resume_schema"), ({"b": "x"}, "state_schema")):
            with pytest.raises(FlowRefused, match=fault):
                await handle.resume(payload)
        result = await handle.resume({"b": "y"})
        assert result.status == "failed" and "/a" in result.error
        with pytest.raises(FlowInvalid, match="/state_schema: .*at most 1 MiB when compiled"):
            await flows.start(flow_document(properties=REFUSED), {})


async def test_an_open_run_whose_definition_is_refused_fails_alone(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with LocalFlows(store) as flows:
        await seed(flows, flow_document(tool("work"), properties=REFUSED), {}, [], execution_id="refused")
        await seed(flows, flow_document(tool("work")), {}, [], execution_id="other")
        assert (await flows.handle("other").wait()).status == "completed"
        result = await flows.handle("refused").wait()
        assert (result.status, result.code) == ("failed", "VALIDATION_ERROR")
        assert "the definition is refused: /state_schema: " in result.error


async def test_resumed_run_waits_for_a_worker_that_checks_its_schemas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executor, "RETRY_MS", 1)
    store, find_refused, tries = f"sqlite:///{tmp_path}/runs.db", SchemaChecker.find_refused, list[str]()

    async def find_late(self: SchemaChecker, document: dict[str, Any], tenant: str = "") -> Any:
        tries.append(tenant)
        if len(tries) < 3:
            raise WorkerBusy("others left no room for it")
        return await find_refused(self, document, tenant)

    async with LocalFlows(store) as flows:
        handle = await flows.start(flow_document(INTERRUPT), {}, execution_id="e")
        assert (await handle.wait()).status == "interrupted"
    monkeypatch.setattr(SchemaChecker, "find_refused", find_late)
    async with LocalFlows(store) as flows:
        assert (await flows.handle("e").resume({"b": "y"})).status == "completed"
    assert len(tries) == 3


async def test_a_run_is_cancelled_while_a_worker_checks_its_state() -> None:
    async with LocalFlows() as flows:
        handle = await flows.start(circle(COSTLY), {"a": NUMBERS})
        pool = flows.engine._pool  # pyright: ignore[reportPrivateUsage]
        while not pool._busy:  # pyright: ignore[reportPrivateUsage]  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await handle.cancel()).status == "cancelled"
        while pool._busy:  # pyright: ignore[reportPrivateUsage]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("properties", "program", "given"),
    [
        ({"a": {"items": {"pattern": "^a"}}}, ".n", {"a": ["ab"] * 20_000}),
        ({}, "last(range(200000))", {}),
    ],
)
async def test_a_run_ends_when_its_budget_is_spent(
    properties: dict[str, Any], program: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "WORKER_S", 0.001)
    async with LocalFlows() as flows:
        result = await (await flows.start(circle(properties, program), given)).wait()
        assert (result.status, result.code) == ("failed", RUN_TOO_LARGE), result
        assert "processor time" in result.error


async def test_runs_that_walk_in_circles_take_turns_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "NODES_LIMIT", 320)
    async with LocalFlows() as flows:
        turns = flows.engine.parts.turns
        held, most, passed = 0, 0, 0
        held_before = turns.held

        @asynccontextmanager
        async def counted(tenant: str = "") -> AsyncGenerator[None]:
            nonlocal held, most, passed
            async with held_before(tenant):
                held, passed = held + 1, passed + 1
                most = max(most, held)
                yield
                held -= 1

        monkeypatch.setattr(turns, "held", counted)
        handles = [await flows.start(circle({}), {}) for _ in range(4)]
        results = [await handle.wait() for handle in handles]
        assert {result.code for result in results} == {RUN_TOO_LARGE}
        assert most == 1
        assert passed == 4 * (320 // 16 + 1)


async def test_states_that_the_log_proves_are_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    document = flow_document(tool("a"), tool("b"), INTERRUPT, properties={"x": {"pattern": "^x"}})
    async with LocalFlows(activities=Counting({"a": {"x": "xa"}, "b": {"x": "xb"}})) as flows:
        await (await flows.start(document, {"x": "x"}, execution_id="whole")).wait()
        rows = [row async for row in _rows(flows)]
        asked: list[object] = []
        schemas, find_fault = flows.engine.definitions.schemas, flows.engine.definitions.schemas.find_fault

        async def noted(check: Any, value: object, *more: Any) -> str | None:
            asked.append(value)
            return await find_fault(check, value, *more)

        monkeypatch.setattr(schemas, "find_fault", noted)
        await seed(flows, document, {"x": "x"}, rows, execution_id="again")
        assert (await flows.handle("again").wait()).status == "interrupted"
        assert asked == []
        assert History(rows).is_past_check


async def _rows(flows: LocalFlows) -> Any:

    for recorded in await flows.store.log.read("default", run_task_id("whole")):
        if isinstance(recorded.event, FlowRows):
            for row in recorded.event.rows:
                yield row
