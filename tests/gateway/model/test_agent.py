"""Model agents driven in this process by the test models of pydantic-ai."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel as EveryTool

from tests.gateway.model.hub import answer, named
from tests.harness import plain_state
from tests.peer.rig import calling
from tests.peer.test_remote_run import Mortal, drive
from tests.run.desk import run, said
from tests.run.pair import die
from trunkline import Agent, Turn
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.model_entry import CAPABILITIES, ModelEntry
from trunkline.gateway.model.agent import card_facts, model_agent
from trunkline.gateway.model.tools import ModelParts
from trunkline.wire.types import SendRequest, TaskState


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
    assert len({one.id for one in every.skills}) == 13


def test_there_is_no_tool_that_runs_commands() -> None:
    assert CAPABILITIES.keys().isdisjoint({"/exec", "/shell", "/bash"})


def listed(name: str) -> Listed:
    return Listed(entry=Entry(name=name, owner="api"), state="ready")


def test_whichever_append_is_the_last_the_model_and_the_agent_that_it_asks_are_asked_once(
    tmp_path: Path,
) -> None:
    async def scenario(deadly: int) -> bool:
        """Whether the process died at all."""
        paid: list[str] = []
        runs: list[str] = []
        store = Mortal(deadly)
        await store.open()
        writer = Agent("writer", on_crash="resume")

        @writer.skill
        async def write(turn: Turn) -> str:
            runs.append(turn.task_id)
            return "a verse"

        async def words(messages: list[ModelMessage], info: AgentInfo) -> Any:
            if store.dead.is_set():
                await asyncio.Event().wait()
            if len(messages) == 1:
                paid.append("first")
                yield {
                    0: DeltaToolCall(name="write", json_args='{"path": "a", "text": "b"}'),
                    1: DeltaToolCall(name="agent", json_args='{"name": "writer", "message": "go"}'),
                }
            else:
                told = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
                yield " ".join(told)

        entry = ModelEntry(model="any:thing", capabilities=("/write", "/agent"))
        made = parts(FunctionModel(stream_function=words), tmp_path)
        agent = model_agent("caller", lambda _: entry, replace(made, agents=lambda _: [listed("writer")]))
        chat = cast("Any", agent.skills["chat"].function)
        async with calling(chat, None, writer, store=store) as first:
            feed, _ = first.submit("t", "me", SendRequest(said("go")), agent=first.origin)
            task_id = feed.state.task_id
            while not feed.state.seq and not store.dead.is_set():  # noqa: ASYNC110 - either may come
                await asyncio.sleep(0)
            ended = await drive(first, store, task_id)
            if not ended:
                await die(first)
                store.revive()
                async with calling(chat, None, writer, store=store) as second:
                    assert await drive(second, store, task_id)
                    feed = await second.find(task_id)
            assert feed.state.state is TaskState.COMPLETED, (deadly, feed.state.status_message)
            artifacts = {one.name: one for one in feed.state.task().artifacts}
            assert artifacts["response"].parts[0].text == "a has 1 bytes. a verse", deadly
            assert (paid, len(set(runs))) == (["first"], 1), deadly
        await store.close()
        return not ended

    died: list[bool] = []

    async def note(deadly: int) -> None:
        died.append(await scenario(deadly))

    while not died or died[-1]:
        run(note(len(died) + 1))
    assert len(died) > 10
