"""Workflows over REST: every route, and every mistake with its code and status."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flow.surfaces import ASK, DELEGATE, PARKING, SIGNAL, TOOL, UNSIGNED, Door, served, workflow
from trunkline.errors import FlowRefused
from trunkline.flow import definitions
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.definition.document import WORKFLOW_ID_KIND
from trunkline.flow.engine.run_messages import run_task_id
from trunkline.flow.local import LocalFlows
from trunkline.flow.rest import FlowApi, slug
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import Correlation

Told = tuple[int, dict[str, Any]]


class Failing:
    async def execute(self, activity: Activity) -> Outcome:
        return Outcome(ok=False, error="no", code="HANDLER_NOT_FOUND")


class Rest:
    """Sends requests as they are written."""

    def __init__(self, flows: LocalFlows) -> None:
        self._client = InProcessHttpClient(Door(FlowApi(lambda: flows.port, UNSIGNED)))

    async def __call__(self, asked: str, body: Any = None, *headers: tuple[str, str]) -> Told:
        method, path = asked.split(" ")
        sent = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        response = await self._client.open(HttpRequest(method, f"http://localhost{path}", headers, sent))
        told = await response.read(1 << 20)
        await response.close()
        return response.status, msgspec.json.decode(told) if told else {}


async def test_a_tenant_registers_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "TENANT_LIMIT", 2)
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        answers = [await rest("POST /v1/workflows", {"definition": workflow(name=f"w{n}")}) for n in range(3)]
        assert [status for status, _ in answers] == [201, 201, 400]
        assert "at most 2 workflows" in answers[2][1]["error"]["message"]


async def test_a_definition_is_registered_once_and_its_runs_are_told() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        document = workflow(name="Customer  Routing (v2)")
        assert await rest("POST /v1/workflows", {"definition": document}) == (
            201,
            {"wf_id": "customer-routing-v2", "definition": document},
        )
        status, told = await rest("POST /v1/workflows", {"definition": document})
        assert (status, told["error"]["code"]) == (409, "DUPLICATE_WORKFLOW_ID")
        assert (await rest("GET /v1/workflows/customer-routing-v2"))[1]["definition"] == document
        status, told = await rest(
            "POST /v1/workflows/customer-routing-v2/executions", {"input": {"a": 1}, "execution_id": "r:1"}
        )
        assert (status, told) == (
            200,
            {"execution_id": "r:1", "status": "completed", "final_state": {"a": 1}, "result": {"a": 1}},
        )
        found = {"execution_id": "r:1", "phase": "completed", "result": {"a": 1}}
        assert await rest("GET /v1/executions/r:1") == (200, found)
        status, told = await rest("GET /v1/executions?phase=completed&limit=5")
        assert [one["execution_id"] for one in told["executions"]] == ["r:1"]
        assert told["executions"][0]["definition_name"] == "Customer  Routing (v2)"


async def test_headers_of_a_start_name_the_work_that_its_run_belongs_to() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        given = {"definition": workflow(), "input": {}, "execution_id": "r"}
        headers = ("X-Correlation-Id", "c-17"), ("X-Parent-Id", "p-4")
        assert (await Rest(flows)("POST /v1/executions", given, *headers))[0] == 200
        feed = await flows.runner.tasks.load("default", run_task_id("r", "default"))
        assert feed is not None and feed.state.correlation == Correlation("c-17", "p-4")


async def test_rows_come_in_pages_and_the_newest_checkpoint_is_shown() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        document = workflow(ASK)
        assert (
            await rest("POST /v1/executions", {"definition": document, "input": {}, "execution_id": "e"})
        )[1]["status"] == "interrupted"
        status, first = await rest("GET /v1/executions/e/events?limit=4")
        assert status == 200
        assert [row["seq"] for row in first["events"]] == [1, 2, 3, 4]
        assert first["events"][0]["name"] == "ExecutionStarted"
        assert first["events"][1]["kind"] == "command"
        assert first["events"][0]["record_schema_version"] == 1
        status, rest_of = await rest(f"GET /v1/executions/e/events?cursor={first['next_cursor']}")
        assert rest_of["events"][0]["seq"] == 5
        assert "next_cursor" not in rest_of
        status, found = await rest("GET /v1/executions/e/checkpoint")
        assert (status, found["checkpoint"]["nodeId"]) == (200, "ask")
        assert found["seq"] == rest_of["events"][-1]["seq"]


async def test_verbs_follow_the_last_colon() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        document = workflow(TOOL, ASK, SIGNAL)
        status, told = await rest(
            "POST /v1/executions",
            {
                "definition": document,
                "input": {"a": 1},
                "execution_id": "a:b:c",
                "activity_execution_mode": "host_mediated",
            },
        )
        assert (status, told["status"], told["node_id"]) == (200, "awaiting_activity", "work")
        submitted = {"node_id": "work", "outcome": {"ok": True, "result": {"n": 2}}}
        status, told = await rest("POST /v1/executions/a:b:c:submit_activity", submitted)
        assert (status, told["status"], told["state"]) == (200, "interrupted", {"a": 1, "n": 2})
        status, told = await rest(
            "POST /v1/executions/a:b:c:resume", {"resume_payload": {"ok": True}, "definition": document}
        )
        assert (status, told["status"], told["signal_name"]) == (200, "awaiting_signal", "approved")
        status, told = await rest(
            "POST /v1/executions/a:b:c:signal", {"signal_name": "approved", "payload": {"by": "x"}}
        )
        assert (status, told["status"]) == (200, "completed")
        assert told["result"] == {"a": 1, "n": 2, "ok": True, "by": "x"}


@pytest.mark.slow
async def test_a_run_that_fails_is_told_with_its_own_code() -> None:
    async with LocalFlows(limits=PARKING, activities=Failing()) as flows:
        rest = Rest(flows)
        status, told = await rest("POST /v1/executions", {"definition": workflow(TOOL), "input": {}})
        assert (status, told["error"]["code"]) == (422, "HANDLER_NOT_FOUND")
        broken = {"id": "set", "type": "set_state", "config": {"assignments": {"x": {"jq": 'error("odd")'}}}}
        status, told = await rest("POST /v1/executions", {"definition": workflow(broken), "input": {}})
        assert (status, told["error"]["code"]) == (422, "ENGINE_FAILURE")
        assert "odd" in told["error"]["message"]


async def test_a_cancelled_run_says_why() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        await rest("POST /v1/executions", {"definition": workflow(SIGNAL), "input": {}, "execution_id": "e"})
        status, told = await rest("POST /v1/executions/e:cancel", {"reason": "not needed"})
        assert (status, told["status"], told["reason"]) == (200, "cancelled", "not needed")
        status, told = await rest("POST /v1/executions/e:signal", {"signal_name": "approved"})
        assert (status, told["error"]["code"]) == (409, "SIGNAL_NOT_AWAITING")


WAITING = {"execution_id": "w"}
START = {"definition": workflow(), "input": {}}
# Malformed JSON is a mistake like others, and signals and lists have routes (D11).
MISTAKES: list[tuple[str, Any, int, str]] = [
    ("POST /v1/workflows", b"{", 400, "VALIDATION_ERROR"),
    ("POST /v1/workflows", b"[1]", 400, "VALIDATION_ERROR"),
    ("POST /v1/workflows", {}, 400, "VALIDATION_ERROR"),
    ("POST /v1/workflows", {"definition": {"nodes": []}}, 400, "VALIDATION_ERROR"),
    ("POST /v1/workflows", {"definition": workflow(edges=[])}, 400, "VALIDATION_ERROR"),
    ("GET /v1/workflows/none", None, 404, "WORKFLOW_NOT_FOUND"),
    ("POST /v1/workflows/none/executions", {"input": {}}, 404, "WORKFLOW_NOT_FOUND"),
    ("POST /v1/executions", {"input": {}}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions", {**START, "input": []}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions", {**START, "activity_execution_mode": "odd"}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions", {**START, "execution_id": "x" * 600}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions", {**START, "execution_id": "w"}, 409, "DUPLICATE_EXECUTION_ID"),
    (
        "POST /v1/executions",
        {**START, "input": {"another": 1}, "execution_id": "w", "allow_existing_execution_id": True},
        409,
        "DUPLICATE_EXECUTION_ID",
    ),
    ("GET /v1/executions/none", None, 404, "EXECUTION_NOT_FOUND"),
    ("GET /v1/executions/none/events", None, 404, "EXECUTION_NOT_FOUND"),
    ("GET /v1/executions/none/checkpoint", None, 404, "EXECUTION_NOT_FOUND"),
    ("GET /v1/executions/w/checkpoint", None, 404, "NOT_FOUND"),
    ("GET /v1/executions/w/events?from_seq=0", None, 400, "VALIDATION_ERROR"),
    ("GET /v1/executions/w/events?limit=x", None, 400, "VALIDATION_ERROR"),
    ("GET /v1/executions?limit=101", None, 400, "VALIDATION_ERROR"),
    ("GET /v1/executions?phase=odd", None, 400, "VALIDATION_ERROR"),
    ("GET /v1/executions?updated_after=soon", None, 400, "VALIDATION_ERROR"),
    ("GET /v1/executions?cursor=odd", None, 400, "INVALID_LIST_CURSOR"),
    ("POST /v1/executions/none:resume", {"resume_payload": {}}, 404, "EXECUTION_NOT_FOUND"),
    ("POST /v1/executions/w:resume", {"resume_payload": {}}, 400, "INVALID_RESUME_PAYLOAD"),
    ("POST /v1/executions/w:resume", {}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions/w:submit", {}, 404, "NOT_FOUND"),
    ("POST /v1/executions/none:signal", {"signal_name": "a"}, 404, "EXECUTION_NOT_FOUND"),
    ("POST /v1/executions/w:signal", {"signal_name": "a"}, 409, "SIGNAL_NOT_AWAITING"),
    ("POST /v1/executions/w:signal", {"signal_name": ""}, 400, "VALIDATION_ERROR"),
    ("POST /v1/executions/w:submit_activity", {"node_id": "work"}, 400, "VALIDATION_ERROR"),
    (
        "POST /v1/executions/w:submit_activity",
        {"node_id": "work", "outcome": {"ok": False}},
        400,
        "VALIDATION_ERROR",
    ),
    (
        "POST /v1/executions/w:submit_activity",
        {"node_id": "other", "outcome": {"ok": True}},
        409,
        "ACTIVITY_SUBMIT_NODE_MISMATCH",
    ),
    (
        "POST /v1/executions/w:submit_activity",
        {"node_id": "work", "outcome": {"ok": True}, "definition": workflow()},
        400,
        "SUBMIT_VALIDATION_ERROR",
    ),
    (
        "POST /v1/executions/w:submit_activity",
        {"node_id": "work", "outcome": {"ok": True}, "input": {"b": 1}},
        400,
        "SUBMIT_VALIDATION_ERROR",
    ),
    (
        "POST /v1/executions/none:submit_activity",
        {"node_id": "work", "outcome": {"ok": True}},
        409,
        "ACTIVITY_SUBMIT_NOT_AWAITING",
    ),
    ("POST /v1/executions/none:cancel", {}, 404, "EXECUTION_NOT_FOUND"),
    ("POST /v1/executions/w:cancel", {"reason": ""}, 400, "CANCEL_VALIDATION_ERROR"),
    ("POST /v1/executions/done:cancel", {}, 409, "CANCEL_NOT_ALLOWED"),
]


def test_every_mistake_has_its_code_and_leaves_the_run_as_it_was() -> None:
    async def scene() -> None:
        async with LocalFlows(limits=PARKING) as flows:
            rest = Rest(flows)
            mediated = {"activity_execution_mode": "host_mediated"}
            await rest(
                "POST /v1/executions",
                {"definition": workflow(TOOL), "input": {"a": 1}, "execution_id": "w", **mediated},
            )
            await rest("POST /v1/executions", {**START, "execution_id": "done"})
            before = await rest("GET /v1/executions/w/events")
            for asked, body, status, code in MISTAKES:
                found = await rest(asked, body)
                assert (found[0], found[1].get("error", {}).get("code")) == (status, code), (
                    asked,
                    body,
                    found,
                )
                assert found[1]["error"]["message"]
            _, told = await rest("POST /v1/executions/w:submit", {})
            assert told["error"]["message"].endswith(
                "end it with :resume, :submit_activity, :signal, :cancel"
            )
            assert await rest("GET /v1/executions/w/events") == before

    asyncio.run(scene())


async def test_diagnostics_are_in_the_details() -> None:
    async with LocalFlows(limits=PARKING) as flows:
        _, told = await Rest(flows)("POST /v1/workflows", {"definition": workflow(extensions={})})
        assert told["error"]["details"]["errors"][0]["keyword"] == "additionalProperties"


@pytest.mark.slow
@pytest.mark.parametrize("by_hash", [False, True])
async def test_a_filter_that_imports_a_file_is_refused_and_a_stored_one_fails(
    tmp_path: Path, *, by_hash: bool
) -> None:
    (tmp_path / "a2a_agents.json").write_text('{"token": "hunter2"}')
    program = f'import "a2a_agents" as $x {{search: "{tmp_path}"}}; {{x: $x}}'
    config = {"assignments": {"x": {"jq": program}}}
    document = workflow({"id": "put", "type": "set_state", "config": config})
    async with LocalFlows(limits=PARKING) as flows:
        rest = Rest(flows)
        status, refused = await rest("POST /v1/workflows", {"definition": document})
        assert status == 400
        (error,) = refused["error"]["details"]["errors"]
        assert error["instancePath"] == "/nodes/1/config/assignments/x/jq"
        assert "may not use 'import'" in error["message"]
        if by_hash:
            # As an earlier version stored it.
            loaded = await flows.port.definitions.load(document)
            await flows.port.definitions.keep("default", loaded)
            key = "imports", loaded.definition.hash.encode()
            await flows.store.docs.put("default", WORKFLOW_ID_KIND, *key, 0)
            status, ran = await rest("POST /v1/workflows/imports/executions", {"input": {}})
        else:
            status, ran = await rest("POST /v1/executions", {"definition": document, "input": {}})
        assert status == 422
        assert "may not use 'import'" in ran["error"]["message"]
        assert "hunter2" not in str(ran)


async def test_a_client_raises_the_codes() -> None:
    async with LocalFlows(limits=PARKING) as flows, served(flows) as client:
        workflow_id = await client.register(workflow(DELEGATE))
        assert (await client.definition(workflow_id))["document"]["name"] == "Small one"
        started = await client.start(workflow_id, {"input": {"task": "x"}, "execution_id": "d/1 ü"})
        assert started["status"] == "completed"
        assert (await client.call("status", {"execution_id": "d/1 ü"}))["phase"] == "completed"
        assert (await client.events("d/1 ü", limit=3))["next_cursor"] == "4"
        with pytest.raises(FlowRefused) as refused:
            await client.call("status", {"execution_id": "none"})
        assert refused.value.code == "EXECUTION_NOT_FOUND"


@pytest.mark.parametrize(
    ("name", "made"),
    [("Hello World", "hello-world"), ("  --  ", ""), ("Ünïcode 7", "n-code-7"), ("x" * 80, "x" * 64)],
)
def test_slugs(name: str, made: str) -> None:
    assert slug(name) == made


async def test_of_a_hundred_submits_that_race_one_wins_each_run(flow_store: str) -> None:
    """Over REST; on PostgreSQL by two processes' worth of servers, which share nothing but the store."""
    runs, racers = 20, 5
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(LocalFlows(flow_store, limits=PARKING))
        second = first
        if first.store.shared:
            second = await stack.enter_async_context(LocalFlows(flow_store, limits=PARKING))
        clients = [await stack.enter_async_context(served(flows)) for flows in (first, second)]
        start = {"definition": workflow(TOOL), "input": {}, "activity_execution_mode": "host_mediated"}
        for run in range(runs):
            await clients[0].call("start", {**start, "execution_id": f"r{run}"})

        async def submit(run: int, racer: int) -> str:
            outcome = {"ok": True, "result": {"by": racer}}
            given = {"execution_id": f"r{run}", "node_id": "work", "outcome": outcome}
            try:
                told = await clients[racer % 2].call("submit_activity", given)
            except FlowRefused as refused:
                return refused.code
            assert told["result"] == {"by": racer}
            return told["status"]

        # One run after the other: whom a store refuses because it is busy is not what is shown here.
        for run in range(runs):
            codes = await asyncio.gather(*[submit(run, racer) for racer in range(racers)])
            assert sorted(codes) == sorted(["completed", *["ACTIVITY_SUBMIT_NOT_AWAITING"] * (racers - 1)])
