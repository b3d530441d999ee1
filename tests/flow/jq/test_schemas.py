"""Schemas of strangers cost the hub nothing: workers compile them, check values, and are killed in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.documents import flow_document
from trunkline.flow.definition.checks import SchemaCheck
from trunkline.flow.jq import pool as pools
from trunkline.flow.jq.pool import BudgetSpent, FilterLimits, WorkerBudget, WorkerBusy, WorkerPool
from trunkline.flow.jq.schemas import SchemaChecker
from trunkline.flow.jq.worker import PATTERNS

# Workers are processes.
pytestmark = pytest.mark.slow
PATIENT = FilterLimits(deadline_s=60)
# What one POST did to the hub: 60 of these blocked all tenants for 8 s.
LARGE_PATTERN = r"(?=\w{100})\w{200}N"
# 400 alternatives, each checked against each of 20,000 numbers.
CHOICES = {"items": {"anyOf": [*[{"minimum": 1e9, "maximum": n} for n in range(399)], {"type": "number"}]}}
NUMBERS = [n + 0.5 for n in range(20_000)]
# Each text has it go back some ten thousand times.
BACKWARDS = r"^(?:(?=(a))a|a)*[c-d]|[a-b]*$"


def using(limits: FilterLimits, work: Callable[[SchemaChecker], Awaitable[None]]) -> None:
    async def main() -> None:
        pool = WorkerPool(limits)
        try:
            await work(SchemaChecker(pool))
        finally:
            await pool.close()

    asyncio.run(main())


def multiplied(keyword: str, levels: int) -> dict[str, Any]:
    """A schema of a few lines that checks one value 3 to the power of its levels times."""
    levelled = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 3} for n in range(levels)}
    return {"$defs": {**levelled, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


VALUES: list[tuple[dict[str, Any], object, str | None]] = [
    ({"pattern": "^[a-z]+$"}, "abc", None),
    ({"pattern": "^[a-z]+$"}, "a1", '/: "a1" does not match "^[a-z]+$"'),
    ({"items": {"pattern": "^(?=.*b)[a-c]+$"}}, ["ab", "a"], '/1: "a" does not match'),
    ({"properties": {"a/b": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}}, {"a/b": "x"}, "/a~1b: "),
    ({"$defs": {"x": {"$anchor": "there", "const": 1}}, "$ref": "#there"}, 1, None),
    ({"items": {"type": "integer"}}, list(range(300_000)), None),
    ({"properties": {f"p{n}": {"type": "string"} for n in range(100)}}, {"p1": "a" * 9_000_000}, None),
    (multiplied("allOf", 5), {}, None),
    ({"items": {"enum": [[0] * 500 + [n] for n in range(20)]}}, [[0] * 500 + [99]] * 400, "/0: [0,0,"),
    ({"anyOf": [{"items": {"allOf": [{"const": 1}] * 80}}, {"type": "string"}]}, [2] * 40_000,
     "/: it does not fit its schema"),
]  # fmt: skip
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"properties": {f"p{n}": {"pattern": LARGE_PATTERN} for n in range(60)}}, "at most 1 MiB when compiled"),
    (
        {"properties": {f"p{n}": {"pattern": LARGE_PATTERN} for n in range(300)}},
        f"300 patterns.* {PATTERNS}$",
    ),
    ({"patternProperties": {f"^{n}$": True for n in range(300)}}, f"300 patterns.* {PATTERNS}$"),
    ({"pattern": "("}, "no JSON Schema"),
    ({"$ref": "https://example.com/x"}, "https://example.com/x is not fetched"),
    ({"$ref": "#/$defs/none"}, "no JSON Schema"),
]


def test_values_are_checked_in_workers() -> None:
    async def work(schemas: SchemaChecker) -> None:
        for schema, value, fault in VALUES:
            found = await schemas.find_fault(SchemaCheck(schema), value)
            assert found == fault if fault is None else (found or "").startswith(fault), schema
            assert len(found or "") <= 500

    using(PATIENT, work)


def test_definitions_are_refused_whose_schemas_exceed_a_limit() -> None:
    async def work(schemas: SchemaChecker) -> None:
        for schema, reason in REFUSED:
            document = flow_document(_asking({"type": "object"}, "first"), _asking(schema, "second"))
            found = await schemas.find_refused(document)
            assert found is not None, schema
            assert found.instance_path == "/nodes/2/config/resume_schema"
            with pytest.raises(AssertionError, match=reason):
                raise AssertionError(found.message)
        assert await schemas.find_refused(flow_document(_asking({"pattern": BACKWARDS}, "first"))) is None
        assert await schemas.find_refused(flow_document()) is None

    using(PATIENT, work)


def _asking(schema: dict[str, Any], name: str) -> dict[str, Any]:
    config = {"prompt": "Good?", "resume_schema": {"minProperties": 1, **schema}}
    return {"id": name, "type": "interrupt", "config": config}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (CHOICES, NUMBERS),
        (multiplied("anyOf", 40), 1),
        ({"items": {"pattern": BACKWARDS}}, ["a" * 14] * 20_000),
    ],
)
def test_a_check_that_takes_long_is_killed(
    schema: dict[str, Any], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(pools._Worker, "kill", _noting(pools._Worker.kill, killed))  # pyright: ignore[reportPrivateUsage]

    async def work(schemas: SchemaChecker) -> None:
        fault = await schemas.find_fault(SchemaCheck(schema), value)
        assert fault == "/: it cannot be checked against its schema: it takes longer than 0.2 s"
        assert len(killed) == 1
        assert await schemas.find_fault(SchemaCheck({"pattern": "a"}), "a") is None, "others go on"

    using(FilterLimits(stuck_s=0.1, deadline_s=0.2), work)


def _noting(kill: Callable[[Any], None], killed: list[int]) -> Callable[[Any], None]:
    def noted(worker: Any) -> None:
        killed.append(worker.process.pid)
        kill(worker)

    return noted


def test_a_check_that_is_cancelled_ends_its_worker() -> None:
    async def work(schemas: SchemaChecker) -> None:
        pool = schemas._pool  # pyright: ignore[reportPrivateUsage]
        checking = asyncio.create_task(schemas.find_fault(SchemaCheck(multiplied("anyOf", 40)), 1))
        while not pool._busy:  # noqa: ASYNC110 - the worker comes up in its own time
            await asyncio.sleep(0.01)
        (worker,) = pool._busy  # pyright: ignore[reportPrivateUsage]
        checking.cancel()
        await asyncio.wait([checking])
        assert checking.cancelled()
        assert await worker.process.wait() < 0

    using(PATIENT, work)


def test_a_run_that_has_spent_its_budget_is_refused() -> None:
    async def work(schemas: SchemaChecker) -> None:
        check, budget = SchemaCheck({"items": {"pattern": "^a"}}), WorkerBudget(1e-6)
        assert await schemas.find_fault(check, ["a"] * 10_000, budget=budget) is None
        with pytest.raises(BudgetSpent, match="processor time"):
            await schemas.find_fault(check, ["a"], budget=budget)

    using(PATIENT, work)


def test_one_tenant_leaves_a_worker_to_the_others() -> None:
    async def work(schemas: SchemaChecker) -> None:
        endless = SchemaCheck(multiplied("anyOf", 40))
        noisy = [asyncio.create_task(schemas.find_fault(endless, 1, "noisy")) for _ in range(8)]
        quick = schemas._pool._quick  # pyright: ignore[reportPrivateUsage]
        while quick.has_room("noisy"):  # noqa: ASYNC110 - until it has all that it may have
            await asyncio.sleep(0.01)
        assert quick.has_room("quiet")
        assert await schemas.find_fault(SchemaCheck({"pattern": "a"}), "a", "quiet") is None
        for task in noisy:
            task.cancel()
        await asyncio.wait(noisy)

    using(FilterLimits(stuck_s=30, deadline_s=60), work)


def test_a_definition_is_not_refused_because_workers_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools.sys, "executable", "/nowhere/python")

    async def work(schemas: SchemaChecker) -> None:
        with pytest.raises(WorkerBusy, match="could be started"):
            await schemas.find_refused(flow_document(_asking({"pattern": "a"}, "first")))

    using(PATIENT, work)


def test_a_value_that_blocks_the_loop_is_followed_by_a_pause_of_its_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []

    async def pause(delay: float) -> None:
        paused.append(delay)

    async def main() -> None:
        pool = WorkerPool(FilterLimits())
        clock = asyncio.get_running_loop().time
        monkeypatch.setattr(pools.asyncio, "sleep", pause)
        async with pool.paced("quick"):
            pass
        assert not paused
        async with pool.paced("costly"):
            began = clock()
            while clock() - began <= pools.BLOCKED_S:
                pass
        assert paused and paused[0] >= pools.BLOCKED_S * pools.PAUSES
        async with pool.paced("costly"), pool.paced("other"):
            waits = asyncio.create_task(pool.paced("costly").__aenter__())
            await asyncio.wait({waits}, timeout=0)
            assert not waits.done()
            waits.cancel()

    asyncio.run(main())
