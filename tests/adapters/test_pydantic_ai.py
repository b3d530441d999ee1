"""The tools in a real Pydantic AI agent, whose model is a function of ours."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import pytest
from pydantic_ai import Agent as Model
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.bridge.agents import client_of, planner
from trunkline.bridge.tools import tools
from trunkline.errors import Misuse


def told(messages: list[ModelMessage]) -> list[str]:
    """What tools have said so far."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def looped(model: Any) -> str:
    async def main() -> str:
        async with client_of(planner()) as client, tools(client) as box:
            return (await Model(FunctionModel(model), tools=box.pydantic_ai()).run("go")).output

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_a_loop_in_which_the_model_answers_the_tools_question() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
        assert offered["a2a__planner__plan"]["required"] == ["city"]
        said = told(messages)
        if not said:
            return ModelResponse([ToolCallPart("a2a__planner__book", {"city": "Oslo"})])
        if len(said) == 1:
            assert said[0].startswith("When do you leave?")
            (task_id,) = re.findall('task_id="([^"]+)"', said[0])
            again = {"city": "Oslo", "task_id": task_id, "answer": "Monday"}
            return ModelResponse([ToolCallPart("a2a__planner__book", again)])
        return ModelResponse([TextPart(f"Booked: {said[-1]}")])

    assert looped(model) == "Booked: Oslo on Monday"


def test_a_failed_task_is_told_to_the_model() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = told(messages)
        if not said:
            return ModelResponse([ToolCallPart("a2a__planner__reject", {"query": "a cake"})])
        return ModelResponse([TextPart(said[0])])

    assert "I only bake bread" in looped(model)


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.delitem(sys.modules, "trunkline.adapters.pydantic_ai", raising=False)

    async def main() -> None:
        async with client_of(planner()) as client, tools(client) as box:
            with pytest.raises(Misuse, match=r"trunkline\[pydantic-ai\]"):
                box.pydantic_ai()

    asyncio.run(main())
