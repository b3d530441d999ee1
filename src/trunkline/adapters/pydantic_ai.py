"""Tools for Pydantic AI: the extra `pydantic-ai`."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Tool as PydanticTool
from pydantic_ai import ToolFailed, ToolReturn

from trunkline.bridge.outcome import CallTool
from trunkline.bridge.tool import Tool


def pydantic_tool(tool: Tool, call: CallTool) -> PydanticTool[Any]:
    """A tool that returns the words, with the outcome as metadata; errors are told to the model as such."""

    async def run(**arguments: Any) -> ToolReturn[str]:
        outcome = await call(tool.name, arguments)
        if outcome.is_error:
            raise ToolFailed(outcome.words)
        return ToolReturn(outcome.words, metadata=outcome)

    return PydanticTool[Any].from_schema(run, tool.name, tool.description, tool.input_schema)
