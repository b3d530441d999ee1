"""The tools in LangChain: real StructuredTools, called as its agents call them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.bridge.agents import client_of, planner
from trunkline.bridge.outcome import ToolOutcome
from trunkline.bridge.tools import tools
from trunkline.errors import Misuse


def invoked(name: str, arguments: dict[str, Any]) -> ToolMessage:
    async def main() -> ToolMessage:
        async with client_of(planner()) as client, tools(client) as box:
            (tool,) = [one for one in box.langchain() if one.name == name]
            assert (
                convert_to_openai_tool(tool)["function"]["parameters"]["properties"].keys()
                >= arguments.keys()
            )
            return await tool.ainvoke({"type": "tool_call", "id": "7", "name": name, "args": arguments})

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_a_call_gives_words_and_the_outcome() -> None:
    message = invoked("a2a__planner__plan", {"city": "Oslo", "days": 3})
    assert (message.content, message.status, message.tool_call_id) == (
        '{"city":"Oslo","days":3}',
        "success",
        "7",
    )
    assert isinstance(message.artifact, ToolOutcome)


def test_a_failed_task_has_the_status_of_an_error() -> None:
    message = invoked("a2a__planner__fail", {"query": "bake"})
    assert (message.content, message.status) == ("The agent failed: the oven is cold", "error")


def test_without_langchain_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.tools", None)
    monkeypatch.delitem(sys.modules, "trunkline.adapters.langchain", raising=False)

    async def main() -> None:
        async with client_of(planner()) as client, tools(client) as box:
            with pytest.raises(Misuse, match=r"trunkline\[langchain\]"):
                box.langchain()

    asyncio.run(main())
