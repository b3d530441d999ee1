"""The operations on runs: what is refused, who wins a race, what is listed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from tests.flow.documents import DELEGATE, flow_document, fork, tool
from tests.flow.workbench import CALLER, Counting
from trunkline.clock import Ids
from trunkline.errors import FlowRefused
from trunkline.flow import port as ports
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.assembly import FlowEngine
from trunkline.flow.engine.run_messages import RunReply, run_task_id
from trunkline.flow.engine.view import RunView, ShownRow
from trunkline.flow.forms import ActivitySubmission
from trunkline.flow.listing import RunListQuery
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import PAGE_BYTES, FlowCaller
from trunkline.flow.results import RunPage, RunResult, redacted
from trunkline.flow.state import same_json
from trunkline.log.events import Recorded
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.wire.types import Part

INTERRUPT: dict[str, Any] = {
    "id": "review",
    "type": "interrupt",
    "config": {"prompt": "Good?", "resume_schema": {"type": "object", "required": ["ok"]}},
}
SIGNAL: dict[str, Any] = {"id": "hold", "type": "wait", "config": {"kind": "signal", "signal": "go"}}


def _assign(node_id: str) -> dict[str, Any]:
    return {"id": node_id, "type": "set_state", "config": {"assignments": {"x": {"jq": ".s"}}}}


async def _code(call: Awaitable[Any]) -> str:
    try:
        found = await call
    except FlowRefused as refused:
        return refused.code
    return found.status


async def test_of_many_that_submit_at_once_one_wins() -> None:
    async with LocalFlows() as flows:
        await flows.start(flow_document(tool("work")), {}, execution_id="e", mode="host_mediated")
        handle = flows.handle("e")
        assert (await handle.wait()).node_id == "work"
        calls = [
            handle.submit("work", ActivitySubmission(ok=True, result={"by": place})) for place in range(100)
        ]
        codes = await asyncio.gather(*map(_code, calls))
        assert sorted(codes) == sorted(["completed", *["ACTIVITY_SUBMIT_NOT_AWAITING"] * 99])
        names = [row.name for row in await flows.port.rows(CALLER, "e")]
        assert names.count("ActivityCompleted") == 1


async def test_no_execution_id_of_one_tenant_is_that_of_another() -> None:
    async with LocalFlows() as flows:
        document = flow_document(tool("work"))
        calls = [
            flows.port.start(FlowCaller(tenant), document, {}, execution_id=execution_id)
            for tenant, execution_id in (
                ("default", "north\x1ee"),
                ("north", "e"),
                ("default", "default\x1enorth\x1ee"),
                ("north", "north\x1ee"),
                ("default", "e"),
            )
        ]
        assert [await _code(call) for call in calls] == ["completed"] * 5


async def test_of_many_that_start_one_run_one_wins() -> None:
    async with LocalFlows() as flows:
        document = flow_document(tool("work"))
        calls = [flows.port.start(CALLER, document, {}, execution_id="e") for _ in range(20)]
        codes = await asyncio.gather(*map(_code, calls))
        assert sorted(codes) == sorted(["completed", *["DUPLICATE_EXECUTION_ID"] * 19])
        again = await flows.port.start(CALLER, document, {}, execution_id="e", allow_existing=True)
        assert again.status == "completed"


async def test_a_start_that_another_process_overtakes_goes_on_with_its_run_where_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with LocalFlows() as flows:
        # As two processes are on one store.
        shared = flows.store
        monkeypatch.setattr(shared, "shared", True)
        engine = FlowEngine(shared.docs, {})
        runner = Runner(shared, [engine.hosted()], Ids())
        port = engine.port(runner)
        await runner.start()
        try:
            document = flow_document(tool("work"))
            for allowed, late in ((True, "completed"), (False, "DUPLICATE_EXECUTION_ID")):
                calls = [
                    one.start(CALLER, document, {}, execution_id=f"e{allowed}", allow_existing=allowed)
                    for one in (flows.port, port)
                ]
                assert sorted(await asyncio.gather(*map(_code, calls))) == sorted(["completed", late])
        finally:
            await runner.stop()
            await engine.close()


async def test_a_run_that_was_answered_and_has_ended_stays_ended_when_it_is_started_again() -> None:
    """Recorded answers are come by again in their order (D9), and no row is written twice (D7)."""
    document = flow_document(tool("work"), INTERRUPT, tool("after"))
    async with LocalFlows() as flows:
        await flows.port.start(CALLER, document, {}, execution_id="e")
        ended = await flows.port.resume(CALLER, "e", {"ok": True})
        before = await flows.port.rows(CALLER, "e")
        again = await flows.port.start(CALLER, document, {}, execution_id="e", allow_existing=True)
        assert again == ended and again.status == "completed"
        assert await flows.port.rows(CALLER, "e") == before


async def test_a_branch_that_its_host_gives_up_costs_the_run_no_more_than_one_that_fails_here() -> None:
    """The join of a host's branches is that of the engine's (D16)."""
    document = flow_document(fork("fork", "any", "one", "two"), tool("one"), tool("two"), tool("last"), edges=[
        ("start", "fork"), ("fork", "last"), ("one", "last"), ("two", "last"), ("last", "end"),
    ])  # fmt: skip
    async with LocalFlows() as flows:
        port = flows.port
        asked = await port.start(CALLER, document, {}, execution_id="e", mode="host_mediated")
        no, yes = ActivitySubmission(ok=False, error="no", code="HOST"), ActivitySubmission(ok=True)
        asked = await port.submit_activity(CALLER, "e", "one", no, span=asked.parallel_span)
        assert (asked.status, asked.node_id) == ("awaiting_activity", "two")
        asked = await port.submit_activity(CALLER, "e", "two", yes, span=asked.parallel_span)
        assert (asked.node_id, asked.parallel_span) == ("last", None)
        assert (await port.submit_activity(CALLER, "e", "last", yes)).status == "completed"


async def test_a_wrong_submit_leaves_the_run_as_it_was() -> None:
    """All of it is checked before anything is written (D1), the definition from the start on (D6)."""
    document = flow_document(fork("fork", "all", "one"), tool("one", timeout="30s"), tool("last"), edges=[
        ("start", "fork"), ("fork", "last"), ("one", "last"), ("last", "end"),
    ])  # fmt: skip
    span = {"parallelNodeId": "fork", "joinTargetId": "last", "branchName": "one", "branchEntryNodeId": "one"}
    ok = ActivitySubmission(ok=True, result={"out": 1})
    async with LocalFlows() as flows:
        port = flows.port
        started = await port.start(CALLER, document, {"a": 1}, execution_id="e", mode="host_mediated")
        # A host is told how long it has (D14).
        assert (started.status, started.parallel_span, started.timeout_ms) == (
            "awaiting_activity",
            span,
            30_000,
        )
        before = await port.rows(CALLER, "e")
        other = flow_document(tool("one"))
        wrong: list[tuple[str, Any]] = [
            ("ACTIVITY_SUBMIT_NOT_AWAITING", port.submit_activity(CALLER, "nobody", "one", ok)),
            ("SUBMIT_VALIDATION_ERROR", port.submit_activity(CALLER, "e", "one", ok, definition={})),
            ("SUBMIT_VALIDATION_ERROR", port.submit_activity(CALLER, "e", "one", ok, definition=other)),
            ("ACTIVITY_SUBMIT_NODE_MISMATCH", port.submit_activity(CALLER, "e", "last", ok, span=span)),
            ("ACTIVITY_SUBMIT_PARALLEL_MISMATCH", port.submit_activity(CALLER, "e", "one", ok)),
            (
                "SUBMIT_VALIDATION_ERROR",
                port.submit_activity(CALLER, "e", "one", ok, span=span, given={"a": 2}),
            ),
            (
                "SUBMIT_VALIDATION_ERROR",
                port.submit_activity(CALLER, "e", "one", ok, span=span, given={"a": True}),
            ),
            ("INVALID_RESUME_PAYLOAD", port.resume(CALLER, "e", {})),
            ("SIGNAL_NOT_AWAITING", port.signal(CALLER, "e", "go")),
            ("EXECUTION_NOT_FOUND", port.resume(CALLER, "nobody", {})),
            ("EXECUTION_NOT_FOUND", port.signal(CALLER, "nobody", "go")),
            ("EXECUTION_NOT_FOUND", port.cancel(CALLER, "nobody")),
        ]
        for code, call in wrong:
            assert await _code(call) == code
        assert await port.rows(CALLER, "e") == before
        right = await port.submit_activity(CALLER, "e", "one", ok, span=span, given={"a": 1})
        assert (right.status, right.node_id, right.parallel_span) == ("awaiting_activity", "last", None)
        failed = await port.submit_activity(
            CALLER, "e", "last", ActivitySubmission(ok=False, error="broken", code="HOST")
        )
        assert (failed.status, failed.code) == ("failed", "HOST")
        assert await _code(port.cancel(CALLER, "e")) == "CANCEL_NOT_ALLOWED"


async def test_a_wrong_answer_or_signal_leaves_the_run_as_it_was() -> None:
    """Nothing that is said at a wrong time, or wrongly, ends a run (D3)."""
    async with LocalFlows() as flows:
        port = flows.port
        started = await port.start(CALLER, flow_document(INTERRUPT, SIGNAL), {}, execution_id="e")
        assert started.status == "interrupted"
        assert await _code(port.resume(CALLER, "e", {"typo": 1})) == "INVALID_RESUME_PAYLOAD"
        assert (await port.status(CALLER, "e")).phase == "interrupted"
        assert (await port.resume(CALLER, "e", {"ok": True})).status == "awaiting_signal"
        # The phase is what the run waits for now (D2).
        assert (await port.status(CALLER, "e")).phase == "awaiting_signal"
        assert await _code(port.signal(CALLER, "e", "other")) == "SIGNAL_NAME_MISMATCH"
        assert (await port.signal(CALLER, "e", "go", {"by": "b"})).result == {"ok": True, "by": "b"}
        assert await _code(port.resume(CALLER, "e", {"ok": True})) == "INVALID_RESUME_PAYLOAD"
        assert (await port.status(CALLER, "e")).phase == "completed"


async def test_a_delegation_is_submitted_by_its_correlation_id_alone() -> None:
    async with LocalFlows() as flows:
        port = flows.port
        document = flow_document({**DELEGATE, "retry": {"max_attempts": 2}})
        await port.start(CALLER, document, {"task": "t"}, execution_id="e", mode="host_mediated")
        for given, reason in (("e:delegate:other", ", not 'e:delegate:other'"), ("", "; it is missing")):
            wrong = ActivitySubmission(ok=True, delegate_correlation_id=given)
            with pytest.raises(FlowRefused) as refused:
                await port.submit_activity(CALLER, "e", "implement", wrong)
            assert refused.value.code == "SUBMIT_VALIDATION_ERROR"
            expected = f"delegate_correlation_id must be 'e:delegate:implement'{reason}"
            assert refused.value.message == expected
        failed = ActivitySubmission(ok=False, error="not yet", code="BUSY")
        again = await port.submit_activity(CALLER, "e", "implement", failed)
        # A retry says everything again (D8).
        assert (again.agent_id, again.delegate_input) == ("coder", {"task": "t"})
        status = await port.status(CALLER, "e")
        assert (status.phase, status.agent_id) == ("awaiting_activity", "coder")
        inside = {"patch": "p", "delegateCorrelationId": "e:delegate:implement", "externalTaskId": "x"}
        done = await port.submit_activity(
            CALLER, "e", "implement", ActivitySubmission(ok=True, result=inside)
        )
        assert (done.status, done.final_state) == ("completed", {"task": "t", "patch": "p"})
        row = next(one for one in await port.rows(CALLER, "e") if one.name == "ActivityCompleted")
        assert row.payload["externalTaskId"] == "x" and row.payload["nodeType"] == "agent_delegate"


async def test_rows_hide_secrets_and_the_state_keeps_them() -> None:
    """What is redacted is what is shown, not what is kept (D10)."""
    async with LocalFlows() as flows:
        await flows.port.start(CALLER, flow_document(SIGNAL), {"Token": "hush"}, execution_id="e")
        rows = await flows.port.rows(CALLER, "e")
        assert b"hush" not in msgspec.json.encode(rows) and b"[REDACTED]" in msgspec.json.encode(rows)
        result = await flows.port.signal(CALLER, "e", "go")
        assert result.final_state == {"Token": "hush"}
        newest = await flows.port.checkpoint(CALLER, "e")
        assert newest is not None and newest.payload["lastAppliedEventSeq"] == newest.seq - 1


async def test_runs_are_listed_by_pages() -> None:
    async with LocalFlows() as flows:
        port = flows.port
        for place in range(5):
            await port.start(CALLER, flow_document(SIGNAL), {}, execution_id=f"w{place}")
        await port.start(CALLER, flow_document(tool("work")), {}, execution_id="done")
        assert [
            run.execution_id for run in (await port.list(CALLER, RunListQuery(phase="completed"))).executions
        ] == ["done"]
        found: list[str] = []
        cursor = ""
        while True:
            page = await port.list(CALLER, RunListQuery(phase="awaiting_signal", limit=2, cursor=cursor))
            found += [run.execution_id for run in page.executions]
            cursor = page.next_cursor
            if not cursor:
                break
        assert sorted(found) == [f"w{place}" for place in range(5)]
        assert (await port.list(CALLER, RunListQuery(definition_name="nobody"))).executions == []
        for bad in ("x", "|e", "2026-01-01T00:00:00Z|"):
            with pytest.raises(FlowRefused) as refused:
                await port.list(CALLER, RunListQuery(cursor=bad))
            assert refused.value.code == "INVALID_LIST_CURSOR"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"definition": flow_document(tool("other"))}, ["definition"]),
        ({"given": {"topic": "coffee"}}, ["input"]),
        ({"given": {"topic": "tea", "count": True}}, ["input"]),
        ({"given": {}}, ["input"]),
        ({"mode": "in_process"}, ["activity_execution_mode"]),
        ({"definition": flow_document(tool("other")), "given": {}}, ["definition", "input"]),
    ],
)
async def test_repeated_start_is_refused_unless_it_equals_the_first(
    changed: dict[str, Any], named: list[str]
) -> None:
    first: dict[str, Any] = {
        "definition": flow_document(tool("work"), tool("more")),
        "given": {"topic": "tea", "count": 1},
        "mode": "host_mediated",
    }
    async with LocalFlows() as flows:
        port = flows.port

        def start(**order: Any) -> Awaitable[RunResult]:
            return port.start(CALLER, order.pop("definition"), order.pop("given"), execution_id="e", **order)

        asked = await start(**first)
        for _ in ("awaiting_activity", "completed"):
            rows = await port.rows(CALLER, "e")
            with pytest.raises(FlowRefused) as refused:
                await start(**{**first, **changed}, allow_existing=True)
            assert refused.value.code == "DUPLICATE_EXECUTION_ID"
            assert refused.value.details == {"different": named}
            assert await port.rows(CALLER, "e") == rows
            # The mode of a later call does not change what the run was started with.
            for node in ("work", "more"):
                if asked.status == "awaiting_activity":
                    asked = await port.submit_activity(CALLER, "e", node, ActivitySubmission(ok=True))
        assert (await start(**first, allow_existing=True)) == asked and asked.status == "completed"


async def test_run_executes_an_activity_itself_where_an_old_log_says_so() -> None:
    """Older versions wrote such an answer when a run was started again in another mode."""
    async with LocalFlows(activities=StubActivities({"work": {"out": 1}})) as flows:
        document = flow_document(tool("work"), tool("more"))
        await flows.port.start(CALLER, document, {}, execution_id="e", mode="host_mediated")
        feed = await flows.runner.tasks.load(CALLER.tenant, run_task_id("e"))
        assert feed is not None and feed.state.question is not None
        reply = RunReply("in_process", takes_over=True)
        await flows.runner.say(feed, reply.message("m", feed.state.question.message_id, Part(data={})))
        done = await flows.port.result(CALLER, "e")
        assert (done.status, done.result) == ("completed", {"out": 1})
        names = [row.name for row in await flows.port.rows(CALLER, "e")]
        assert names.count("ActivityRequested") == names.count("ActivityCompleted") == 2


async def test_repeated_start_returns_the_run_that_a_caller_of_another_mode_moved() -> None:
    async with LocalFlows() as flows:
        order = {"definition": flow_document(tool("work"), tool("more")), "given": {}, "execution_id": "e"}
        await flows.port.start(CALLER, **order, mode="host_mediated")
        done = await flows.port.submit_activity(
            CALLER, "e", "work", ActivitySubmission(ok=True), mode="in_process"
        )
        assert done.status == "completed"
        assert await flows.port.start(CALLER, **order, mode="host_mediated", allow_existing=True) == done


async def test_whoever_follows_a_run_is_told_each_row_once_and_none_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, counts = RunView.read, list[int]()

    def counted(self: RunView, records: Any) -> list[ShownRow]:
        found = read(self, records)
        counts.append(len(found))
        return found

    monkeypatch.setattr(RunView, "read", counted)
    async with LocalFlows(activities=Counting()) as flows:
        handle = await flows.start(
            flow_document(*[tool(f"t{n}") for n in range(60)]), {}, mode="host_mediated"
        )
        told: list[int] = []

        async def follow() -> None:
            told.extend([row.seq async for row in handle.events()])

        following = asyncio.create_task(follow())
        for n in range(60):
            assert (await handle.submit(f"t{n}", ActivitySubmission(ok=True))).status in (
                "awaiting_activity",
                "completed",
            )
        await following
    assert told == list(range(1, len(told) + 1))
    assert sum(counts) == len(told)


ROUNDS: dict[str, Any] = {
    "edges": [("start", "implement"), ("implement", "enough"), ("enough", "end")],
    "properties": {"answers": {"type": "array", "reducer": "append"}},
}


def rounds(node: dict[str, Any]) -> dict[str, Any]:
    """A loop that comes to a node until there are three answers."""
    again = {"when": ".answers | length < 3", "target": "implement"}
    switch = {"id": "enough", "type": "switch", "config": {"cases": [again], "default": "end"}}
    return flow_document({**node, "id": "implement"}, switch, **ROUNDS)


async def test_late_duplicate_of_a_delegation_is_refused_in_the_next_round() -> None:
    async with LocalFlows() as flows:
        port = flows.port
        given = {"task": "t", "answers": []}
        first = await port.start(CALLER, rounds(DELEGATE), given, execution_id="e", mode="host_mediated")
        by_correlation = ActivitySubmission(
            ok=True, result={"answers": 1}, delegate_correlation_id="e:delegate:implement"
        )
        second = await port.submit_activity(CALLER, "e", "implement", by_correlation)
        assert (second.status, second.delegate_correlation_id) == (
            "awaiting_activity",
            "e:delegate:implement",
        )
        assert first.activity_id != second.activity_id
        assert (await port.status(CALLER, "e")).activity_id == second.activity_id
        before = await port.rows(CALLER, "e")
        failed = ActivitySubmission(ok=False, error="late")
        late = [
            port.submit_activity(CALLER, "e", "implement", by_correlation),
            port.submit_activity(CALLER, "e", "implement", failed),
            port.submit_activity(CALLER, "e", "implement", by_correlation, activity_id=first.activity_id),
        ]
        assert [await _code(one) for one in late] == ["ACTIVITY_SUBMIT_NOT_AWAITING"] * 3
        assert await port.rows(CALLER, "e") == before
        right = second
        while right.status == "awaiting_activity":
            right = await port.submit_activity(
                CALLER, "e", "implement", by_correlation, activity_id=right.activity_id
            )
        assert right.final_state == {"task": "t", "answers": [1, 1, 1]}


async def test_an_activity_that_is_named_by_its_id_is_matched_by_it() -> None:
    async with LocalFlows() as flows:
        port, done = flows.port, ActivitySubmission(ok=True, result={"answers": 1})
        document = rounds(tool("implement"))
        first = await port.start(CALLER, document, {"answers": []}, execution_id="e", mode="host_mediated")
        second = await port.submit_activity(CALLER, "e", "implement", done, activity_id=first.activity_id)
        late = port.submit_activity(CALLER, "e", "implement", done, activity_id=first.activity_id)
        assert await _code(late) == "ACTIVITY_SUBMIT_NOT_AWAITING"
        assert (await port.status(CALLER, "e")).activity_id == second.activity_id
        # Hosts that know no IDs of activities loop as before.
        third = await port.submit_activity(CALLER, "e", "implement", done)
        assert third.state == {"answers": [1, 1]}


@pytest.mark.slow
async def test_a_page_of_rows_ends_by_bytes_and_goes_on_at_the_next_row() -> None:
    async with LocalFlows() as flows:
        handle = await flows.start(flow_document(*[_assign(f"n{n}") for n in range(8)]), {"s": "x" * 400_000})
        await handle.wait()
        every = await flows.port.rows(CALLER, handle.execution_id)
        found: list[ShownRow] = []
        counts: list[int] = []
        following = 1
        while following:
            rows, following = await flows.port.page(CALLER, handle.execution_id, following, None, 1000)
            counts.append(len(rows))
            found += rows
    assert found == every
    assert len(counts) > 1 and min(counts) > 0
    sizes = [sum(len(msgspec.json.encode(row.payload)) for row in found[: counts[0] - 1])]
    assert sizes[0] <= PAGE_BYTES


async def test_lists_of_one_tenant_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    at_work: list[str] = []
    go_on = asyncio.Event()

    async def waiting(tasks: object, definitions: object, tenant: str, *_: object) -> RunPage:
        at_work.append(tenant)
        await go_on.wait()
        return RunPage(executions=[])

    monkeypatch.setattr(ports, "list_runs", waiting)
    async with LocalFlows() as flows:
        callers = [FlowCaller(tenant=tenant) for tenant in ("acme", "acme", "other")]
        lists = [asyncio.create_task(flows.port.list(caller, RunListQuery())) for caller in callers]
        await asyncio.wait(lists, timeout=0)
        assert at_work == ["acme", "other"]
        go_on.set()
        await asyncio.gather(*lists)
        assert at_work == ["acme", "other", "acme"]


@pytest.mark.slow
async def test_large_inputs_and_rows_are_walked_through_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with LocalFlows() as flows:
        where: list[tuple[str, bool]] = []

        def traced(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                where.append((function.__name__, threading.current_thread() is threading.main_thread()))
                return function(*given)

            return call

        for one in (same_json, redacted):
            monkeypatch.setattr(ports, one.__name__, traced(one))
        for input_, is_here in (({"n": [1] * 5}, True), ({"n": [1] * 50_000}, False)):
            order: dict[str, Any] = {"definition": flow_document(_assign("a")), "given": input_}
            for _ in range(2):
                found = await flows.port.start(
                    CALLER, **order, execution_id=f"{is_here}", allow_existing=True
                )
            await flows.port.page(CALLER, found.execution_id, 1, None, 1000)
            assert ("same_json", is_here) in where and ("redacted", is_here) in where
            assert ("same_json", not is_here) not in where
            where.clear()


@pytest.mark.slow
async def test_the_rows_of_a_long_log_are_read_no_further_than_a_page_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with LocalFlows() as flows:
        handle = await flows.start(
            flow_document(*[_assign(f"n{n}") for n in range(20)]), {"s": "x" * 1_048_500}
        )
        await handle.wait()
        run = await flows.port._existing(CALLER, handle.execution_id)
        monkeypatch.setattr(Feed, "newer", lambda self, after: None)
        read: list[int] = []
        pages = flows.port._tasks.pages

        async def counted(*given: Any) -> AsyncGenerator[list[Recorded]]:
            async for page in pages(*given):
                read.append(page[-1].seq)
                yield page

        monkeypatch.setattr(flows.port, "_existing", AsyncMock(return_value=run))
        monkeypatch.setattr(flows.port._tasks, "pages", counted)
        rows, following = await flows.port.page(CALLER, handle.execution_id, 1, None, 1)
        assert (len(rows), following) == (1, 2)
        assert len(read) == 1 and read[0] < run.feed.state.seq
