"""Delegations by the protocol `mcp`: a tool of the operator's manifest stands for each agent id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trunkline.errors import CallFailed
from trunkline.flow.activities.base import DelegateOrder, Outcome, failed
from trunkline.flow.activities.models import seconds
from trunkline.flow.activities.tools import LONGEST_S
from trunkline.flow.delegates.mock import agent_id_of, derived_task, unsupported
from trunkline.peer.remote import ToolCaller


class DelegateTool(Protocol):
    """The tool that stands for an agent."""

    @property
    def server(self) -> str:
        """The server that has it."""
        ...

    @property
    def tool(self) -> str:
        """Its name."""
        ...


class ToolDelegates:
    """Has one tool call do what is delegated to an agent; its arguments are the input."""

    def __init__(self, tools: Mapping[str, DelegateTool], servers: ToolCaller) -> None:
        self._tools = tools
        self._servers = servers

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        if order.protocol != "mcp":
            return unsupported(order)
        agent = agent_id_of(order)
        found = self._tools.get(agent)
        if found is None:
            text = f"{order.node.id}: the manifest has no {agent!r} among its delegateAgents"
            return failed("DELEGATE_AGENT_NOT_FOUND", text)
        timeout_s = seconds(order.timeout_ms, LONGEST_S)
        try:
            output = await self._servers.call_tool(
                found.server, found.tool, order.input, timeout_s, tenant=order.tenant
            )
        except CallFailed as error:
            missing = error.code == "MCP_SERVER_NOT_CONFIGURED"
            code = "DELEGATE_AGENT_NOT_FOUND" if missing else "DELEGATE_PROTOCOL_ERROR"
            return failed(code, f"{order.node.id}: {error}")
        return Outcome(
            ok=True,
            output=output,
            correlation=order.correlation,
            external_task=derived_task("mcp", order.correlation),
        )
