"""Model agents driven in this process by the test models of pydantic-ai."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel as EveryTool

from tests.gateway.model.hub import answer, named
from tests.harness import plain_state
from trunkline.fleet.catalogue.model_entry import CAPABILITIES, ModelEntry
from trunkline.gateway.model.agent import card_facts, model_agent
from trunkline.gateway.model.tools import ModelParts


class OneModel:
    def __init__(self, model: Model) -> None:
        self._model = model

    def find(self, name: str, base_url: str = "", api_key_env: str = "") -> Model:
        return self._model

    async def close(self) -> None:
        pass


def parts(model: Model, folder: Path) -> ModelParts:
    nothing = cast("Any", None)
    return ModelParts(
        models=OneModel(model), agents=lambda _: (), fetcher=nothing, mcp=nothing, files=folder, notes=nothing,
        todos=nothing, ceremonies=nothing, now_ms=lambda: 0, own=nothing,
    )  # fmt: skip


def test_every_tool_that_is_granted_is_used_by_the_test_model(tmp_path: Path) -> None:
    async def scene() -> None:
        entry = ModelEntry(model="any:thing", capabilities=("/write", "/list", "/agent", "/advise"))
        agent = model_agent("helper", lambda _: entry, parts(EveryTool(), tmp_path))
        async with agent.test_client() as client:
            task = await client.send("go")
            assert plain_state(task) == "completed", task
            used = [one["parts"][0]["data"] for one in named(task, "tool_call")]
            assert [one["tool"] for one in used] == ["write", "list", "agent", "advise"]
            assert [one["ok"] for one in used] == [True, True, False, True]
        assert (tmp_path / "default" / "a").exists()

    asyncio.run(scene())


def test_a_function_model_streams_and_sees_the_conversation(tmp_path: Path) -> None:
    async def words(messages: list[ModelMessage], info: AgentInfo) -> Any:
        yield f"{len(messages)} "
        yield "heard"

    async def scene() -> None:
        entry = ModelEntry(model="any:thing")
        agent = model_agent("helper", lambda _: entry, parts(FunctionModel(stream_function=words), tmp_path))
        async with agent.test_client() as client:
            first = await client.send("one")
            assert answer(first) == "1 heard"
            assert answer(await client.send("two", contextId=first["contextId"])) == "3 heard"

    asyncio.run(scene())


def test_an_agent_that_is_gone_refuses(tmp_path: Path) -> None:
    async def scene() -> None:
        agent = model_agent("helper", lambda _: None, parts(EveryTool(), tmp_path))
        async with agent.test_client() as client:
            assert plain_state(await client.send("go")) == "rejected"

    asyncio.run(scene())


def test_the_card_lists_chat_and_a_skill_for_each_capability_in_their_order() -> None:
    entry = ModelEntry(model="a:b", role="scout", goal="find", capabilities=("/fetch", "/search", "/mem"))
    facts = card_facts(entry, 1)
    assert facts.description == "scout — find"
    assert [one.id for one in facts.skills] == ["chat", "fetch-url", "web-search", "memory"]
    assert [one.tags[0] for one in facts.skills] == ["text", "/fetch", "/search", "/mem"]
    every = card_facts(ModelEntry(model="a:b", capabilities=tuple(CAPABILITIES)), 1)
    assert len({one.id for one in every.skills}) == 12


@pytest.mark.parametrize("capability", ["/exec", "/a2a"])
def test_there_is_no_tool_that_runs_commands(capability: str) -> None:
    assert capability not in CAPABILITIES
