"""Tools for LangChain: the extra `langchain`."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import StructuredTool, ToolException

from trunkline.bridge.outcome import CallTool, ToolOutcome
from trunkline.bridge.tool import Tool


def structured_tool(tool: Tool, call: CallTool) -> StructuredTool:
    """A tool whose message has the words as content and the outcome as artifact; errors have status error."""

    async def run(**arguments: Any) -> tuple[str, ToolOutcome]:
        outcome = await call(tool.name, arguments)
        if outcome.is_error:
            raise ToolException(outcome.words)
        return outcome.words, outcome

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.input_schema,
        coroutine=run,
        response_format="content_and_artifact",
        handle_tool_error=True,
        tags=list(tool.tags),
    )
