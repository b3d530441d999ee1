from __future__ import annotations

from typing import Any

import pytest

from tests.flow.workbench import RejectingDelegate
from trunkline.errors import CallFailed
from trunkline.flow.activities.base import DelegateOrder
from trunkline.flow.definition.document import Node
from trunkline.flow.delegates.functions import FunctionDelegates
from trunkline.flow.delegates.mock import MockDelegate, ProtocolDelegates
from trunkline.flow.delegates.tools import ToolDelegates


class Tool:
    def __init__(self, server: str, tool: str) -> None:
        self.server = server
        self.tool = tool


class Servers:
    async def call_tool(
        self, server: str, tool: str, arguments: dict[str, Any], timeout_s: float, *, tenant: str = ""
    ) -> dict[str, Any]:
        if server == "none":
            raise CallFailed("no such server", code="MCP_SERVER_NOT_CONFIGURED")
        if tool == "broken":
            raise CallFailed("it broke", code="MCP_TOOL_EXECUTION_ERROR")
        return {"given": arguments}


def order(protocol: str, agent: str = "coder") -> DelegateOrder:
    node = Node("implement", "agent_delegate", {"agent_id": agent, "protocol": protocol})
    return DelegateOrder("e:1", node, {}, {"task": "x"}, protocol, "e:1:delegate:implement")


async def test_the_mock_speaks_all_protocols_of_the_schema() -> None:
    found = await MockDelegate().delegate(order("a2a"))
    assert (found.correlation, found.external_task) == (
        "e:1:delegate:implement",
        "a2a-task-e-1-delegate-implement",
    )
    assert found.output["delegate_status"] == "completed"
    assert "x" in found.output["patch"]
    assert (await MockDelegate().delegate(order("sdk"))).output["protocol"] == "sdk"
    assert (await MockDelegate().delegate(order("smtp"))).code == "DELEGATE_PROTOCOL_UNSUPPORTED"


async def test_functions_of_the_process_stand_for_agents() -> None:
    async def coder(order: DelegateOrder) -> dict[str, Any]:
        return {"patch": order.input["task"]}

    def broken(_: DelegateOrder) -> None:
        raise ValueError("odd")

    both = FunctionDelegates({"coder": coder, "silent": lambda _: None, "broken": broken})
    found = await both.delegate(order("sdk"))
    assert (found.output, found.external_task) == ({"patch": "x"}, "sdk-task-e-1-delegate-implement")
    assert (await both.delegate(order("sdk", "silent"))).output == {"delegate_status": "completed"}
    assert (await both.delegate(order("sdk", "broken"))).code == "DELEGATE_PROTOCOL_ERROR"
    assert (await both.delegate(order("sdk", "none"))).code == "DELEGATE_AGENT_NOT_FOUND"
    assert (await both.delegate(order("a2a"))).code == "DELEGATE_PROTOCOL_UNSUPPORTED"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (order("mcp"), ""),
        (order("mcp", "none"), "DELEGATE_AGENT_NOT_FOUND"),
        (order("mcp", "elsewhere"), "DELEGATE_AGENT_NOT_FOUND"),
        (order("mcp", "broken"), "DELEGATE_PROTOCOL_ERROR"),
        (order("a2a"), "DELEGATE_PROTOCOL_UNSUPPORTED"),
    ],
)
async def test_tools_of_the_manifest_stand_for_agents(asked: DelegateOrder, code: str) -> None:
    tools = {"coder": Tool("s", "code"), "elsewhere": Tool("none", "t"), "broken": Tool("s", "broken")}
    found = await ToolDelegates(tools, Servers()).delegate(asked)
    assert found.code == code
    if not code:
        assert (found.output, found.external_task) == (
            {"given": {"task": "x"}},
            "mcp-task-e-1-delegate-implement",
        )


async def test_each_protocol_has_its_delegate_and_the_rest_a_code() -> None:
    both = ProtocolDelegates({"a2a": RejectingDelegate()})
    assert (await both.delegate(order("a2a"))).code == "CONFORMANCE_DELEGATE_PORT_INVOKED"
    assert (await both.delegate(order("mcp"))).code == "DELEGATE_PROTOCOL_UNSUPPORTED"
    assert (await ProtocolDelegates({}, MockDelegate()).delegate(order("mcp"))).ok
