"""The seven tools, as the official client of MCP sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.flow.surfaces import ASK, DELEGATE, PARKING, SIGNAL, TOOL, control, workflow
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.local import LocalFlows
from trunkline.flow.mcp_server import FlowTools

HOST = {"activity_execution_mode": "host_mediated"}


@asynccontextmanager
async def connected(mode: Any = "auto", **executors: Any) -> AsyncGenerator[Client]:
    async with (
        LocalFlows(limits=PARKING, **executors) as flows,
        Client(FlowTools(control(flows)).server(), mode=mode) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(f"workflow_{tool}", arguments)
    assert found.structured_content is not None
    return found.structured_content


async def test_the_seven_tools_and_nothing_else() -> None:
    async with connected() as client:
        assert client.server_info is not None and client.server_info.version == version("trunkline")
        tools = (await client.list_tools()).tools
        assert [one.name for one in tools] == [
            "workflow_start", "workflow_status", "workflow_resume", "workflow_submit_activity",
            "workflow_signal", "workflow_cancel", "workflow_list",
        ]  # fmt: skip
        assert all(one.output_schema is None for one in tools)
        by_name = {one.name: one.input_schema for one in tools}
        assert by_name["workflow_start"]["required"] == ["definition", "input"]
        assert by_name["workflow_submit_activity"]["required"] == [
            "execution_id", "definition", "input", "node_id", "outcome",
        ]  # fmt: skip
        with pytest.raises(MCPError):
            await client.list_resources()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_host_drives_a_run_by_tools_alone(mode: str) -> None:
    async with connected(mode) as client:
        document, given = workflow(DELEGATE, ASK, SIGNAL), {"task": "x"}
        same = {"execution_id": "e", "definition": document}
        told = await call(client, "start", **same, input=given, **HOST)
        assert told == {
            "execution_id": "e",
            "status": "awaiting_activity",
            "node_id": "implement",
            "activity_id": "e:implement:1.1",
            "state": {"task": "x"},
            "agent_id": "coder",
            "protocol": "a2a",
            "delegate_input": {"task": "x"},
            "delegate_correlation_id": "e:delegate:implement",
        }
        status = await call(client, "status", execution_id="e")
        assert (status["phase"], status["agent_id"]) == ("awaiting_activity", "coder")
        outcome = {
            "ok": True,
            "result": {"patch": "p"},
            "delegate_correlation_id": "e:delegate:implement",
            "external_task_id": "t1",
        }
        told = await call(
            client, "submit_activity", **same, input=given, node_id="implement", outcome=outcome, **HOST
        )
        assert (told["status"], told["node_id"]) == ("interrupted", "ask")
        told = await call(client, "resume", **same, resume_payload={"ok": True})
        assert (told["status"], told["signal_name"]) == ("awaiting_signal", "approved")
        told = await call(client, "signal", **same, input=given, signal_name="approved")
        assert (told["status"], told["result"]) == ("completed", {"task": "x", "patch": "p", "ok": True})
        listed = await call(client, "list", definition_name="Small one")
        assert [one["execution_id"] for one in listed["executions"]] == ["e"]


async def test_texts_say_the_same_as_the_structure() -> None:
    async with connected() as client:
        found = await client.call_tool(
            "workflow_start", {"definition": workflow(), "input": {}, "execution_id": "e"}
        )
        text = getattr(found.content[0], "text", "")
        assert text.startswith("Run e is completed.\n\n{")
        assert '"status": "completed"' in text
        assert not found.is_error


class Failing:
    async def execute(self, activity: Activity) -> Outcome:
        return Outcome(ok=False, error="it burns", code="TRANSIENT")


async def error_of(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(f"workflow_{tool}", arguments)
    assert found.is_error
    assert found.structured_content is not None
    error = found.structured_content["error"]
    assert getattr(found.content[0], "text", "").startswith(f"{error['code']}: ")
    return error


async def test_a_run_that_fails_is_the_engines_failure_with_its_cause() -> None:
    async with connected(activities=Failing()) as client:
        error = await error_of(client, "start", definition=workflow(TOOL), input={}, execution_id="e")
        assert error["code"] == "ENGINE_FAILURE"
        assert error["details"] == {"cause": "it burns", "engineCode": "TRANSIENT", "execution_id": "e"}
        same = {"execution_id": "h", "definition": workflow(TOOL), "input": {}}
        await call(client, "start", **same, **HOST)
        failed = {"ok": False, "error": "no", "code": "HOST_CODE"}
        error = await error_of(client, "submit_activity", **same, node_id="work", outcome=failed)
        assert (error["code"], error["details"]["engineCode"]) == ("ENGINE_FAILURE", "HOST_CODE")


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("start", {"input": {}}, "VALIDATION_ERROR"),
        ("start", {"definition": workflow(), "input": 7}, "VALIDATION_ERROR"),
        ("start", {"definition": workflow(edges=[]), "input": {}}, "VALIDATION_ERROR"),
        ("start", {"definition": {"x": "y" * (2 << 20)}, "input": {}}, "VALIDATION_ERROR"),
        ("start", {"definition": workflow(), "input": {"x": "y" * (2 << 20)}}, "VALIDATION_ERROR"),
        ("start", {"definition": workflow(), "input": {}, "execution_id": "w"}, "DUPLICATE_EXECUTION_ID"),
        ("status", {"execution_id": "none"}, "EXECUTION_NOT_FOUND"),
        ("status", {}, "VALIDATION_ERROR"),
        (
            "resume",
            {"execution_id": "w", "definition": workflow(TOOL), "resume_payload": {}},
            "INVALID_RESUME_PAYLOAD",
        ),
        ("resume", {"execution_id": "w", "definition": {}, "resume_payload": {}}, "VALIDATION_ERROR"),
        (
            "submit_activity",
            {"execution_id": "w", "definition": {}, "input": {}, "node_id": "work", "outcome": {"ok": True}},
            "SUBMIT_VALIDATION_ERROR",
        ),
        (
            "signal",
            {"execution_id": "w", "definition": workflow(TOOL), "input": {}, "signal_name": "a"},
            "SIGNAL_NOT_AWAITING",
        ),
        ("cancel", {"execution_id": "none"}, "EXECUTION_NOT_FOUND"),
        ("list", {"cursor": "odd"}, "VALIDATION_ERROR"),
        ("list", {"limit": 0}, "VALIDATION_ERROR"),
        ("odd", {}, "VALIDATION_ERROR"),
    ],
)
async def test_every_mistake_has_its_code(tool: str, arguments: dict[str, Any], code: str) -> None:
    async with connected() as client:
        await call(client, "start", definition=workflow(TOOL), input={}, execution_id="w", **HOST)
        error = await error_of(client, tool, **arguments)
        assert error["code"] == code
        assert error["message"]
