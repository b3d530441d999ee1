"""The MCP server by which assistants drive workflows: seven tools, over stdio or in this process."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

import msgspec
from mcp import types
from mcp.server.lowlevel import Server

from trunkline.errors import FlowRefused, TrunklineError
from trunkline.flow.codes import details_of, error_body
from trunkline.flow.control import Control
from trunkline.flow.tools import TOOLS, headline

log = logging.getLogger("trunkline.flow")
NAME = "trunkline-flow"
# A run that failed passes these on; every other failure is the engine's, with its cause.
_OPERATIONS = {name: name.removeprefix("workflow_") for name in TOOLS}


class FlowTools:
    """The seven tools over the control of workflows."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def server(self) -> Server[Any]:
        """The MCP server that has them."""

        async def list_tools(_: object, __: object) -> types.ListToolsResult:
            tools = [
                types.Tool(name=name, description=told, input_schema=schema)
                for name, (told, schema) in TOOLS.items()
            ]
            return types.ListToolsResult(tools=tools)

        async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
            return await self.call(params.name, params.arguments or {})

        return Server(NAME, version=version("trunkline"), on_list_tools=list_tools, on_call_tool=call_tool)

    async def call(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool; whatever goes wrong is a result too, with its code."""
        try:
            if tool not in TOOLS:
                raise FlowRefused("VALIDATION_ERROR", f"there is no tool {tool!r}")
            found = await self._control.call(_OPERATIONS[tool], arguments)
        except FlowRefused as refused:
            code = "VALIDATION_ERROR" if refused.code == "INVALID_LIST_CURSOR" else refused.code
            return _error(code, refused.message, details_of(refused))
        except TrunklineError as error:
            return _error("INTERNAL_ERROR", "the engine cannot do this now", {"cause": str(error)})
        except Exception as error:
            log.exception("flow.tool_failed tool=%s", tool)
            return _error("INTERNAL_ERROR", "the engine has a fault", {"cause": type(error).__name__})
        if found.get("status") == "failed":
            details = {"cause": found.get("error", ""), "execution_id": found["execution_id"]}
            if found.get("code"):
                details["engineCode"] = found["code"]
            return _error("ENGINE_FAILURE", f"run {found['execution_id']} failed", details)
        shown = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
        text = types.TextContent(type="text", text=f"{headline(tool, found)}\n\n{shown}")
        return types.CallToolResult(content=[text], structured_content=found)


def _error(code: str, message: str, details: dict[str, Any]) -> types.CallToolResult:
    text = types.TextContent(type="text", text=f"{code}: {message}")
    return types.CallToolResult(
        content=[text], structured_content=error_body(code, message, details), is_error=True
    )
