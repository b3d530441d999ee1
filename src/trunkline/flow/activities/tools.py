"""Tool calls: one tool of an MCP server that the operator's manifest names."""

from __future__ import annotations

from typing import Any, cast

from trunkline.errors import CallFailed
from trunkline.flow.activities.base import Activity, Outcome, failed
from trunkline.flow.activities.models import seconds
from trunkline.peer.remote import ToolCaller

LONGEST_S = 45.0


class ToolExecutor:
    """Does tool calls at the servers of the operator's manifest; arguments go as they are written."""

    def __init__(self, servers: ToolCaller) -> None:
        self._servers = servers

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        node = activity.node
        if node.type != "tool_call":
            return failed("ACTIVITY_EXECUTOR_UNSUPPORTED_NODE", f"{node.id}: {node.type} is no tool call")
        server, tool, given = [node.config.get(name) for name in ("server", "tool", "arguments")]
        if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(given, dict | None):
            text = f"{node.id}: a tool call has server and tool as texts, and arguments as an object"
            return failed("INVALID_TOOL_CALL_CONFIG", text)
        arguments = cast("dict[str, Any]", given or {})
        timeout_s = seconds(activity.timeout_ms, LONGEST_S)
        try:
            output = await self._servers.call_tool(
                server.strip(), tool.strip(), arguments, timeout_s, tenant=activity.tenant
            )
        except CallFailed as error:
            return failed(error.code or "MCP_CLIENT_ERROR", f"{node.id}: {error}")
        return Outcome(ok=True, output=output)
